/* test_ofi_endpoint.c - endpoints of fabric ofi. Reads in flight share a request if the thread polls soon
 * after it posts, and are sent at once otherwise. While a request is in flight, they share the next. Links
 * share a port: each uses few resources, and the failure of a peer ends only its link. The tests count
 * requests, descriptors and bytes. Time only decides which rounds count. */
#include <dirent.h>
#include <errno.h>
#include <remo/remo.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../support/cluster.h"
#include "../../support/pause.h"
#include "fabric/ofi/ofi.h"
#include "node/node.h"
#include "remote/op.h"
#include "remote/slots.h"

#define ROUNDS_MAX 2000u
#define QUICK_ROUNDS_MAX 1000u
#define QUICK_NS 25000u /* half the time for which reads are deferred */
#define COMPUTING_ROUNDS_MAX 1000u
#define COMPUTE_MS 5u
#define NODES 14u
#define LINK_DESCRIPTORS_MAX 2u
#define FDS_MAX 1024
#define LINK_BYTES_MAX (UINT64_C(1) << 20)

static _Atomic pid_t *pids; /* [NODES] */

static struct ofi_endpoint *endpoint_of_thread(struct remo_node *node) {
    return (struct ofi_endpoint *)remo__thread(node)->slots->endpoint;
}

static void lock_endpoint(struct ofi_endpoint *endpoint) {
    while (atomic_exchange(&endpoint->held, true)) /* the target thread may hold it */
        cluster_sleep_ms(1);
}

static void unlock_endpoint(struct ofi_endpoint *endpoint) {
    atomic_store(&endpoint->held, false);
}

/* Return the number of the next request, or of the last answered one, of a link that the target thread may
 * drive. */
static uint32_t read_number(const struct ofi_link *link, const uint32_t *number) {
    lock_endpoint(link->endpoint);
    uint32_t value = *number;
    unlock_endpoint(link->endpoint);
    return value;
}

static uint32_t next_of(const struct ofi_link *link) {
    return read_number(link, &link->next);
}

/* Start `count` reads with one ack. *ret_requests is the number of requests that were sent by then. */
static int start_reads(struct remo_region *region, struct ofi_link *link, uint32_t count,
                       struct remo_ack *ack, uint32_t *ret_requests) {
    static uint64_t words[64];
    uint32_t before = next_of(link);
    for (uint32_t i = 0; i < count; i++)
        CHECK_OK(remo_region_read(region, 1, 8 * i, &words[i], 8, ack));
    *ret_requests = next_of(link) - before;
    return 0;
}

/* `count` reads, and an immediate wait, use one request. If the machine interrupts the thread in between,
 * there are more, so one of many quick rounds suffices. A machine may be too slow for quick rounds. */
static int share_one(struct remo_region *region, struct ofi_link *link, uint32_t count) {
    uint32_t requests = 0, early = 0, quick = 0;
    for (uint32_t round = 0; round < ROUNDS_MAX && quick < QUICK_ROUNDS_MAX && requests != 1; round++) {
        struct remo_ack ack = REMO_ACK_INIT;
        uint32_t before = next_of(link);
        uint64_t began_ns = cluster_now_ns();
        if (start_reads(region, link, count, &ack, &early))
            return 1;
        quick += cluster_now_ns() - began_ns < QUICK_NS;
        CHECK_OK(remo_ack_wait(&ack, 100 * SECOND));
        requests = next_of(link) - before;
    }
    CHECK(requests == 1 || quick < QUICK_ROUNDS_MAX);
    return 0;
}

/* A thread computes before it polls: its next reads are sent when they are posted. The service thread may
 * poll in between, which has the same effect as the thread's poll, so one such call suffices. */
static int sent_at_once(struct remo_region *region, struct ofi_link *link) {
    uint32_t early = 0;
    for (uint32_t round = 0; round < COMPUTING_ROUNDS_MAX && early != 2; round++) {
        struct remo_ack ack = REMO_ACK_INIT;
        if (start_reads(region, link, 2, &ack, &early))
            return 1;
        cluster_sleep_ms(COMPUTE_MS);
        CHECK_OK(remo_ack_wait(&ack, 100 * SECOND));
    }
    CHECK_EQUAL(early, 2);
    return 0;
}

