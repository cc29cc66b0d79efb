/* test_bench.c - tests the output of `remo bench` and `remo doctor`: standard output contains only complete
 * JSON, every benchmark runs, and wrong arguments are refused with a sentence. The first argument is the
 * command, the second one selects the tests: see below. */
#include <jansson.h>
#include <pty.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* test_bench REMO FABRIC     each benchmark on this fabric, briefly
 * test_bench REMO sim        on the simulated network
 * test_bench REMO curves     --plot there; 77 without gnuplot
 * test_bench REMO plot       --plot; 77 without gnuplot
 * test_bench REMO peers      --peers with the servers that are installed; 77 without any
 * test_bench REMO doctor     remo doctor */

#define COMMAND_BYTES 1024
#define OUTPUT_BYTES (256u << 10)

/* The result of a command. */
struct outcome {
    int status;
    char output[OUTPUT_BYTES], errors[OUTPUT_BYTES];
};

static int failures;

#define check(condition, ...)                                      \
    do {                                                           \
        if (!(condition)) {                                        \
            failures++;                                            \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            printf(__VA_ARGS__);                                   \
            printf("\n");                                          \
        }                                                          \
    } while (0)

static void read_all(FILE *file, char ret_text[OUTPUT_BYTES]) {
    size_t length = file ? fread(ret_text, 1, OUTPUT_BYTES - 1, file) : 0;
    ret_text[length] = '\0';
}

__attribute__((format(printf, 2, 3))) static void run(struct outcome *ret_outcome, const char *format, ...) {
    char command[COMMAND_BYTES], errors_file[] = "remo-test-bench-XXXXXX";
    int fd = mkstemp(errors_file);
    va_list values;
    va_start(values, format);
    size_t length = (size_t)vsnprintf(command, sizeof command, format, values);
    va_end(values);
    snprintf(command + length, sizeof command - length, " 2>%s", errors_file);
    FILE *pipe = popen(command, "r");
    read_all(pipe, ret_outcome->output);
    int status = pipe ? pclose(pipe) : -1;
    ret_outcome->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    FILE *errors = fd >= 0 ? fdopen(fd, "r") : NULL;
    read_all(errors, ret_outcome->errors);
    if (errors)
        fclose(errors);
    unlink(errors_file);
}

/* ---- JSON ---- */

static bool has_number(const json_t *object, const char *name) {
    return json_is_number(json_object_get(object, name));
}

/* Check one line of a measurement of Remo itself. */
static void check_result(const json_t *object, const char *bench, const char *line, bool is_limit) {
    static const char *const texts[] = {"bench", "object", "fabric"};
    static const char *const numbers[] = {"nodes", "threads", "bytes", "window", "ops_per_s", "p50_ns"};
    static const char *const measured[] = {"seconds", "ops", "p99_ns", "p999_ns"};
    static const char *const networks[] = {"reads", "writes", "atomics", "imms", "bytes"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check(json_is_string(json_object_get(object, texts[i])), "no %s in %s", texts[i], line);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        check(has_number(object, numbers[i]), "no %s in %s", numbers[i], line);
    for (size_t i = 0; !is_limit && i < sizeof measured / sizeof *measured; i++)
        check(has_number(object, measured[i]), "no %s in %s", measured[i], line);
    const json_t *net = json_object_get(object, "net");
    for (size_t i = 0; !is_limit && i < sizeof networks / sizeof *networks; i++)
        check(has_number(net, networks[i]), "no net.%s in %s", networks[i], line);
    check(json_object_get(object, "limit") && json_object_get(object, "limit_ns")
              && json_object_get(object, "ratio"),
          "no limit in %s", line);
    const char *name = json_string_value(json_object_get(object, "bench"));
    check(name && strcmp(name, bench) == 0, "not a line of %s: %s", bench, line);
    check(json_number_value(json_object_get(object, "p50_ns")) > 0, "no time in %s", line);
}

/* Check every line of standard output, and return the number of lines. */
static unsigned check_results(char *output, const char *bench) {
    unsigned lines = 0;
    for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        check(json_is_object(object), "not a JSON object: %s", line);
        check(!json_object_get(object, "error"), "%s", line);
        if (object && !json_object_get(object, "error"))
            check_result(object, bench, line, strcmp(bench, "limits") == 0);
        json_decref(object);
    }
    return lines;
}

