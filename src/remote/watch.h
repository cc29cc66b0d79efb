/* watch.h - reports threads whose tasks cannot run, because the running one neither waits nor yields.
 *
 * The service thread looks at each open scheduler once per period. If a scheduler with live tasks has not
 * switched between two looks in succession, it logs a warning, once until the next switch. One look is not
 * enough: the process may have been stopped before it.
 * Cost: while a scheduler is open, the service thread wakes once per period. */
#pragma once

#include "remote/scheduler.h"

#define REMO__WATCH_PERIOD_NS (5 * REMO__NS_PER_S)

void remo__watch_init(struct remo__watch *watch);
void remo__watch_destroy(struct remo__watch *watch);
/* Watch a scheduler until remo__watch_remove. Threads: any. */
void remo__watch_add(struct remo__scheduler *scheduler);
void remo__watch_remove(struct remo__scheduler *scheduler);
/* Look at all schedulers if a look is due. Returns the time until the next one; REMO_FOREVER: none is open.
 * Threads: the service thread. */
uint64_t remo__watch_look(struct remo_node *node);
