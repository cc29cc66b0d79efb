/* stacks.c - implements stacks.h.
 * The handler of SIGSEGV and SIGBUS finds the pool of its thread in thread-local data. It calls only
 * functions that are safe in a signal handler. */
#include "memory/stacks.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/error.h"

#define SIGNAL_STACK_BYTES (64u << 10)

static _Thread_local const struct remo__stacks *pool __attribute__((tls_model("initial-exec")));

/* ---- the handler ---- */

static const int handled[] = {SIGSEGV, SIGBUS};

static struct {
    pthread_mutex_t lock;
    uint32_t pools; /* open in this process */
    bool is_installed[REMO__ARRAY_COUNT(handled)];
} handler = {.lock = PTHREAD_MUTEX_INITIALIZER};

static char *append_text(char *at, const char *text) {
    while (*text)
        *at++ = *text++;
    return at;
}

static char *append_number(char *at, size_t number) {
    char digits[24];
    uint32_t count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

static void report_overflow(size_t stack_bytes) {
    char text[256], *at = text;
    at = append_text(at, "remo: a task has overflowed its stack of ");
    at = append_number(at, stack_bytes);
    at = append_text(at,
                     " bytes; raise stack_bytes in struct remo_scheduler_options, or keep large arrays off "
                     "the stack\n");
    if (write(STDERR_FILENO, text, (size_t)(at - text)) < 0)
        return; /* nothing else can be done */
}

static void handle(int number, siginfo_t *info, void *context) {
    (void)context;
    const struct remo__stacks *stacks = pool;
    size_t offset = stacks ? (size_t)((char *)info->si_addr - stacks->base) : SIZE_MAX;
    if (stacks && info->si_code > 0 && offset < stacks->count * stacks->stride
        && offset % stacks->stride < stacks->stride - stacks->stack_bytes)
        report_overflow(stacks->stack_bytes);
    struct sigaction fallback = {.sa_handler = SIG_DFL};
    (void)sigaction(number, &fallback, NULL);
    if (info->si_code <= 0) /* sent by a process; a fault occurs again on return */
        (void)raise(number);
}

static void install(uint32_t i) {
    struct sigaction before, own = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (sigaction(handled[i], NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO)
        && before.sa_handler == SIG_DFL)
        handler.is_installed[i] = sigaction(handled[i], &own, NULL) == 0;
}

/* Restore the default, unless the program has installed a handler since. */
static void uninstall(uint32_t i) {
    struct sigaction now, fallback = {.sa_handler = SIG_DFL};
    if (handler.is_installed[i] && sigaction(handled[i], NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO)
        && now.sa_sigaction == handle)
        (void)sigaction(handled[i], &fallback, NULL);
    handler.is_installed[i] = false;
}

static void count_pools(int by) {
    pthread_mutex_lock(&handler.lock);
    for (uint32_t i = 0; i < REMO__ARRAY_COUNT(handled); i++) {
        if (by > 0 && handler.pools == 0)
            install(i);
        else if (by < 0 && handler.pools == 1)
            uninstall(i);
    }
    handler.pools += (uint32_t)by;
    pthread_mutex_unlock(&handler.lock);
}

/* Without memory for it, an overflow ends the process without a sentence. */
static void give_signal_stack(struct remo__stacks *stacks) {
    stack_t before;
    if (sigaltstack(NULL, &before) != 0 || !(before.ss_flags & SS_DISABLE))
        return;
    stacks->signal_stack = malloc(SIGNAL_STACK_BYTES);
    stack_t own = {.ss_sp = stacks->signal_stack, .ss_size = SIGNAL_STACK_BYTES};
    if (stacks->signal_stack)
        (void)sigaltstack(&own, NULL);
}

static void take_signal_stack(struct remo__stacks *stacks) {
    stack_t now, none = {.ss_flags = SS_DISABLE};
    if (!stacks->signal_stack)
        return;
    if (sigaltstack(NULL, &now) == 0 && now.ss_sp == stacks->signal_stack)
        (void)sigaltstack(&none, NULL);
    free(stacks->signal_stack);
}

/* ---- the pool ---- */

static int fail_memory(const struct remo__stacks *stacks) {
    return remo__fail(-ENOMEM,
                      "cannot reserve %u stacks of %zu bytes: %s; lower task_count_max or stack_bytes, or "
                      "raise vm.max_map_count to more than twice the number of stacks",
                      stacks->count, stacks->stack_bytes, strerror(errno));
}

int remo__stacks_open(struct remo__stacks *stacks, uint32_t count, size_t stack_bytes,
                      bool reports_overflow) {
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    *stacks = (struct remo__stacks){.count = count,
                                    .stack_bytes = remo__align_up(stack_bytes, page_bytes),
                                    .reports_overflow = reports_overflow};
    stacks->stride = stacks->stack_bytes + REMO__STACK_GUARD_BYTES;
    size_t bytes = count * stacks->stride;
    stacks->base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks->base == MAP_FAILED)
        return fail_memory(stacks);
    for (uint32_t i = 0; i < count; i++) {
        if (mprotect(remo__stacks_at(stacks, i), stacks->stack_bytes, PROT_READ | PROT_WRITE) == 0)
            continue;
        int rc = fail_memory(stacks);
        munmap(stacks->base, bytes);
        return rc;
    }
    if (reports_overflow) {
        pool = stacks;
        give_signal_stack(stacks);
        count_pools(1);
    }
    return 0;
}

void remo__stacks_close(struct remo__stacks *stacks) {
    if (stacks->reports_overflow) {
        count_pools(-1);
        take_signal_stack(stacks);
        pool = NULL;
    }
    munmap(stacks->base, stacks->count * stacks->stride);
}
