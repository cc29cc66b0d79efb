/* cases_processes.c - nodes in separate processes, which share only network memory.
 * One case kills a process; operations on it must then fail and all others must complete. */
#include "suite.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

/* Each writes to each, adds to a counter of each, and sends each an immediate. */
static void exchange_body(struct suite_process *process) {
    struct suite_node *node = &process->node;
    struct remo__endpoint *endpoint = suite_endpoint(node);
    enum { BYTES = 5000 };
    for (uint32_t peer = 0; peer < process->size; peer++) {
        suite_fill(suite_buffer(node, 0), BYTES, process->rank * 100 + peer);
        suite_write(node, endpoint, peer, 8192 * (process->rank + 1), suite_buffer(node, 0), BYTES);
        for (uint32_t i = 0; i < 500; i++)
            suite_fetch_add(node, endpoint, peer, 0, process->rank + 1);
        struct remo__op op = suite_op(node, REMO__OP_WRITE, peer, 0, NULL, 0);
        op.flags = REMO__OP_IMM;
        op.imm = 1000 + process->rank;
        CHECK_EQ(suite_run(node, endpoint, op), 0);
        suite_flush(node, endpoint, peer);
    }
    suite_process_barrier(process);
    CHECK_EQ(suite_fetch_add(node, endpoint, process->rank, 0, 0),
             500 * process->size * (process->size + 1) / 2);
    uint32_t received = 0;
    uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
    while (received < process->size) {
        struct remo__imm imm;
        CHECK(remo__now_ns() < limit);
        if (node->suite->ops->imm_poll(node->fabric, &imm, 1) == 0) {
            node->suite->ops->imm_wait(node->fabric, 10 * REMO__NS_PER_MS);
            continue;
        }
        CHECK_EQ(imm.value, 1000 + imm.peer);
        received++;
    }
    for (uint32_t peer = 0; peer < process->size; peer++)
        CHECK(suite_filled(suite_memory(node, 8192 * (peer + 1)), BYTES, peer * 100 + process->rank));
    node->suite->ops->endpoint_close(endpoint);
}

static void processes_exchange(const struct suite *suite) {
    suite_processes(suite, 4, SUITE_NO_VICTIM, exchange_body);
}

static _Atomic bool *computed_enough; /* shared by all processes */

/* Node 1 computes without calling the library until node 0 has finished. */
static void computing_body(struct suite_process *process) {
    struct suite_node *node = &process->node;
    if (process->rank == 1) {
        volatile uint64_t sum = 0;
        for (uint64_t i = 0; !atomic_load(computed_enough); i++)
            sum = sum * 31 + i;
        suite_process_barrier(process);
        return;
    }
    struct remo__endpoint *endpoint = suite_endpoint(node);
    for (uint32_t i = 0; i < 50; i++) {
        suite_fill(suite_buffer(node, 0), 1000, i);
        suite_write(node, endpoint, 1, 4096, suite_buffer(node, 0), 1000);
        suite_read(node, endpoint, 1, 4096, suite_buffer(node, 4096), 1000);
        CHECK(suite_filled(suite_buffer(node, 4096), 1000, i));
        CHECK_EQ(suite_fetch_add(node, endpoint, 1, 0, 1), i);
        CHECK_EQ(suite_compare_swap(node, endpoint, 1, 8, i, i + 1), i);
    }
    atomic_store(computed_enough, true);
    suite_process_barrier(process);
    node->suite->ops->endpoint_close(endpoint);
}

