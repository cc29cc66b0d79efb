/* doctor.c - `remo doctor`: what this machine offers, and what to change. */
#include "cli/doctor.h"

#include <argp.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"

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
        printf("%-7s %-15s %s%s%s\n", state_names[state], subject, finding, remedy[0] ? ". " : "", remedy);
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
        "Says what this machine offers to Remo, a line for each thing, with the remedy where there is "
        "something to do."
        "\vThe first word of a line: ok; note: worth knowing; change: Remo works, and better with the "
        "remedy; bad: Remo "
        "cannot work like this. Exits with 1 when anything is bad, else with 0.",
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
