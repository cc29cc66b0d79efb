/* doctor.h - the findings of `remo doctor`: one a line, each with its remedy. */
#pragma once

#include <remo/log.h>
#include <stdbool.h>

enum doctor_state {
    DOCTOR_OK,     /* no change needed */
    DOCTOR_NOTE,   /* information; no action needed */
    DOCTOR_CHANGE, /* Remo works, and works better with the remedy */
    DOCTOR_BAD     /* Remo does not work */
};

struct doctor {
    bool json, verbs;
    unsigned bad, changes;
};

/* Print a finding, and count it. `remedy` is the action to take; "": none. */
void doctor_say(struct doctor *doctor, enum doctor_state state, const char *subject, const char *remedy,
                const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Open a node without peers on the fabric, and move a word. Returns 0 or the error. */
int doctor_probe(const char *fabric, remo_log_fn log, void *log_ctx);

void doctor_check_machine(struct doctor *doctor); /* machine.c: processors, memory, limits */
void doctor_check_verbs(struct doctor *doctor);   /* verbs.c: RDMA devices, in detail */
void doctor_check_network(struct doctor *doctor); /* network.c: fabrics, launchers, credentials */
