/* wait.c - the functions that the litmus programs call (litmus.h), on a real network.
 * A wait spins, then yields the processor, then sleeps. */
#include "bench/litmus/wait.h"

#include <remo/error.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "bench/litmus/litmus.h"

#define SPINS 64u   /* then yield the processor */
#define YIELDS 256u /* then sleep, for threads of low priority */
#define SLEEP_US 20u

struct litmus_stop *litmus_stop;

void litmus_pause(uint32_t turn) {
    if (turn % SPINS != SPINS - 1)
        return;
    if (turn / SPINS < YIELDS)
        sched_yield();
    else
        usleep(SLEEP_US);
}

void litmus_signal(struct litmus *s) {
    s->flag = true;
}

void litmus_point(const char *what) {
    (void)what;
}

void litmus_until(bool (*is)(void *ctx), void *ctx, const char *what) {
    (void)what;
    for (uint32_t turn = 0; !is(ctx) && !litmus_stop->requested; turn++)
        litmus_pause(turn);
}

/* The awaited state is reached in the end. */
bool litmus_again(uint32_t look) {
    litmus_pause(look);
    return !litmus_stop->requested;
}

void litmus_fail(const char *what, int rc) {
    if (!atomic_exchange(&litmus_stop->failed, true))
        snprintf(litmus_stop->error, sizeof litmus_stop->error, "%s: %s (%s)", what, remo_last_error(),
                 remo_error_name(rc));
    litmus_stop->requested = true;
}
