/* real.c - runs the litmus programs in three processes, one node each.
 * The processes also share a page of memory, where they meet before and after each run, signal each
 * other and count outcomes. Each run starts with all operations placed and the memory zero, after a
 * random delay of each actor, so that the timing varies. */
#include "bench/litmus/real.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "bench/litmus/litmus.h"
#include "bench/litmus/wait.h"
#include "fabric/access.h"
#include "node/node.h"

#define ACTORS 4u        /* one per node, and thread 1 of node 0 */
#define DELAY_TURNS 400u /* maximum before a run: about 2 us */
#define OPEN_NS (60 * REMO__NS_PER_S)
#define GRACE_NS (60 * REMO__NS_PER_S) /* a report that is later than this is lost */

struct shared {
    _Atomic uint32_t arrived_count, meeting;
    struct litmus_stop stop;
    _Atomic bool row_done;
    struct litmus litmus; /* each process uses only the pointers that it wrote */
    struct litmus_count rows[LITMUS_ROWS_MAX];
    struct remo__fabric_caps caps;
};

static struct shared *shared;

struct actor {
    uint32_t node, thread;
    uint64_t row_ns;
    struct remo__random random;
};

/* ---- runs ---- */

static void meet(void) {
    uint32_t meeting = shared->meeting;
    if (atomic_fetch_add(&shared->arrived_count, 1) == ACTORS - 1) {
        shared->arrived_count = 0;
        shared->meeting++;
    }
    for (uint32_t turn = 0; shared->meeting == meeting && !litmus_stop->requested; turn++)
        litmus_pause(turn);
}

/* Count the last run and clear the state for the next one; called by node 1 while no operation is
 * in flight. */
static void begin_run(const struct actor *actor, uint32_t row, bool counts, uint64_t until_ns) {
    struct litmus *litmus = &shared->litmus;
    struct litmus_count *count = &shared->rows[row];
    if (counts) {
        count->runs++;
        count->seen += litmus->odd != 0;
    }
    memset(remo_region_local(litmus->regions[actor->node]), 0, LITMUS_BYTES);
    remo__mapped_fence();
    memset(litmus->seen, 0, sizeof litmus->seen);
    litmus->flag = false;
    litmus->arrived = 0;
    litmus->odd = 0;
    shared->row_done = remo__now_ns() >= until_ns && count->runs > 0;
}

static void run_row(struct actor *actor, uint32_t row) {
    const struct litmus_row *test = &litmus_rows[row];
    uint64_t until_ns = remo__now_ns() + actor->row_ns;
    for (bool counts = false; !litmus_stop->requested; counts = true) {
        meet();
        if (actor->node == 1)
            begin_run(actor, row, counts, until_ns);
        meet();
        if (shared->row_done)
            return;
        for (volatile uint64_t turns = remo__random_below(&actor->random, DELAY_TURNS); turns > 0;)
            turns--;
        if (!litmus_stop->requested && (actor->thread == 0 || test->threads))
            test->body(&shared->litmus, actor->node, actor->thread);
        int rc = remo_fence(shared->litmus.nodes[actor->node], REMO_FENCE_THREAD, 0);
        if (rc != 0)
            litmus_fail(test->program, rc);
    }
}

static void *run_actor(void *ctx) {
    struct actor *actor = ctx;
    remo__random_seed(&actor->random, 1 + actor->node * 2 + actor->thread);
    for (uint32_t row = 0; row < litmus_rows_count && !litmus_stop->requested; row++)
        run_row(actor, row);
    return NULL;
}

/* ---- a node ---- */

static int open_node(const char *fabric, const char *folder, uint32_t rank) {
    static char texts[LITMUS_NODES][128];
    const char *addresses[LITMUS_NODES];
    struct litmus *litmus = &shared->litmus;
    for (uint32_t i = 0; i < LITMUS_NODES; i++) {
        snprintf(texts[i], sizeof texts[i], "unix:%s/%u", folder, i);
        addresses[i] = texts[i];
    }
    const struct remo_config config = {
        .fabric = fabric, .rank = rank, .size = LITMUS_NODES, .addresses = addresses, .job = "litmus"};
    int rc = remo_node_open(&config, &litmus->nodes[rank]);
    rc = rc ? rc
            : remo_region_open(remo_node_root(litmus->nodes[rank]), "litmus", LITMUS_BYTES, NULL,
                               &litmus->regions[rank]);
    return rc ? rc : remo_channel_wait(remo_region_channel(litmus->regions[rank]), OPEN_NS);
}

static int run_node(const char *fabric, const char *folder, double seconds, uint32_t rank) {
    struct actor first = {.node = rank, .row_ns = (uint64_t)(seconds * 1e9)},
                 second = {.node = rank, .thread = 1, .row_ns = first.row_ns};
    pthread_t thread;
    int rc = open_node(fabric, folder, rank);
    if (rc == 0 && rank == 0) {
        shared->caps = shared->litmus.nodes[0]->fabric->caps;
        rc = -pthread_create(&thread, NULL, run_actor, &second);
    }
    if (rc != 0) {
        litmus_fail("cannot start a node", rc);
        return 1;
    }
    (void)run_actor(&first);
    if (rank == 0)
        pthread_join(thread, NULL);
    remo_region_close(shared->litmus.regions[rank]);
    remo_node_close(shared->litmus.nodes[rank]);
    return 0;
}

