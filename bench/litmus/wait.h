/* wait.h - the waits of the litmus programs on a real network, which end when the run is aborted. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* In memory that all processes of the run share. */
struct litmus_stop {
    _Atomic bool requested; /* the run was aborted: all actors end */
    _Atomic bool failed;
    char error[400];
};
extern struct litmus_stop *litmus_stop; /* set before the first wait */

/* Pause in a loop of waiting, ever longer with the number of its turn. */
void litmus_pause(uint32_t turn);