/* Collected reads are sent although their thread never polls. */
static int sent_without_polls(struct remo_region *region, struct ofi_link *link) {
    struct remo_ack ack = REMO_ACK_INIT;
    uint32_t early = 0;
    if (share_one(region, link, 4) || start_reads(region, link, 4, &ack, &early))
        return 1;
    uint64_t deadline = cluster_now_ns() + 100 * SECOND;
    while (__atomic_load_n(&ack.pending, __ATOMIC_ACQUIRE) != 0 && cluster_now_ns() < deadline)
        cluster_sleep_ms(1);
    CHECK_EQUAL(__atomic_load_n(&ack.pending, __ATOMIC_ACQUIRE), 0);
    CHECK_OK(remo_ack_wait(&ack, 100 * SECOND));
    return 0;
}

static int gather(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    uint64_t word;
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 4096, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), 100 * SECOND));
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_region_read(region, 1, 0, &word, 8, NULL)); /* connects */
        struct ofi_link *link = endpoint_of_thread(node)->links[1];
        if (share_one(region, link, 2) || share_one(region, link, 4) || share_one(region, link, 64)
            || sent_at_once(region, link) || sent_without_polls(region, link))
            return 1;
    }
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* While a request to a paused node is in flight, start reads, and then an atomic. *ret_reads and *ret_all are
 * the numbers of requests that were sent by then. */
static int start_paused(struct remo_region *region, struct ofi_link *link, struct remo_ack *ack,
                        uint32_t *ret_reads, uint32_t *ret_all) {
    uint32_t before = next_of(link), early;
    static uint64_t old;
    uint64_t deadline = cluster_now_ns() + 100 * SECOND;
    for (uint32_t i = 0; i < 4; i++) {
        if (start_reads(region, link, 4, ack, &early))
            return 1;
        do /* once, unless the service thread polls now */
            CHECK_CODE(remo_ack_test(ack), -EINPROGRESS);
        while (next_of(link) == before && cluster_now_ns() < deadline);
    }
    *ret_reads = next_of(link) - before;
    CHECK_OK(remo_region_fetch_add(region, 1, 0, 1, &old, ack));
    *ret_all = next_of(link) - before;
    return 0;
}

/* While a request is in flight, reads share the next one if the thread polls soon. An atomic does not wait.
 * If the machine interrupts the thread, there are more requests, so one such call suffices. */
static int share_next(struct remo_region *region, struct ofi_link *link) {
    uint32_t reads = 0, all = 0;
    for (uint32_t round = 0; round < COMPUTING_ROUNDS_MAX && (reads != 1 || all != 2); round++) {
        struct remo_ack ack = REMO_ACK_INIT;
        if (share_one(region, link, 2)) /* from now on reads are deferred */
            return 1;
        CHECK(process_pause(atomic_load(&pids[1])) == 0);
        int rc = start_paused(region, link, &ack, &reads, &all);
        CHECK(kill(atomic_load(&pids[1]), SIGCONT) == 0);
        CHECK_OK(rc);
        CHECK_OK(remo_ack_wait(&ack, 100 * SECOND));
    }
    CHECK_EQUAL(reads, 1);
    CHECK_EQUAL(all, 2);
    return 0;
}

static int paused_target(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    uint64_t word;
    (void)ctx;
    atomic_store(&pids[remo_node_rank(node)], getpid());
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 4096, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_region_read(region, 1, 0, &word, 8, NULL)); /* connects */
        CHECK(share_next(region, endpoint_of_thread(node)->links[1]) == 0);
    }
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- links that share a port ---- */