/* ---- the parent ---- */

/* Wait for all nodes, and kill them at the deadline. */
static void wait_for(const pid_t pids[LITMUS_NODES], uint64_t deadline_ns) {
    uint32_t left = LITMUS_NODES;
    bool ended[LITMUS_NODES] = {false}, killed = false;
    while (left > 0) {
        for (uint32_t i = 0; i < LITMUS_NODES; i++) {
            int status = 0;
            if (ended[i] || (pids[i] > 0 && waitpid(pids[i], &status, WNOHANG) != pids[i]))
                continue;
            ended[i] = true;
            left--;
            if (pids[i] < 0 || status != 0)
                litmus_stop->requested = true;
            if (status != 0 && !atomic_exchange(&litmus_stop->failed, true))
                snprintf(litmus_stop->error, sizeof litmus_stop->error, "node %u ended with status 0x%x", i,
                         (unsigned)status);
        }
        bool late = remo__now_ns() > deadline_ns;
        if (late && !killed && !atomic_exchange(&litmus_stop->failed, true))
            snprintf(litmus_stop->error, sizeof litmus_stop->error, "the nodes timed out and were killed");
        for (uint32_t i = 0; late && !killed && i < LITMUS_NODES; i++)
            if (!ended[i])
                kill(pids[i], SIGKILL);
        killed |= late;
        usleep(2000);
    }
}

static void start_nodes(const char *fabric, const char *folder, double seconds,
                        pid_t ret_pids[LITMUS_NODES]) {
    for (uint32_t i = 0; i < LITMUS_NODES; i++) {
        ret_pids[i] = fork();
        if (ret_pids[i] == 0)
            _exit(run_node(fabric, folder, seconds, i));
        if (ret_pids[i] < 0)
            litmus_fail("cannot start a node", -errno);
    }
}

/* On a mapped fabric the CPU itself executes operations in the order of their posts. */
bool litmus_excludes(const struct remo__fabric_caps *caps, uint32_t row) {
    const bool excluded[LITMUS_RULES] = {[LITMUS_NEVER] = true,
                                         [LITMUS_FLIGHT] = caps->mapped,
                                         [LITMUS_PUT_PUT] = caps->writes_ordered,
                                         [LITMUS_PUT_GET] = caps->read_flushes || caps->mapped,
                                         [LITMUS_PUT_GET_OTHER] = caps->read_flushes,
                                         [LITMUS_PUT_RMW] = caps->writes_ordered,
                                         [LITMUS_GET_PUT] = caps->mapped,
                                         [LITMUS_GET_GET] = caps->reads_ordered,
                                         [LITMUS_RMW_PUT] = caps->mapped,
                                         [LITMUS_RMW_GET] = caps->mapped,
                                         [LITMUS_PLACED] = caps->completion_placed,
                                         [LITMUS_COMPLETIONS] = caps->mapped,
                                         [LITMUS_COHERENT] = caps->atomics_coherent,
                                         [LITMUS_CACHED] = caps->coherent};
    return excluded[litmus_rows[row].rule];
}

int litmus_run(const char *fabric, double seconds, struct litmus_report *ret_report) {
    const char *temporary = getenv("TMPDIR");
    char folder[96], path[112];
    pid_t pids[LITMUS_NODES];
    snprintf(folder, sizeof folder, "%s/remo-litmus-XXXXXX", temporary ? temporary : "/tmp");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !mkdtemp(folder))
        return remo__fail(-errno, "cannot make a folder or shared memory for the nodes: %s; check TMPDIR",
                          strerror(errno));
    litmus_stop = &shared->stop;
    start_nodes(fabric, folder, seconds, pids);
    wait_for(pids, remo__now_ns() + (uint64_t)(litmus_rows_count * seconds * 1e9) + GRACE_NS);
    for (uint32_t i = 0; i < LITMUS_NODES; i++) {
        snprintf(path, sizeof path, "%s/%u", folder, i);
        unlink(path);
    }
    rmdir(folder);
    int rc = litmus_stop->failed ? remo__fail(-EIO, "%s", litmus_stop->error) : 0;
    *ret_report = (struct litmus_report){.caps = shared->caps};
    snprintf(ret_report->fabric, sizeof ret_report->fabric, "%s", fabric);
    memcpy(ret_report->rows, shared->rows, sizeof ret_report->rows);
    for (uint32_t row = 0; row < litmus_rows_count; row++)
        ret_report->failures += ret_report->rows[row].seen > 0 && litmus_excludes(&ret_report->caps, row);
    munmap(shared, sizeof *shared);
    return rc;
}