static void target_computes(const struct suite *suite) {
    computed_enough =
        mmap(NULL, sizeof *computed_enough, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(computed_enough != MAP_FAILED);
    suite_processes(suite, 2, SUITE_NO_VICTIM, computing_body);
    munmap(computed_enough, sizeof *computed_enough);
}

static uint64_t killed_at; /* after so many operations */

/* Node 2 is killed while all nodes work. After the notification its peers end their operations on node 2, and
 * continue. */
static void killed_body(struct suite_process *process) {
    struct suite_node *node = &process->node;
    struct remo__endpoint *endpoint = suite_endpoint(node);
    char *buffer = suite_buffer(node, 0);
    suite_process_barrier(process);
    for (uint64_t i = 0;; i++) {
        struct remo__op op =
            suite_op(node, REMO__OP_WRITE, (uint32_t)(i % 3), 65536, buffer, 1 + i * 97 % 30000);
        op.flags = i % 4 == 0 ? REMO__OP_IMM : 0;
        int rc = node->suite->ops->post(endpoint, &op, 1);
        CHECK(rc == 1 || rc == -EAGAIN || rc == -EHOSTDOWN);
        struct remo__completion done[8];
        node->suite->ops->poll(endpoint, done, REMO__ARRAY_COUNT(done));
        struct remo__imm imms[8];
        node->suite->ops->imm_poll(node->fabric, imms, REMO__ARRAY_COUNT(imms));
        if (process->rank == 2 && i == killed_at)
            kill(getpid(), SIGKILL);
        if (process->rank != 2 && i == 10000)
            break;
    }
    suite_process_barrier(process); /* of the two remaining nodes */
    uint64_t start = remo__now_ns();
    node->suite->ops->disconnect(node->fabric, 2);
    node->suite->ops->endpoint_close(endpoint); /* with operations in flight */
    endpoint = suite_endpoint(node);
    CHECK_EQ(suite_run(node, endpoint, suite_op(node, REMO__OP_READ, 2, 0, buffer, 8)), -EHOSTDOWN);
    CHECK(in_time(remo__now_ns() - start, REMO__NS_PER_S));
    for (uint64_t i = 0; i < 100; i++)
        CHECK_EQ(suite_fetch_add(node, endpoint, 1 - process->rank, 0, 1), i);
    node->suite->ops->endpoint_close(endpoint);
}

static void peer_killed(const struct suite *suite) {
    for (killed_at = 100; killed_at < 10000; killed_at *= 3)
        suite_processes(suite, 3, 2, killed_body);
}

/* Processes sleep and wake each other in turn. */
static void turns_body(struct suite_process *process) {
    struct suite_node *node = &process->node;
    struct remo__endpoint *endpoint = suite_endpoint(node);
    struct remo__doorbell *bell = node->fabric->doorbell;
    uint32_t stalls = 0;
    suite_service_start(node);
    for (uint64_t turn = 1; turn <= 100; turn++) {
        if (turn % 2 == process->rank) {
            uint64_t *flag = (uint64_t *)suite_buffer(node, 0);
            *flag = turn;
            struct remo__op op = suite_op(node, REMO__OP_WRITE, 1 - process->rank, 0, flag, 8);
            op.flags = REMO__OP_NOTIFY;
            CHECK_EQ(suite_run(node, endpoint, op), 0);
            continue;
        }
        uint64_t start = remo__now_ns();
        remo__doorbell_add_sleeper(bell);
        for (;;) {
            uint32_t seq = atomic_load(&bell->seq);
            if (suite_load(suite_memory(node, 0)) >= turn)
                break;
            CHECK(remo__now_ns() - start < SUITE_LIMIT_NS);
            remo__doorbell_sleep(bell, seq, REMO_FOREVER);
        }
        atomic_fetch_sub(&bell->sleepers, 1);
        CHECK(suite_woken(&stalls, start));
    }
    suite_process_barrier(process);
    suite_service_stop(node);
    node->suite->ops->endpoint_close(endpoint);
}

static void processes_take_turns(const struct suite *suite) {
    suite_processes(suite, 2, SUITE_NO_VICTIM, turns_body);
}

const struct suite_case suite_cases_processes[] = {
    {"processes_exchange", processes_exchange},
    {"target_computes", target_computes},
    {"peer_killed", peer_killed},
    {"processes_take_turns", processes_take_turns},
    {NULL, NULL},
};