static uint32_t descriptor_count(void) {
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static uint64_t resident_bytes(void) {
    unsigned long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu %lu", &pages, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The first link opens the port. The other links add only their own resources. */
static int connect_all(struct remo_region *region) {
    uint64_t word;
    CHECK_OK(remo_region_read(region, 1, 0, &word, 8, NULL));
    uint32_t descriptors = descriptor_count();
    uint64_t bytes = resident_bytes();
    CHECK(descriptors > 0 && bytes > 0);
    for (uint32_t peer = 2; peer < NODES; peer++)
        CHECK_OK(remo_region_read(region, peer, 0, &word, 8, NULL));
    CHECK(descriptor_count() <= descriptors + (NODES - 2) * LINK_DESCRIPTORS_MAX);
    CHECK(resident_bytes() <= bytes + (NODES - 2) * LINK_BYTES_MAX);
    return 0;
}

static int many_links(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 4096, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), 100 * SECOND));
    if (remo_node_rank(node) == 0 && connect_all(region))
        return 1;
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* Node 1 pauses with a read in flight, and then fails. Reads of node 2 complete throughout. */
static int lose_one(struct remo_node *node, struct remo_region *region) {
    struct ofi_endpoint *endpoint = endpoint_of_thread(node);
    struct remo_ack ack = REMO_ACK_INIT;
    uint64_t words[3];
    for (uint32_t peer = 1; peer < 3; peer++)
        CHECK_OK(remo_region_read(region, peer, 0, &words[peer], 8, NULL)); /* connects */
    uint64_t owner = endpoint->links[2]->owner;
    CHECK(process_pause(atomic_load(&pids[1])) == 0);
    CHECK_OK(remo_region_read(region, 1, 0, &words[1], 8, &ack));
    for (uint32_t i = 0; i < COMPUTING_ROUNDS_MAX; i++)
        CHECK_OK(remo_region_read(region, 2, 0, &words[2], 8, NULL));
    CHECK_OK(cluster_kill(1));
    CHECK_EQUAL(remo_ack_wait(&ack, 100 * SECOND), -EHOSTDOWN);
    CHECK_OK(remo_region_read(region, 2, 0, &words[2], 8, NULL));
    lock_endpoint(endpoint);
    enum ofi_link_state states[] = {endpoint->links[1]->state, endpoint->links[2]->state};
    bool is_same = endpoint->links[2]->owner == owner;
    unlock_endpoint(endpoint);
    CHECK_EQUAL(states[0], OFI_LINK_ENDED);
    CHECK_EQUAL(states[1], OFI_LINK_UP);
    CHECK(is_same);
    return 0;
}

static int one_fails(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    (void)ctx;
    atomic_store(&pids[remo_node_rank(node)], getpid());
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 4096, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0 && lose_one(node, region))
        return 1;
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- a lost connection ---- */

/* Shut down all TCP connections of this process. Its control plane uses Unix sockets. */
static int shut_connections(void) {
    int count = 0;
    for (int fd = 0; fd < FDS_MAX; fd++) {
        struct sockaddr_storage peer;
        socklen_t bytes = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0 && peer.ss_family == AF_INET)
            count += shutdown(fd, SHUT_RDWR) == 0;
    }
    return count;
}

static int wait_dead(struct remo_node *node, uint32_t peer) {
    uint64_t deadline = cluster_now_ns() + 100 * SECOND;
    while (remo_node_peer(node, peer) != REMO_PEER_DEAD && cluster_now_ns() < deadline)
        cluster_sleep_ms(1);
    return remo_node_peer(node, peer) == REMO_PEER_DEAD ? 0 : 1;
}

/* Nodes 1 and 2 lose their connection, and both continue. Node 2 fails for all; operations on it end with an
 * error. */
static int connection_lost(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    uint64_t word;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 4096, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), 100 * SECOND));
    if (rank == 1) {
        CHECK_OK(remo_region_read(region, 2, 0, &word, 8, NULL));
        CHECK(shut_connections() > 0);
        CHECK_SENTENCE(remo_region_read(region, 2, 0, &word, 8, NULL), -EHOSTDOWN, "it has failed");
    }
    CHECK_OK(rank == 2 ? wait_dead(node, 0) || wait_dead(node, 1) : wait_dead(node, 2));
    CHECK_OK(cluster_meet());
    if (rank < 2) {
        CHECK_OK(remo_region_read(region, 1 - rank, 0, &word, 8, NULL));
        CHECK_EQUAL(remo_node_peer(node, 1 - rank), REMO_PEER_UP);
    }
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- a lost greeting ---- */

