/* processes.c - processes that share memory for their results (processes.h). Each process writes to its own
 * elements before a barrier, and the others read them after it. */
#include "bench/peers/processes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BARRIER_POLL_NS 100000

struct processes_shared {
    _Atomic unsigned arrived; /* at barriers, so far */
    /* of each process, written by it */
    struct measure_result results[PROCESSES_MAX];
    union transaction_counts counts[PROCESSES_MAX];
};

void processes_fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

void processes_check_room(const char *folder, uint64_t bytes, const char *what) {
    struct statvfs tmpfs;
    if (statvfs(folder, &tmpfs) != 0)
        processes_fail("cannot make %s: %s: %s; mount a tmpfs there", what, folder, strerror(errno));
    if ((double)tmpfs.f_bavail * (double)tmpfs.f_frsize < (double)bytes)
        processes_fail("cannot make %s: %s has less than %llu MiB left; enlarge it, or give fewer --keys",
                       what, folder, (unsigned long long)bytes >> 20);
}

void processes_prepare(struct processes *processes, const struct measure_options *options) {
    struct processes_shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        processes_fail("no memory to share");
    *processes = (struct processes){.shared = shared, .count = options->active};
}

void processes_start(struct processes *processes, const struct measure_options *options) {
    for (unsigned i = 1; i < processes->count && processes->index == 0; i++) {
        pid_t pid = fork();
        if (pid < 0)
            processes_fail("cannot start a process: %s", strerror(errno));
        processes->index = pid == 0 ? i : 0;
    }
    measure_settle(options, (int)processes->index);
}

/* If another process has ended, it has printed the reason: process 0 detects this, and ends. All others end
 * with process 0. */
void processes_barrier(struct processes *processes) {
    unsigned all = ++processes->barriers * processes->count;
    atomic_fetch_add(&processes->shared->arrived, 1);
    while (atomic_load(&processes->shared->arrived) < all) {
        bool ended = processes->index == 0 && waitpid(-1, NULL, WNOHANG) > 0;
        if (ended && atomic_load(&processes->shared->arrived) < all)
            exit(1);
        nanosleep(&(struct timespec){.tv_nsec = BARRIER_POLL_NS}, NULL);
    }
}

void processes_share(struct processes *processes, const struct measure_result *result,
                     const union transaction_counts *counts) {
    processes->shared->results[processes->index] = *result;
    processes->shared->counts[processes->index] = *counts;
}

void processes_merge(const struct processes *processes, struct measure_result *ret_merged) {
    measure_merge(processes->shared->results, (int)processes->count, ret_merged);
}

const union transaction_counts *processes_counts(const struct processes *processes, unsigned process) {
    return &processes->shared->counts[process];
}