/* ---- on a fabric ---- */

/* The first line describes the run, each of the others a row. No result that the model excludes was
 * observed. */
static void test_litmus(const char *remo, const char *fabric) {
    struct outcome outcome;
    unsigned rows = 0;
    run(&outcome, "%s bench litmus --fabric %s --seconds 0.01 --json", remo, fabric);
    check(outcome.status == 0 && outcome.errors[0] == '\0', "litmus ended with %d: %s", outcome.status,
          outcome.errors);
    for (char *line = strtok(outcome.output, "\n"); line; line = strtok(NULL, "\n"), rows++) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const json_t *promises = json_object_get(object, "promises");
        check(rows == 0 ? json_is_boolean(json_object_get(promises, "writes_ordered"))
                        : json_is_string(json_object_get(object, "row")),
              "%s", line);
        check(rows == 0 || json_integer_value(json_object_get(object, "runs")) > 0, "never ran: %s", line);
        check(json_integer_value(json_object_get(object, "seen")) == 0
                  || json_is_false(json_object_get(object, "excluded")),
              "%s", line);
        json_decref(object);
    }
    check(rows == 27, "%u lines of litmus", rows);
    run(&outcome, "%s bench litmus --fabric %s --seconds 0.01", remo, fabric);
    check(outcome.status == 0 && strstr(outcome.output, "put X; get X"), "%s", outcome.output);
}

/* Remove warnings about times below their limits: on a busy machine, a limit can be measured in a slow phase,
 * and its point in a fast one. */
static void drop_limit_warnings(char *errors) {
    char *to = errors;
    for (char *line = errors, *next; *line; line = next) {
        size_t length = strcspn(line, "\n");
        next = line + length + (line[length] == '\n');
        const char *warning = strstr(line, "is below its limit of");
        if (warning && warning < line + length)
            continue;
        memmove(to, line, (size_t)(next - line));
        to += next - line;
    }
    *to = '\0';
}

