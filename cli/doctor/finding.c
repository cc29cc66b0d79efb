/* finding.c - prints a finding of `remo doctor`, as text or JSON, and counts it.
 * A terminal gets wrapped lines; a pipe gets one line for each finding. */
#include <jansson.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/report/text.h"
#include "cli/doctor/doctor.h"

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
