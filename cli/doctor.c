/* doctor.c - `remo doctor`: prints findings about this machine, as text or JSON, and their remedies.
 * The checks are in doctor_machine.c, doctor_network.c and doctor_verbs.c. */
#include "cli/doctor.h"

#include <argp.h>
#include <jansson.h>
#include <limits.h>
#include <stdint.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/text.h"
#include "cli/commands.h"

#define FINDING_COLUMN 24

static const char *const state_names[] = {"ok", "note", "change", "bad"};

static void print_json(enum doctor_state state, const char *subject, const char *finding,
                       const char *remedy) {
    json_t *object =
        json_pack("{s:s, s:s, s:s}", "check", subject, "state", state_names[state], "finding", finding);
    if (object && remedy[0])
        json_object_set_new(object, "remedy", json_string(remedy));
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    if (text)
        puts(text);
    free(text);
    json_decref(object);
}

/* In a pipe, each finding is one line, for grep. */
static void print_text(const char *state, const char *subject, const char *finding, const char *remedy) {
    char text[2048];
    uint32_t columns = isatty(STDOUT_FILENO) ? text_columns(stdout, UINT32_MAX) : UINT32_MAX;
    uint32_t indent = columns < 72 ? 8 : FINDING_COLUMN;
    snprintf(text, sizeof text, "%s%s%s", finding, remedy[0] ? ". " : "", remedy);
    printf("%-7s %-15s ", state, subject);
    uint32_t used = strlen(subject) > 15 ? FINDING_COLUMN + (uint32_t)strlen(subject) - 15 : FINDING_COLUMN;
    text_wrap(stdout, text, columns, used, indent);
}

void doctor_say(struct doctor *doctor, enum doctor_state state, const char *subject, const char *remedy,
                const char *format, ...) {
    char finding[512];
    va_list values;
    va_start(values, format);
    vsnprintf(finding, sizeof finding, format, values);
    va_end(values);
    doctor->bad += state == DOCTOR_BAD;
    doctor->changes += state == DOCTOR_CHANGE;
    if (doctor->json)
        print_json(state, subject, finding, remedy);
    else
        print_text(state_names[state], subject, finding, remedy);
}

void doctor_read_line(const char *path, char *ret_line, unsigned line_bytes) {
    FILE *file = fopen(path, "re");
    ret_line[0] = '\0';
    if (!file)
        return;
    if (!fgets(ret_line, (int)line_bytes, file))
        ret_line[0] = '\0';
    ret_line[strcspn(ret_line, "\n")] = '\0';
    fclose(file);
}

bool doctor_in_path(const char *command) {
    const char *path = getenv("PATH");
    char file[PATH_MAX];
    for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
        size_t length = strcspn(at, ":");
        snprintf(file, sizeof file, "%.*s/%s", (int)length, at, command);
        if (length > 0 && access(file, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
    struct doctor *doctor = state->input;
    switch (key) {
    case 'j': doctor->json = true; break;
    case 'v': doctor->verbs = true; break;
    case ARGP_KEY_ARG: argp_error(state, "'%s' is not an option", text); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int cli_doctor(int argc, char **argv) {
    static const struct argp_option option_list[] = {
        {"json", 'j', 0, 0, "one JSON object a line: check, state, finding, remedy", 0},
        {"verbs", 'v', 0, 0, "report on the RDMA devices too, with all their limits", 0},
        {0},
    };
    static const struct argp parser = {
        option_list,
        parse_option,
        NULL,
        "Report what this machine offers to Remo, one finding a line, with a remedy where a change helps."
        "\vThe first word of a line is the state: ok; note: information; change: Remo works, and works "
        "better "
        "with the remedy; bad: Remo does not work. The exit status is 1 if a finding is bad, else 0.",
        NULL,
        NULL,
        NULL};
    struct doctor doctor = {0};
    argp_err_exit_status = 2;
    if (argp_parse(&parser, argc, argv, 0, NULL, &doctor))
        return 2;
    doctor_check_machine(&doctor);
    doctor_check_network(&doctor);
    if (doctor.verbs)
        doctor_check_verbs(&doctor);
    if (!doctor.json)
        printf("\n%s%s\n",
               doctor.bad ? "Remo cannot work here before what is bad is changed." : "Remo works here.",
               doctor.changes && !doctor.bad ? " It would work better with what is under change." : "");
    return doctor.bad ? 1 : 0;
}