/* Node 1 refuses a greeting with a wrong key, and closes the connection. An earlier incarnation of node 1 has
 * the same effect. The link sends another greeting. */
static int lose_greeting(struct remo_node *node, struct remo_region *region) {
    struct ofi_endpoint *endpoint = endpoint_of_thread(node);
    struct ofi_contact *contact = atomic_load(&endpoint->ofi->contacts[1]);
    struct remo_ack ack = REMO_ACK_INIT;
    uint64_t word, key = contact->table_key, deadline = cluster_now_ns() + 100 * SECOND;
    enum ofi_link_state state = OFI_LINK_OFFERING;
    contact->table_key = ~key;
    CHECK_OK(remo_region_read(region, 1, 0, &word, 8, &ack));
    while (state == OFI_LINK_OFFERING && cluster_now_ns() < deadline) {
        remo__slots_progress(remo__thread(node));
        lock_endpoint(endpoint);
        state = endpoint->links[1]->state;
        endpoint->links[1]->table.key = state == OFI_LINK_OFFERING ? ~key : key;
        unlock_endpoint(endpoint);
    }
    contact->table_key = key;
    CHECK_EQUAL(state, OFI_LINK_OFFERED);
    CHECK_OK(remo_ack_wait(&ack, 100 * SECOND));
    return 0;
}

static int greeting_lost(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 4096, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), 100 * SECOND));
    if (remo_node_rank(node) == 0 && lose_greeting(node, region))
        return 1;
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- withheld answers ---- */

static int run_echo(void *ctx, const struct remo_rpc_request *request) {
    (void)ctx;
    return remo_rpc_reply(request, 0, request->data, request->bytes);
}

static int run_stop(void *ctx, const struct remo_rpc_request *request) {
    atomic_store((_Atomic bool *)ctx, true);
    return remo_rpc_reply(request, 0, NULL, 0);
}

static int call(struct remo_rpc *rpc, uint32_t number) {
    uint64_t word = number, reply = 0;
    size_t bytes;
    CHECK_OK(remo_rpc_call(rpc, 1, number, &word, sizeof word, &reply, sizeof reply, &bytes, 100 * SECOND));
    return 0;
}

/* While the server waits, it withholds answers, and one answers several requests. Without that at most two
 * requests are in flight. If the machine interrupts the server, its target thread answers each at once, so
 * one such call suffices. */
static int answered_together(struct remo_node *node, struct remo_rpc *rpc) {
    uint64_t deadline = cluster_now_ns() + 100 * SECOND;
    uint32_t most = 0;
    if (call(rpc, 0)) /* connects */
        return 1;
    const struct ofi_link *link = endpoint_of_thread(node)->links[1];
    while (most < 3 && cluster_now_ns() < deadline) {
        uint32_t before = read_number(link, &link->answered);
        if (call(rpc, 0))
            return 1;
        uint32_t count = read_number(link, &link->answered) - before;
        most = count > most ? count : most;
    }
    CHECK(most >= 3);
    return 0;
}

/* All answers arrive although no node waits any more. */
static int answered_at_last(struct remo_node *node) {
    struct remo__thread *thread = remo__thread(node);
    uint64_t deadline = cluster_now_ns() + 100 * SECOND;
    while (remo__slots_progress(thread) > 0 && cluster_now_ns() < deadline)
        cluster_sleep_ms(1);
    CHECK_EQUAL(remo__slots_progress(thread), 0);
    return 0;
}

