/* print.c - the report of `remo bench litmus`, as a table and as JSON.
 * An outcome that was never seen may still be possible. */
#include <jansson.h>
#include <string.h>
#include <sys/utsname.h>

#include "bench/litmus/litmus.h"
#include "bench/litmus/real.h"

/* Rows that no program of this report can show. */
static const char not_run[] = "22 and 23 (a node or a connection fails) need the simulator: remo sim";

static const struct promise {
    const char *name;
    size_t at;
} promises[] = {
    {"mapped", offsetof(struct remo__fabric_caps, mapped)},
    {"coherent", offsetof(struct remo__fabric_caps, coherent)},
    {"atomics_coherent", offsetof(struct remo__fabric_caps, atomics_coherent)},
    {"writes_ordered", offsetof(struct remo__fabric_caps, writes_ordered)},
    {"reads_ordered", offsetof(struct remo__fabric_caps, reads_ordered)},
    {"completion_placed", offsetof(struct remo__fabric_caps, completion_placed)},
    {"read_flushes", offsetof(struct remo__fabric_caps, read_flushes)},
};

static bool holds(const struct remo__fabric_caps *caps, const struct promise *promise) {
    return *(const bool *)((const char *)caps + promise->at);
}

static void processor_name(char *ret_name, size_t cap) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(ret_name, cap, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(ret_name, cap, "%s", colon + 2);
        break;
    }
    if (file)
        fclose(file);
}

void litmus_print(FILE *out, const struct litmus_report *report) {
    char processor[128];
    struct utsname system;
    processor_name(processor, sizeof processor);
    uname(&system);
    fprintf(out, "fabric %s on %s, %s %s\nit promises:", report->fabric, processor, system.sysname,
            system.release);
    for (size_t i = 0; i < sizeof promises / sizeof *promises; i++)
        fprintf(out, "%s %s", holds(&report->caps, &promises[i]) ? "" : " not", promises[i].name);
    fprintf(out, "\n\n%-4s%-46s%-38s%10s %10s\n", "row", "program (| between actors)", "outcome in question",
            "runs", "seen");
    for (uint32_t i = 0; i < litmus_rows_count; i++) {
        const struct litmus_row *row = &litmus_rows[i];
        const struct litmus_count *count = &report->rows[i];
        bool excluded = litmus_excludes(&report->caps, i);
        fprintf(out, "%-4s%-46s%-38s%10llu %10llu  %s\n", row->row, row->program, row->outcome,
                (unsigned long long)count->runs, (unsigned long long)count->seen,
                !excluded     ? "may happen"
                : count->seen ? "MUST NOT HAPPEN"
                              : "excluded");
    }
    fprintf(out,
            "\nAn outcome that may happen but was not seen may still happen. Rows %s.\n%u outcomes that the "
            "fabric excludes were seen\n",
            not_run, report->failures);
}

void litmus_print_json(FILE *out, const struct litmus_report *report) {
    char processor[128];
    struct utsname system;
    json_t *promised = json_object();
    processor_name(processor, sizeof processor);
    uname(&system);
    for (size_t i = 0; i < sizeof promises / sizeof *promises; i++)
        json_object_set_new(promised, promises[i].name, json_boolean(holds(&report->caps, &promises[i])));
    json_t *head = json_pack("{s:s, s:s, s:s, s:s, s:o}", "bench", "litmus", "fabric", report->fabric,
                             "processor", processor, "kernel", system.release, "promises", promised);
    json_dumpf(head, out, JSON_COMPACT);
    fputc('\n', out);
    json_decref(head);
    for (uint32_t i = 0; i < litmus_rows_count; i++) {
        const struct litmus_row *row = &litmus_rows[i];
        json_t *line =
            json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:b}", "bench", "litmus", "fabric", report->fabric,
                      "row", row->row, "program", row->program, "outcome", row->outcome, "runs",
                      (json_int_t)report->rows[i].runs, "seen", (json_int_t)report->rows[i].seen, "excluded",
                      (int)litmus_excludes(&report->caps, i));
        json_dumpf(line, out, JSON_COMPACT);
        fputc('\n', out);
        json_decref(line);
    }
}