static void test_each(const char *remo, const char *fabric) {
    struct outcome list, outcome;
    char *rest = list.output;
    run(&list, "%s bench --list", remo);
    check(list.status == 0, "--list ended with %d", list.status);
    for (char *line = strtok_r(rest, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        line[strcspn(line, " ")] = '\0';
        if (strcmp(line, "litmus") == 0) {
            test_litmus(remo, fabric);
            continue;
        }
        run(&outcome, "%s bench %s --fabric %s --seconds 0.05 --keys 1000 --accounts 2000 --json", remo, line,
            fabric);
        check(outcome.status == 0, "%s ended with %d: %s", line, outcome.status, outcome.errors);
        drop_limit_warnings(outcome.errors);
        check(outcome.errors[0] == '\0', "%s is not quiet in a pipe: %s", line, outcome.errors);
        check(check_results(outcome.output, line) > 0, "%s measured nothing", line);
    }
}

/* With any options, the counters agree with the costs in the headers. */
static void test_options(const char *remo, const char *fabric) {
    struct outcome outcome;
    run(&outcome,
        "%s bench read --fabric %s --bytes 16 --window 4 --threads 2 --runs 3 --seconds 0.05 --json", remo,
        fabric);
    json_t *object = json_loads(outcome.output, 0, NULL);
    check(outcome.status == 0 && object, "status %d: %s", outcome.status, outcome.errors);
    check(json_integer_value(json_object_get(object, "bytes")) == 16, "%s", outcome.output);
    check(json_integer_value(json_object_get(object, "window")) == 4, "%s", outcome.output);
    check(json_integer_value(json_object_get(object, "threads")) == 2, "%s", outcome.output);
    check(json_integer_value(json_object_get(object, "runs")) == 3, "%s", outcome.output);
    const json_t *net = json_object_get(object, "net");
    check(json_number_value(json_object_get(net, "reads")) == 1, "%s", outcome.output);
    check(json_number_value(json_object_get(net, "bytes")) == 16, "%s", outcome.output);
    json_decref(object);
    run(&outcome, "%s bench write barrier --fabric %s --nodes 3 --no-pin --seconds 0.05", remo, fabric);
    check(outcome.status == 0, "status %d: %s", outcome.status, outcome.errors);
    check(strstr(outcome.output, "write 8 B") && strstr(outcome.output, "barrier"), "%s", outcome.output);
}

/* --variant selects the points of one variant; "" those without a variant. */
static void test_variant(const char *remo, const char *fabric) {
    static const char *const arguments[] = {"lookup --keys 1000 --variant 'calls only'",
                                            "rpc --bytes 16 --variant ''"};
    static const char *const variants[] = {"calls only", NULL};
    struct outcome outcome;
    for (unsigned i = 0; i < 2; i++) {
        run(&outcome, "%s bench %s --window 1 --fabric %s --seconds 0.05 --json", remo, arguments[i], fabric);
        json_t *object = json_loads(outcome.output, 0, NULL);
        const char *variant = json_string_value(json_object_get(object, "variant"));
        check(outcome.status == 0 && has_number(object, "p50_ns"), "%s: %s", outcome.output, outcome.errors);
        check(variants[i] ? variant && strcmp(variant, variants[i]) == 0 : !variant, "%s", outcome.output);
        json_decref(object);
    }
    run(&outcome, "%s bench lookup --variant other --fabric %s --seconds 0.05 --json", remo, fabric);
    check(outcome.status == 1 && strstr(outcome.errors, "lookup has no variant 'other'"), "status %d: %s",
          outcome.status, outcome.errors);
}

/* A call is 2 writes, and a forwarded or nested one 4. At the end of a point, 2 threads call 2 nodes. */
static void test_calls(const char *remo, const char *fabric) {
    static const struct {
        const char *variant;
        double writes;
    } points[] = {{NULL, 2},        {"both ways", 2}, {"asleep", 2},
                  {"forwarded", 4}, {"depth 2", 4},   {"deferred", 2}};
    struct outcome outcome;
    unsigned lines = 0;
    run(&outcome,
        "%s bench rpc --fabric %s --nodes 3 --bytes 16 --window 1 --threads 2 --seconds 0.05 --json", remo,
        fabric);
    check(outcome.status == 0, "status %d: %s", outcome.status, outcome.errors);
    for (char *line = strtok(outcome.output, "\n"); line && lines < 6; line = strtok(NULL, "\n"), lines++) {
        json_t *object = json_loads(line, 0, NULL);
        const char *variant = json_string_value(json_object_get(object, "variant"));
        double writes = json_number_value(json_object_get(json_object_get(object, "net"), "writes"));
        check(points[lines].variant ? variant && strcmp(variant, points[lines].variant) == 0 : !variant, "%s",
              line);
        double more = (writes - points[lines].writes) * json_number_value(json_object_get(object, "ops"));
        check(writes >= points[lines].writes && more < 9 + writes, "%.1f more writes: %s", more, line);
        json_decref(object);
    }
    check(lines == 6, "%u lines of rpc: %s", lines, outcome.errors);
    run(&outcome, "%s bench rpc --fabric %s --bytes 4096 --window 8 --threads 2 --seconds 0.05", remo,
        fabric);
    check(outcome.status == 0 && strstr(outcome.output, "rpc 4 KiB, window 8")
              && strstr(outcome.output, "rpc both ways 4 KiB, window 8"),
          "status %d: %s%s", outcome.status, outcome.output, outcome.errors);
}

static void refuse(const char *remo, const char *arguments, const char *sentence) {
    struct outcome outcome;
    run(&outcome, "%s bench %s", remo, arguments);
    check(outcome.status == 2, "`bench %s` ended with %d", arguments, outcome.status);
    check(outcome.output[0] == '\0', "`bench %s` printed %s", arguments, outcome.output);
    check(strstr(outcome.errors, sentence), "`bench %s` said %s", arguments, outcome.errors);
}

static void test_refusals(const char *remo) {
    refuse(remo, "litmus read", "litmus measures nothing");
    refuse(remo, "flights", "there is no benchmark 'flights'");
    refuse(remo, "read --fabric carrier-pigeon", "there is no fabric 'carrier-pigeon'; this build has: ");
    refuse(remo, "read --nodes 1", "'1' is not a number from 2 to");
    refuse(remo, "read --threads 0", "'0' is not a number from 1 to");
    refuse(remo, "read --seconds never", "'never' is not a number from");
    refuse(remo, "read --window 1e9", "'1e9' is not a number from 1 to");
    refuse(remo, "read --swiftly", "--swiftly");
    refuse(remo, "read --plot x.pdf", "end the name in .svg or .png");
}

/* ---- the width of the output ---- */

/* Messages on standard error, such as the warning of a busy machine, may be longer. */
static void check_width(const char *output, size_t columns) {
    static const char message[] = "remo bench: ";
    const char *line = output;
    size_t length;
    do {
        length = strcspn(line, "\n");
        if (length > columns && strncmp(line, message, strlen(message)) != 0)
            check(false, "more than %zu columns: %.*s", columns, (int)length, line);
        line += length + 1;
    } while (line[-1] != '\0');
}

/* 100 columns in a pipe, or COLUMNS; on a terminal, its width. */
static void test_width(const char *remo) {
    struct outcome outcome;
    char *words[] = {(char *)(uintptr_t)remo, "bench", "limits", "read", "--seconds", "0.05", NULL};
    struct winsize size = {.ws_row = 24, .ws_col = 72};
    size_t length = 0;
    int terminal = -1;
    run(&outcome, "unset COLUMNS; %s bench limits read --seconds 0.05", remo);
    check(outcome.status == 0, "status %d: %s", outcome.status, outcome.errors);
    check_width(outcome.output, 100);
    run(&outcome, "COLUMNS=50 %s bench limits read --seconds 0.05", remo);
    check_width(outcome.output, 50);
    check(strstr(outcome.output, "vs. peer") == NULL, "peers without --peers: %s", outcome.output);
    pid_t pid = forkpty(&terminal, NULL, NULL, &size);
    if (pid == 0) {
        execv(remo, words);
        _exit(127);
    }
    for (ssize_t got = 1; got > 0 && length<OUTPUT_BYTES - 1; length += got> 0 ? (size_t)got : 0)
        got = read(terminal, outcome.output + length, OUTPUT_BYTES - 1 - length);
    outcome.output[length] = '\0';
    waitpid(pid, &outcome.status, 0);
    close(terminal);
    check(outcome.status == 0 && strstr(outcome.output, "read 4 KiB"), "on a terminal: %s", outcome.output);
    /* Progress returns to the start of the line by a carriage return; a new line on a terminal has one. */
    for (char *at = outcome.output; *at; at++)
        if (*at == '\r')
            *at = '\n';
    for (char *at = strstr(outcome.output, "\033[K"); at; at = strstr(at, "\033[K"))
        memmove(at, at + 3, strlen(at + 3) + 1);
    check_width(outcome.output, 72);
}

/* ---- the plot, the doctor ---- */

static int test_plot(const char *remo) {
    struct outcome outcome;
    struct stat file;
    char svg[] = "remo-test-plot-XXXXXX.svg";
    run(&outcome, "gnuplot --version");
    if (outcome.status != 0) {
        printf("gnuplot is not installed\n");
        return 77;
    }
    int fd = mkstemps(svg, 4);
    if (fd >= 0)
        close(fd);
    run(&outcome, "%s bench read barrier --seconds 0.05 --json --plot %s", remo, svg);
    drop_limit_warnings(outcome.errors);
    check(outcome.status == 0 && outcome.errors[0] == '\0', "status %d: %s", outcome.status, outcome.errors);
    check(stat(svg, &file) == 0 && file.st_size > 1000, "the plot is too small");
    static const char *const named[] = {"read 4 KiB", "limit of the hardware",
                                        "fabric shm, 2 nodes, 1 thread each", "processors, Linux"};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        run(&outcome, "grep -c '%s' %s", named[i], svg);
        check(outcome.status == 0, "the plot does not name \"%s\"", named[i]);
    }
    /* 26 groups make three pictures. */
    memcpy(svg + strlen(svg) - 4, ".png", 4);
    run(&outcome, "%s bench limits read --seconds 0.05 --json --plot %s", remo, svg);
    check(outcome.status == 0, "status %d: %s", outcome.status, outcome.errors);
    run(&outcome, "f=%s; head -qc 4 $f ${f%%.png}-3.png | grep -c PNG; test ! -e ${f%%.png}-4.png; echo $?",
        svg);
    check(strcmp(outcome.output, "1\n0\n") == 0, "not three PNG files: %s%s", outcome.output, outcome.errors);
    run(&outcome, "f=%s; rm -f $f ${f%%.png}.svg ${f%%.png}-[23].png", svg);
    run(&outcome, "PATH=/nowhere %s bench read --seconds 0.05 --json --plot %s", remo, svg);
    check(outcome.status == 1, "a plot without gnuplot ended with %d", outcome.status);
    check(access(svg, F_OK) != 0, "an empty plot is left behind: %s", outcome.errors);
    run(&outcome, "%s bench read --seconds 0.05 --json --plot /nowhere/plot.svg", remo);
    check(outcome.status == 1, "a plot that cannot be written ended with %d", outcome.status);
    check(strstr(outcome.errors, "/nowhere/plot.svg"), "said %s", outcome.errors);
    return 0;
}

