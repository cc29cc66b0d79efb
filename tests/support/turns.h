/* turns.h - for tests whose steps run one after the other: the present step, and the pause of a node's
 * process. The struct is in memory that all nodes share. */
#pragma once

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "cluster.h"
#include "pause.h"

#define TURNS_NODES_MAX 8u

struct turns {
    _Atomic uint32_t turn;
    _Atomic pid_t pids[TURNS_NODES_MAX];
};

/* Wait for the step `turn`. */
static inline int reach_turn(struct turns *turns, uint32_t turn) {
    while (atomic_load(&turns->turn) != turn)
        cluster_sleep_ms(1);
    return 0;
}

static inline void begin_turn(struct turns *turns, uint32_t turn) {
    atomic_store(&turns->turn, turn);
}

/* Record the process of this node, for pause_node. */
static inline void record_process(struct turns *turns, uint32_t rank) {
    atomic_store(&turns->pids[rank], getpid());
}

/* Stop the process of a node. */
static inline void pause_node(struct turns *turns, uint32_t rank) {
    process_pause(atomic_load(&turns->pids[rank]));
}

static inline void resume_node(struct turns *turns, uint32_t rank) {
    kill(atomic_load(&turns->pids[rank]), SIGCONT);
}
