/* processes.h - the processes of a program that measures transactions. They share memory for their results,
 * meet at barriers, and end with process 0.
 * A function that fails prints a sentence, and ends the process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bench/peers/measure.h"
#include "bench/tx/smallbank_rows.h"
#include "bench/tx/tatp_rows.h"

#define PROCESSES_MAX 64u /* of --active */

/* The results of the transactions of a process, or of all. */
union transaction_counts {
    struct tatp_counts tatp;
    struct smallbank_counts smallbank;
};

struct processes_shared;

/* The processes, as seen by one of them. */
struct processes {
    struct processes_shared *shared;
    unsigned count, index, barriers;
};

/* Set `count`, and share memory. Process 0 calls this before it starts the others. */
void processes_prepare(struct processes *processes, const struct measure_options *options);
/* Start the other processes, and pin each one. Returns in every process. */
void processes_start(struct processes *processes, const struct measure_options *options);
/* Wait until every process has arrived. */
void processes_barrier(struct processes *processes);
/* Share the results of this process, of a point that has ended. */
void processes_share(struct processes *processes, const struct measure_result *result,
                     const union transaction_counts *counts);
/* Merge the figures of all processes. Called after a barrier. */
void processes_merge(const struct processes *processes, struct measure_result *ret_merged);
/* Return the counts of a process. Called after a barrier. */
const union transaction_counts *processes_counts(const struct processes *processes, unsigned process);

__attribute__((noreturn, format(printf, 1, 2))) void processes_fail(const char *format, ...);
/* End the process unless the tmpfs that has this folder has so many bytes left. A sparse file in a full tmpfs
 * would end the processes by a signal. `what` is to be made there: "the file of LMDB". */
void processes_check_room(const char *folder, uint64_t bytes, const char *what);