/* ---- the peers ---- */

/* A server that starts, and fails. */
static void test_peer_fails(const char *remo) {
    struct outcome outcome;
    char folder[] = "/tmp/remo-test-bench-XXXXXX";
    check(mkdtemp(folder), "no folder");
    run(&outcome, "cd %s && printf '#!/bin/sh\\nexit 1\\n' >memcached && chmod +x memcached", folder);
    check(outcome.status == 0, "%s", outcome.errors);
    run(&outcome,
        "PATH=%s:$PATH %s bench kv --peers --keys 1000 --reads 50 --window 3 --zipf 0 --seconds 0.01 --json",
        folder, remo);
    check(outcome.status == 1, "a peer that fails ended with %d: %s", outcome.status, outcome.errors);
    check(strstr(outcome.output, "\"error\"") && strstr(outcome.output, "p50_ns"), "%s", outcome.output);
    run(&outcome, "rm -r %s", folder);
}

/* A peer with calls is measured on the points that it has, or skipped. Return how many are skipped. */
static unsigned test_call_peers(const char *remo) {
    static const char *const peers[] = {"ucx", "nng"};
    struct outcome outcome;
    unsigned measured[2] = {0}, skipped[2] = {0};
    run(&outcome, "%s bench rpc --peers --bytes 48 --seconds 0.01 --json", remo);
    check(outcome.status == 0, "status %d: %s", outcome.status, outcome.errors);
    for (char *line = strtok(outcome.output, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const char *peer = json_string_value(json_object_get(object, "peer"));
        check(object && !json_object_get(object, "error"), "%s", line);
        for (int p = 0; peer && p < 2; p++) {
            bool is_this = strcmp(peer, peers[p]) == 0;
            measured[p] += is_this && has_number(object, "p50_ns")
                           && json_integer_value(json_object_get(object, "bytes")) == 48;
            skipped[p] += is_this && json_is_string(json_object_get(object, "skipped"));
        }
        json_decref(object);
    }
    for (int p = 0; p < 2; p++)
        check(measured[p] == (skipped[p] ? 0 : 2), "%s: %u points, %u skipped", peers[p], measured[p],
              skipped[p]);
    return (skipped[0] > 0) + (skipped[1] > 0);
}

#define STORES 4   /* peers with transactions */
#define VARIANTS 3 /* of Remo: one-two-sided, calls only, early locks */

/* Each peer with transactions does the same work with as many processes and subscribers, or is skipped.
 * Return how many are skipped. */
static unsigned test_transaction_peers(const char *remo, const char *bench) {
    static const char *const stores[STORES] = {"redis", "lmdb", "sqlite", "postgresql"};
    struct outcome outcome;
    unsigned own = 0, measured[STORES] = {0}, skipped[STORES] = {0}, all_skipped = 0;
    run(&outcome, "%s bench %s --peers --keys 1000 --window 1 --seconds 0.05 --json", remo, bench);
    check(outcome.status == 0, "status %d: %s", outcome.status, outcome.errors);
    for (char *line = strtok(outcome.output, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const char *peer = json_string_value(json_object_get(object, "peer"));
        bool has_figure = has_number(object, "ops_per_s")
                          && json_integer_value(json_object_get(object, "keys")) == 1000
                          && json_integer_value(json_object_get(object, "active")) == 2;
        unsigned store = 0;
        check(object && !json_object_get(object, "error"), "%s", line);
        while (peer && store < STORES && strcmp(peer, stores[store]) != 0)
            store++;
        check(store < STORES, "not a peer with transactions: %s", line);
        own += !peer && has_figure;
        if (peer && store < STORES) {
            measured[store] += has_figure;
            skipped[store] += json_is_string(json_object_get(object, "skipped"));
        }
        json_decref(object);
    }
    check(own == VARIANTS, "%s: %u figures of Remo", bench, own);
    for (unsigned i = 0; i < STORES; i++) {
        check(measured[i] + skipped[i] == 1, "%s: %u figures of %s, %u skipped", bench, measured[i],
              stores[i], skipped[i]);
        all_skipped += skipped[i];
    }
    return all_skipped;
}

#define MAPS 3 /* peers with an ordered map */

/* Each peer with an ordered map measures `peer_counts` points, or states that it is skipped. */
static void test_map_peers(const char *remo, const char *bench, unsigned own_count,
                           const unsigned peer_counts[MAPS]) {
    static const char *const maps[MAPS] = {"lmdb", "redis", "rocksdb"};
    struct outcome outcome;
    unsigned own = 0, measured[MAPS] = {0}, skipped[MAPS] = {0};
    run(&outcome, "%s bench %s --peers --keys 1000 --window 100 --zipf 0 --seconds 0.05 --json", remo, bench);
    check(outcome.status == 0, "status %d: %s", outcome.status, outcome.errors);
    for (char *line = strtok(outcome.output, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const char *peer = json_string_value(json_object_get(object, "peer"));
        bool has_figure = has_number(object, "ops_per_s")
                          && json_integer_value(json_object_get(object, "keys")) == 1000
                          && json_string_value(json_object_get(object, "variant"));
        unsigned map = 0;
        check(object && !json_object_get(object, "error"), "%s", line);
        while (peer && map < MAPS && strcmp(peer, maps[map]) != 0)
            map++;
        check(map < MAPS, "not a peer with an ordered map: %s", line);
        own += !peer && has_figure;
        if (peer && map < MAPS) {
            measured[map] += has_figure;
            skipped[map] += json_is_string(json_object_get(object, "skipped"));
        }
        json_decref(object);
    }
    check(own == own_count, "%s: %u figures of Remo", bench, own);
    for (unsigned i = 0; i < MAPS; i++)
        check(measured[i] == (skipped[i] ? 0 : peer_counts[i]), "%s: %u figures of %s, %u skipped", bench,
              measured[i], maps[i], skipped[i]);
}

/* A server is measured over each transport, and the line names the transport. */
static int test_peers(const char *remo) {
    static const char *const peers[] = {"redis", "memcached"}, *const transports[] = {"unix", "tcp"};
    struct outcome outcome;
    unsigned measured[2][2] = {{0}}, skipped = 0, skipped_programs;
    test_peer_fails(remo);
    skipped_programs = test_call_peers(remo) + test_transaction_peers(remo, "tatp");
    (void)test_transaction_peers(remo, "smallbank");
    test_map_peers(remo, "tree", 8, (const unsigned[]){3, 5, 3});
    test_map_peers(remo, "scan", 2, (const unsigned[]){2, 2, 2});
    test_map_peers(remo, "ycsb", 6, (const unsigned[]){6, 6, 6});
    run(&outcome, "%s bench kv --peers --keys 1000 --reads 50 --window 3 --zipf 0 --seconds 0.001 --json",
        remo);
    check(outcome.status == 0, "status %d: %s", outcome.status, outcome.errors);
    for (char *line = strtok(outcome.output, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const char *peer = json_string_value(json_object_get(object, "peer"));
        const char *transport = json_string_value(json_object_get(object, "transport"));
        check(object && !json_object_get(object, "error"), "%s", line);
        check(!peer || transport, "no transport in %s", line);
        skipped += json_is_string(json_object_get(object, "skipped"));
        for (int p = 0; peer && has_number(object, "p50_ns") && p < 2; p++)
            for (int t = 0; transport && t < 2; t++)
                measured[p][t] += strcmp(peer, peers[p]) == 0 && strcmp(transport, transports[t]) == 0;
        json_decref(object);
    }
    for (int p = 0; p < 2; p++)
        check(measured[p][0] == measured[p][1] && measured[p][0] <= 1,
              "%s: %u over a Unix socket, %u over TCP", peers[p], measured[p][0], measured[p][1]);
    check(skipped + measured[0][0] + measured[0][1] + measured[1][0] + measured[1][1] == 4, "%u skipped",
          skipped);
    if (skipped < 4 || skipped_programs < 2 + STORES)
        return 0;
    printf("none of the packages of peers is installed\n");
    return 77;
}

/* ---- the simulated network: its clock does not depend on the machine, so times are checked ---- */

static double simulated_ns(const char *remo, const char *arguments) {
    struct outcome outcome;
    double ns = -1;
    run(&outcome, "%s bench --fabric sim --json %s", remo, arguments);
    check(outcome.status == 0 && outcome.errors[0] == '\0', "%s ended with %d: %s", arguments, outcome.status,
          outcome.errors);
    for (char *line = strtok(outcome.output, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        if (has_number(object, "p50_ns"))
            ns = json_number_value(json_object_get(object, "p50_ns"));
        json_decref(object);
    }
    return ns;
}

static void test_simulated(const char *remo) {
    static struct outcome outcome, again;
    unsigned results = 0, models = 0;
    run(&outcome, "%s bench --fabric sim --nodes 2..4 --json", remo);
    run(&again, "%s bench --fabric sim --nodes 2..4 --json", remo);
    check(outcome.status == 0 && outcome.errors[0] == '\0', "ended with %d: %s", outcome.status,
          outcome.errors);
    check(strcmp(outcome.output, again.output) == 0, "two runs differ: %s%s", outcome.output, again.output);
    for (char *line = strtok(outcome.output, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        models += json_array_size(json_object_get(object, "model")) > 10;
        results += has_number(object, "p50_ns");
        json_decref(object);
    }
    /* 3 of kv, 1 of barrier, 2 of lock; twice. */
    check(results == 12 && models == 1, "%u results, %u models", results, models);
    double read_ns = simulated_ns(remo, "read --nodes 2 --bytes 128");
    check(read_ns > 1700 && read_ns < 1950, "an idle read takes %.0f ns, outside the range of the model",
          read_ns);
    double call_ns = simulated_ns(remo, "rpc --nodes 2 --bytes 32 --window 1");
    check(call_ns > read_ns && call_ns < 2 * read_ns, "a call takes %.0f ns, a read %.0f ns", call_ns,
          read_ns);
    double bits_ns = simulated_ns(remo, "rpc --nodes 16 --bytes 32 --window 1");
    check(bits_ns > call_ns && bits_ns < 3 * call_ns, "a call takes %.0f ns among 16 nodes, %.0f among 2",
          bits_ns, call_ns);
    double cached = simulated_ns(remo, "barrier --nodes 8"),
           uncached = simulated_ns(remo, "barrier --nodes 8 --model nic_cache_bytes=375");
    check(uncached > cached + 300, "a card with one cached connection: %.0f ns, otherwise %.0f ns", uncached,
          cached);
    double far = simulated_ns(remo, "read --nodes 2 --bytes 128 --model link_latency_ns=1385");
    check(far > read_ns + 1990 && far < read_ns + 2010, "1 us more each way: %.0f ns, else %.0f ns", far,
          read_ns);
    double thin = simulated_ns(remo, "read --nodes 2 --bytes 4096 --model link_gbit_per_s=10");
    check(thin > simulated_ns(remo, "read --nodes 2 --bytes 4096") + 2000,
          "a tenth of the bandwidth: %.0f ns", thin);
    double many = simulated_ns(remo, "read --nodes 128 --bytes 128");
    check(many > 1700 && many < 1950, "an idle read of one of 128 nodes takes %.0f ns", many);
    run(&outcome, "%s bench barrier --fabric sim --nodes 2", remo);
    check(strstr(outcome.output, "link_latency_ns") && strstr(outcome.output, "Storm"),
          "no assumptions in %s", outcome.output);
    refuse(remo, "read --nodes 2..4", "--nodes A..B and --model are for --fabric sim");
    refuse(remo, "barrier --fabric sim --peers", "--peers measures this machine");
    refuse(remo, "limits --fabric sim", "'limits' measures this machine");
    refuse(remo, "read --fabric sim --nodes 4..2", "'2' is not a number from 4 to 128");
    run(&outcome, "%s bench read --fabric sim --model warp=9", remo);
    check(outcome.status == 1 && strstr(outcome.errors, "warp=9"), "status %d: %s", outcome.status,
          outcome.errors);
}

/* The model of the network card. */
static void test_simulated_card(const char *remo) {
    /* Two nodes that both operate have two connections, one for the operations of each. */
    double two = simulated_ns(remo, "read --nodes 2 --active 2 --model nic_cache_bytes=750"),
           one = simulated_ns(remo, "read --nodes 2 --active 2 --model nic_cache_bytes=375");
    check(one > two + 300, "a card with one cached connection: %.0f ns, with two %.0f ns", one, two);
    /* A call has two immediates. */
    double call = simulated_ns(remo, "rpc --nodes 2 --bytes 32 --variant ''"),
           slow = simulated_ns(remo, "rpc --nodes 2 --bytes 32 --variant '' --model nic_imm_ns=1010");
    check(slow > call + 1990 && slow < call + 2010, "1 us more for an immediate: %.0f ns, else %.0f ns", slow,
          call);
    /* A point has new threads. They take the places of those that have ended. */
    double many = simulated_ns(remo, "lookup --nodes 2 --threads 20 --keys 200");
    check(many > 0, "80 threads in turn: %.0f ns", many);
}

static int test_curves(const char *remo) {
    struct outcome outcome;
    char svg[] = "remo-test-plot-XXXXXX.svg";
    run(&outcome, "gnuplot --version");
    if (outcome.status != 0) {
        printf("gnuplot is not installed\n");
        return 77;
    }
    int fd = mkstemps(svg, 4);
    if (fd >= 0)
        close(fd);
    run(&outcome,
        "%s bench barrier --fabric sim --nodes 2..8 --json --plot %s && grep -c 'nic_cache_bytes = ' %s",
        remo, svg, svg);
    check(outcome.status == 0, "status %d: %s", outcome.status, outcome.errors);
    unlink(svg);
    return 0;
}

static void test_doctor(const char *remo) {
    struct outcome outcome;
    unsigned lines = 0;
    run(&outcome, "%s doctor", remo);
    check(outcome.status == 0, "doctor ended with %d: %s", outcome.status, outcome.output);
    check(strstr(outcome.output, "fabric shm") && strstr(outcome.output, "Remo works here"), "%s",
          outcome.output);
    run(&outcome, "COLUMNS=60 %s doctor | grep -vcE '^(ok|note|change|bad) |^Remo |^$'", remo);
    check(strcmp(outcome.output, "0\n") == 0, "%s lines of a pipe are parts of a line",
          strtok(outcome.output, "\n"));
    run(&outcome, "%s doctor --json", remo);
    for (char *line = strtok(outcome.output, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        json_t *object = json_loads(line, 0, NULL);
        check(json_is_string(json_object_get(object, "check"))
                  && json_is_string(json_object_get(object, "state"))
                  && json_is_string(json_object_get(object, "finding")),
              "%s", line);
        json_decref(object);
    }
    check(lines > 10, "only %u findings", lines);
    run(&outcome, "REMO_KEY_FILE=/nowhere/key %s doctor", remo);
    check(outcome.status == 1 && strstr(outcome.output, "/nowhere/key"),
          "a key file that is not there: status %d", outcome.status);
    run(&outcome, "%s doctor now", remo);
    check(outcome.status == 2, "an argument too many ended with %d", outcome.status);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 3) {
        fprintf(stderr, "usage: %s REMO FABRIC|plot|peers|sim|curves|doctor\n", argv[0]);
        return 2;
    }
    int skipped = 0;
    if (strcmp(argv[2], "doctor") == 0) {
        test_doctor(argv[1]);
    } else if (strcmp(argv[2], "plot") == 0) {
        skipped = test_plot(argv[1]);
    } else if (strcmp(argv[2], "peers") == 0) {
        skipped = test_peers(argv[1]);
    } else if (strcmp(argv[2], "sim") == 0) {
        test_simulated(argv[1]);
        test_simulated_card(argv[1]);
    } else if (strcmp(argv[2], "curves") == 0) {
        skipped = test_curves(argv[1]);
    } else {
        test_each(argv[1], argv[2]);
        test_options(argv[1], argv[2]);
        test_variant(argv[1], argv[2]);
        test_calls(argv[1], argv[2]);
        if (strcmp(argv[2], "shm") == 0)
            test_width(argv[1]);
        test_refusals(argv[1]);
    }
    return failures ? 1 : skipped;
}