static int withheld(struct remo_node *node, void *ctx) {
    _Atomic bool is_stopped = false;
    const struct remo_rpc_handler handlers[] = {{0, run_echo, NULL, REMO_RPC_SHORT},
                                                {1, run_stop, &is_stopped, REMO_RPC_SHORT}};
    const struct remo_rpc_options options = {.handlers = handlers, .handler_count = 2};
    struct remo_rpc *rpc;
    (void)ctx;
    CHECK_OK(remo_rpc_open(remo_node_root(node), "rpc", &options, &rpc));
    CHECK_OK(remo_channel_wait(remo_rpc_channel(rpc), 100 * SECOND));
    while (remo_node_rank(node) == 1 && !atomic_load(&is_stopped))
        CHECK_OK(remo_rpc_serve(rpc, SECOND / 1000));
    if (remo_node_rank(node) == 0 && (answered_together(node, rpc) || call(rpc, 1)))
        return 1;
    if (answered_at_last(node))
        return 1;
    CHECK_OK(cluster_meet());
    remo_rpc_close(rpc);
    return 0;
}

/* A node that leaves answers first: otherwise the reply of the other one, which has arrived, would count as
 * a lost write. */
static int withheld_by_leaver(struct remo_node *node, void *ctx) {
    _Atomic bool is_stopped = false;
    const struct remo_rpc_handler handler = {1, run_stop, &is_stopped, REMO_RPC_SHORT};
    const struct remo_rpc_options options = {.handlers = &handler, .handler_count = 1};
    struct remo_rpc *rpc;
    (void)ctx;
    CHECK_OK(remo_rpc_open(remo_node_root(node), "rpc", &options, &rpc));
    CHECK_OK(remo_channel_wait(remo_rpc_channel(rpc), 100 * SECOND));
    if (remo_node_rank(node) == 0 && call(rpc, 1))
        return 1;
    while (remo_node_rank(node) == 1
           && (!atomic_load(&is_stopped) || remo_node_peer(node, 0) <= REMO_PEER_UP))
        CHECK_OK(remo_rpc_serve(rpc, SECOND / 1000));
    if (remo_node_rank(node) == 1)
        CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
    remo_rpc_close(rpc);
    return 0;
}

/* ---- the target thread ---- */

/* Return the thread of this process with this name, or 0. */
static int thread_find(const char *name) {
    int found = 0;
    struct dirent *entry;
    DIR *folder = opendir("/proc/self/task");
    while (folder && !found && (entry = readdir(folder))) {
        char path[300], text[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(text, sizeof text, file) && strncmp(text, name, strlen(name)) == 0)
            found = atoi(entry->d_name);
        if (file)
            fclose(file);
    }
    if (folder)
        closedir(folder);
    return found;
}

/* The target thread has the nice value of its process, so that neither starves the other. */
static int target_nice(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    uint64_t word;
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 4096, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), 100 * SECOND));
    uint32_t peer = 1 - remo_node_rank(node);
    CHECK_OK(remo_region_read(region, peer, 0, &word, 8, NULL));
    CHECK_OK(cluster_meet()); /* both target threads have answered, so their attributes are set */
    int thread = thread_find("remo-target");
    CHECK(thread > 0);
    CHECK_EQUAL(getpriority(PRIO_PROCESS, (id_t)thread), getpriority(PRIO_PROCESS, (id_t)getpid()));
    remo_region_close(region);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {CLUSTER_TEST(gather, 2, .only_on = "ofi"),
                                                CLUSTER_TEST(paused_target, 2, .only_on = "ofi"),
                                                CLUSTER_TEST(many_links, NODES, .only_on = "ofi"),
                                                CLUSTER_TEST(one_fails, 3, .only_on = "ofi"),
                                                CLUSTER_TEST(connection_lost, 3, .only_on = "ofi"),
                                                CLUSTER_TEST(greeting_lost, 2, .only_on = "ofi"),
                                                CLUSTER_TEST(target_nice, 2, .only_on = "ofi"),
                                                CLUSTER_TEST(withheld, 2, .only_on = "ofi"),
                                                CLUSTER_TEST(withheld_by_leaver, 2, .only_on = "ofi"),
                                                {0}};
    errno = 0; /* nice returns the new value, which may be negative */
    if (nice(1) < 0 && errno != 0)
        return 1;
    pids = cluster_shared(NODES * sizeof *pids);
    return cluster_main(argc, argv, tests, NULL);
}
