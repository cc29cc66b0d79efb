/* heap.c - heap: node 0 replaces a block that two nodes read and mark under pins, and retires the old
 * one. A block must not change while a reader is pinned. No late mark may reach a reused block. */
#include <errno.h>
#include <remo/heap.h>
#include <remo/owned_var.h>
#include <remo/region.h>
#include <string.h>

#include "objects/heap/heap.h"
#include "sim/case.h"
#include "sim/scheduler.h"

#define FOREVER REMO_FOREVER

#define OWNER 0u
#define BLOCKS 4u
#define VISITS 3u
#define RECLAIMERS 2u /* threads */
#define RECLAIMS 3u

/* Two words with the number of the block, then a mark of each reader: 0, or the same number. */
struct content {
    uint64_t number[2];
    uint64_t marks[SIM_NODES_MAX];
};

struct heap_state {
    struct remo_heap *heaps[SIM_NODES_MAX];
    /* the address of the current block: a word at the owner, or copies at all nodes */
    struct remo_region *heads[SIM_NODES_MAX];
    struct remo_owned_var *copies[SIM_NODES_MAX];
    struct remo_node *nodes[SIM_NODES_MAX];
    struct remo_addr current;
    uint64_t number;
    uint64_t held[SIM_NODES_MAX]; /* the address that a pinned reader has loaded; 0: none */
    struct remo_addr blocks[RECLAIMERS][RECLAIMS];
};

static bool publish(struct heap_state *s);

static void open_heap(void *state, struct remo_node *node, uint32_t rank) {
    struct heap_state *s = state;
    s->nodes[rank] = node;
    sim_opened(remo_heap_open(remo_node_root(node), "heap", NULL, &s->heaps[rank]), "open");
    if (!s->copies[rank])
        sim_opened(remo_region_open(remo_node_root(node), "head", 64, NULL, &s->heads[rank]), "open");
    sim_opened(remo_channel_wait(remo_node_root(node), FOREVER), "wait");
}

static void open_copies(void *state, struct remo_node *node, uint32_t rank) {
    struct heap_state *s = state;
    sim_opened(remo_owned_var_open(remo_node_root(node), "copies", 8, NULL, &s->copies[rank]), "open");
    open_heap(state, node, rank);
    if (rank == OWNER)
        (void)publish(s);
}

static void close_heap(void *state, uint32_t rank) {
    struct heap_state *s = state;
    remo_heap_close(s->heaps[rank]);
    remo_region_close(s->heads[rank]);
    remo_owned_var_close(s->copies[rank]);
}

/* ---- the owner ---- */

/* A call of the owner succeeds, unless one of its own operations was made to fail. A write that a failed
 * reader has lost does not concern the other readers. */
static bool owner_did(int rc, const char *what) {
    if (rc == -EHOSTDOWN && sim_any_out() && !sim_out(OWNER))
        return true;
    sim_require(rc == 0 || sim_excused(OWNER, OWNER, rc), "%s: %d (%s)", what, rc, remo_last_error());
    return rc == 0;
}

/* All marks are of this block: a mark of an earlier block has the same address, but a smaller number. */
static void check_marks(struct heap_state *s, struct remo_addr addr, uint64_t number) {
    struct content content;
    if (!owner_did(remo_read(s->nodes[OWNER], addr, &content, sizeof content, NULL), "read"))
        return;
    for (uint32_t node = 0; node < SIM_NODES_MAX && !sim_out(OWNER); node++)
        sim_require(content.marks[node] == 0 || content.marks[node] == number,
                    "block %llu has a mark of block %llu, by node %u", (unsigned long long)number,
                    (unsigned long long)content.marks[node], node);
}

/* No reader that is pinned has the address of a block that is free. */
static void check_held(struct heap_state *s, struct remo_addr addr) {
    for (uint32_t node = 0; node < SIM_NODES_MAX; node++)
        sim_require(s->held[node] != addr.word || sim_out(node) || sim_hurt(node) || sim_out(OWNER),
                    "a block became free while node %u was pinned and had its address", node);
}

static int set_head(struct heap_state *s, struct remo_addr addr) {
    if (s->heads[OWNER])
        return remo_region_write(s->heads[OWNER], OWNER, 0, &addr.word, 8, 0, NULL);
    int rc = remo_owned_var_store(s->copies[OWNER], &addr.word);
    return rc == 0 ? remo_owned_var_push_all(s->copies[OWNER], NULL) : rc;
}

/* Make the next block and publish its address. */
static bool publish(struct heap_state *s) {
    struct remo_node *node = s->nodes[OWNER];
    struct content content = {.number = {s->number + 1, s->number + 1}};
    struct remo_addr addr;
    if (!owner_did(remo_heap_alloc(s->heaps[OWNER], sizeof content, 64, &addr), "alloc"))
        return false;
    check_held(s, addr);
    if (!owner_did(remo_write(node, addr, &content, sizeof content, NULL), "write")
        || !owner_did(remo_fence(node, REMO_FENCE_THREAD, 0), "fence"))
        return false;
    check_marks(s, addr, s->number + 1);
    if (!owner_did(set_head(s, addr), "publish")
        || !owner_did(remo_fence(node, REMO_FENCE_THREAD, 0), "fence"))
        return false;
    s->current = addr;
    s->number++;
    return true;
}

static void owner_body(struct heap_state *s) {
    for (uint32_t i = 0; i < BLOCKS; i++) {
        struct remo_addr old = s->current;
        uint64_t number = s->number;
        if (!publish(s))
            return;
        if (old.word == 0)
            continue;
        check_marks(s, old, number);
        if (!owner_did(remo_heap_retire(s->heaps[OWNER], old), "retire"))
            return;
        int rc = remo_heap_reclaim(s->heaps[OWNER], 0);
        sim_require(rc == 0 || rc == -ETIMEDOUT, "reclaim: %d (%s)", rc, remo_last_error());
    }
}

/* ---- the readers ---- */

static bool reader_did(uint32_t rank, int rc, const char *what) {
    sim_require(rc == 0 || sim_excused(rank, OWNER, rc), "%s: %d (%s)", what, rc, remo_last_error());
    return rc == 0;
}

static bool same_number(const struct content *a, const struct content *b) {
    return a->number[0] == a->number[1] && a->number[0] == b->number[0] && b->number[0] == b->number[1];
}

/* Read the current block twice, and mark it. Nodes that are out read what others have done meanwhile. */
static bool visit_block(struct heap_state *s, uint32_t rank, struct remo_addr addr) {
    struct remo_node *node = s->nodes[rank];
    struct content first, second;
    struct remo_addr mark = {addr.word + offsetof(struct content, marks) + 8 * rank};
    if (!reader_did(rank, remo_read(node, addr, &first, sizeof first, NULL), "read")
        || !reader_did(rank, remo_read(node, addr, &second, sizeof second, NULL), "read"))
        return false;
    sim_require(sim_out(rank) || sim_out(OWNER) || same_number(&first, &second),
                "block %llu became %llu while node %u was pinned", (unsigned long long)first.number[0],
                (unsigned long long)second.number[1], rank);
    return reader_did(rank, remo_write(node, mark, &first.number[0], 8, NULL), "write");
}

static int get_head(struct heap_state *s, uint32_t rank, struct remo_addr *ret_addr) {
    if (s->heads[rank])
        return remo_region_read(s->heads[rank], OWNER, 0, &ret_addr->word, 8, NULL);
    return remo_owned_var_load(s->copies[rank], &ret_addr->word);
}

/* Use the current block. The heap is pinned. */
static bool use_current(struct heap_state *s, uint32_t rank) {
    struct remo_addr addr = {0};
    bool done = reader_did(rank, get_head(s, rank, &addr), "read");
    s->held[rank] = addr.word;
    done = done && (addr.word == 0 || visit_block(s, rank, addr));
    s->held[rank] = 0;
    return done;
}

static bool visit(struct heap_state *s, uint32_t rank) {
    if (!reader_did(rank, remo_heap_pin(s->heaps[rank]), "pin"))
        return false;
    bool done = use_current(s, rank);
    return reader_did(rank, remo_heap_unpin(s->heaps[rank]), "unpin") && done;
}

static void body(void *state, uint32_t rank, uint32_t thread) {
    struct heap_state *s = state;
    (void)thread;
    if (rank == OWNER)
        owner_body(s);
    for (uint32_t i = 0; rank != OWNER && i < VISITS && visit(s, rank); i++)
        continue;
}

/* No pin of a failed node delays the owner. */
static void after(void *state, uint32_t rank) {
    struct heap_state *s = state;
    struct remo_heap_sizes sizes;
    if (rank != OWNER)
        return;
    int rc = remo_heap_reclaim(s->heaps[OWNER], FOREVER);
    remo_heap_stats(s->heaps[OWNER], &sizes);
    sim_require(rc == 0 && sizes.retired_bytes == 0, "reclaim: %d (%s)", rc, remo_last_error());
}

const struct sim_case sim_case_heap = {.object = "heap",
                                       .name = "grace",
                                       .about = "blocks are replaced and retired while two nodes use them",
                                       .nodes = 3,
                                       .threads = 1,
                                       .state_bytes = sizeof(struct heap_state),
                                       .open = open_heap,
                                       .close = close_heap,
                                       .body = body,
                                       .after = after};

/* The shortest schedule that needs the fence of a pin: the reader loads its copy of the address while its pin
 * is in its store buffer. */
static void copies_body(void *state, uint32_t rank, uint32_t thread) {
    struct heap_state *s = state;
    struct remo_addr old = s->current, none = {0};
    (void)thread;
    if (rank != OWNER) {
        (void)visit(s, rank);
        return;
    }
    if (!owner_did(set_head(s, none), "publish")
        || !owner_did(remo_fence(s->nodes[OWNER], REMO_FENCE_THREAD, 0), "fence")
        || !owner_did(remo_heap_retire(s->heaps[OWNER], old), "retire"))
        return;
    if (remo_heap_reclaim(s->heaps[OWNER], 0) == 0)
        check_held(s, old);
}

const struct sim_case sim_case_heap_copies = {
    .object = "heap",
    .name = "copies",
    .about = "a block is retired while a node loads its address from a local copy",
    .nodes = 2,
    .threads = 1,
    .state_bytes = sizeof(struct heap_state),
    .open = open_copies,
    .close = close_heap,
    .body = copies_body,
    .after = after};

/* ---- the end of a thread that is pinned ---- */

/* Do what the end of a thread does; the next visit is that of a thread with the same index. */
static bool visit_and_end(struct heap_state *s, uint32_t rank) {
    struct remo__thread *thread;
    struct heap_thread *of_thread;
    if (!reader_did(rank, remo_heap_pin(s->heaps[rank]), "pin"))
        return false;
    bool done = use_current(s, rank);
    if (!reader_did(rank, remo__heap_thread(s->heaps[rank], &thread, &of_thread), "find the thread"))
        return false;
    remo__heap_grace_unpin(s->heaps[rank], thread, of_thread);
    return done;
}

static void ends_body(void *state, uint32_t rank, uint32_t thread) {
    struct heap_state *s = state;
    (void)thread;
    if (rank == OWNER)
        owner_body(s);
    for (uint32_t i = 0; rank != OWNER && i < VISITS && visit_and_end(s, rank); i++)
        continue;
}

/* No fault of the campaign: if the fence fails, the pin remains until the next thread unpins. */
const struct sim_case sim_case_heap_ends = {.object = "heap",
                                            .name = "ends",
                                            .about = "pinned threads end; their writes are placed before",
                                            .nodes = 3,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct heap_state),
                                            .open = open_heap,
                                            .close = close_heap,
                                            .body = ends_body,
                                            .after = after,
                                            .has_own_fault = true};

/* ---- a close of a reader that is pinned, with a write in flight ---- */

#define SLOW 1u /* the reader */

/* Pin the heap, and load the address of the current block. */
static bool pin_block(struct heap_state *s, struct remo_addr *ret_addr) {
    if (!reader_did(SLOW, remo_heap_pin(s->heaps[SLOW]), "pin")
        || !reader_did(SLOW, get_head(s, SLOW, ret_addr), "read"))
        return false;
    s->held[SLOW] = ret_addr->word;
    return true;
}

static void close_before_fence(struct heap_state *s) {
    s->nodes[SLOW]->op_timeout_ns = 400; /* expires even while other nodes make steps */
    s->held[SLOW] = 0;
    remo_heap_close(s->heaps[SLOW]);
    s->heaps[SLOW] = NULL;
}

/* Node SLOW marks a block, and closes the heap before the mark is placed. */
static void close_pinned(struct heap_state *s) {
    struct remo_addr addr = {0};
    if (!pin_block(s, &addr))
        return;
    sim_delay(SLOW, 2, 1); /* the reads of the block are not delayed */
    if (addr.word != 0)
        (void)visit_block(s, SLOW, addr);
    close_before_fence(s);
    for (uint32_t turns = sim_choose(40); turns > 0; turns--)
        sim_point("before the mark is placed");
    sim_delay_end();
}

static void leaving_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == OWNER)
        owner_body(state);
    else
        close_pinned(state);
}

/* The departure of node SLOW ends its pin, and no mark is in a block of another number. */
static void leaving_after(void *state, uint32_t rank) {
    struct heap_state *s = state;
    after(state, rank);
    if (rank == OWNER)
        check_marks(s, s->current, s->number);
}

const struct sim_case sim_case_heap_leaving = {
    .object = "heap",
    .name = "leaving",
    .about = "a pinned node closes the heap; its write to a block is placed after the close",
    .nodes = 2,
    .threads = 1,
    .state_bytes = sizeof(struct heap_state),
    .open = open_heap,
    .close = close_heap,
    .body = leaving_body,
    .after = leaving_after,
    .has_own_fault = true};

static bool has_published(void *ctx) {
    return ((struct heap_state *)ctx)->number > 0;
}

static bool is_cut_off(void *ctx) {
    const struct heap_state *s = ctx;
    return remo__channel_is_cut_off(s->heaps[OWNER]->region->channel, SLOW);
}

/* Node SLOW marks a block, and closes the heap while no slot is free for the flush of the mark. The node has
 * no room for another thread: its helper thread posts the flush later, and is not attached. */
static void leaving_full_body(void *state, uint32_t rank, uint32_t thread) {
    struct heap_state *s = state;
    struct remo_node *node = s->nodes[rank];
    struct remo_ack acks[REMO__SLOTS_MAX] = {REMO_ACK_INIT};
    uint64_t words[REMO__SLOTS_MAX];
    struct remo_addr addr = {0};
    (void)thread;
    if (rank == OWNER) {
        owner_body(s);
        return;
    }
    sim_until(has_published, s, "wait for the first block");
    if (!pin_block(s, &addr) || !visit_block(s, SLOW, addr))
        return;
    node->threads_max = node->threads->count;
    sim_delay(SLOW, 0, REMO__SLOTS_MAX);
    for (uint32_t i = 0; i < REMO__SLOTS_MAX; i++)
        sim_opened(remo_region_read(s->heads[SLOW], OWNER, 0, &words[i], sizeof words[i], &acks[i]), "read");
    close_before_fence(s);
    sim_delay_end();
    for (uint32_t i = 0; i < REMO__SLOTS_MAX; i++)
        sim_opened(remo_ack_wait(&acks[i], FOREVER), "wait");
    sim_until(is_cut_off, s, "wait for the final LEAVE"); /* the end of this thread would make room */
}

const struct sim_case sim_case_heap_leaving_full = {
    .object = "heap",
    .name = "leaving_full",
    .about = "a node with the most threads closes the heap, and cannot flush its write before",
    .nodes = 2,
    .threads = 1,
    .state_bytes = sizeof(struct heap_state),
    .open = open_heap,
    .close = close_heap,
    .body = leaving_full_body,
    .after = leaving_after,
    .has_own_fault = true};

/* ---- two threads that reclaim ---- */

/* One block stays allocated, so the slab stays too. */
static void open_blocks(void *state, struct remo_node *node, uint32_t rank) {
    struct heap_state *s = state;
    open_heap(state, node, rank);
    if (rank != OWNER)
        return;
    sim_opened(remo_heap_alloc(s->heaps[rank], 16, 0, &s->current), "alloc");
    for (uint32_t i = 0; i < RECLAIMERS * RECLAIMS; i++)
        sim_opened(remo_heap_alloc(s->heaps[rank], 16, 0, &s->blocks[i / RECLAIMS][i % RECLAIMS]), "alloc");
}

/* A successful reclaim has freed each block that its thread retired before. */
static void reclaims_body(void *state, uint32_t rank, uint32_t thread) {
    struct heap_state *s = state;
    for (uint32_t i = 0; rank == OWNER && i < RECLAIMS; i++) {
        if (!owner_did(remo_heap_retire(s->heaps[OWNER], s->blocks[thread][i]), "retire"))
            return;
        if (remo_heap_reclaim(s->heaps[OWNER], FOREVER) != 0)
            continue;
        int rc = remo_heap_free(s->heaps[OWNER], s->blocks[thread][i]);
        sim_require(rc == -EALREADY && strstr(remo_last_error(), "is free"), "a block is not free: %d (%s)",
                    rc, remo_last_error());
    }
}

const struct sim_case sim_case_heap_reclaims = {.object = "heap",
                                                .name = "reclaims",
                                                .about = "two threads retire blocks and reclaim them",
                                                .nodes = 2,
                                                .threads = RECLAIMERS,
                                                .state_bytes = sizeof(struct heap_state),
                                                .open = open_blocks,
                                                .close = close_heap,
                                                .body = reclaims_body,
                                                .after = after};

/* All slots of the owner's thread are in use, so it cannot start to read pins. An attempt to reclaim takes
 * op_timeout_ns, however many participants there are. */
static void full_body(void *state, uint32_t rank, uint32_t thread) {
    struct heap_state *s = state;
    struct remo_ack acks[REMO__SLOTS_MAX] = {REMO_ACK_INIT};
    uint64_t words[REMO__SLOTS_MAX], op_timeout_ns = s->nodes[rank]->op_timeout_ns;
    (void)thread;
    if (rank != OWNER)
        return;
    sim_opened(remo_heap_retire(s->heaps[OWNER], s->blocks[0][0]), "retire");
    sim_delay(OWNER, 0, REMO__SLOTS_MAX);
    for (uint32_t i = 0; i < REMO__SLOTS_MAX; i++)
        sim_opened(remo_region_read(s->heads[OWNER], 1, 0, &words[i], sizeof words[i], &acks[i]), "read");
    uint64_t before_ns = remo__now_ns();
    int rc = remo_heap_reclaim(s->heaps[OWNER], 0);
    uint64_t took_ns = remo__now_ns() - before_ns;
    sim_require(rc == -ETIMEDOUT && strstr(remo_last_error(), "has not started"), "reclaim: %d (%s)", rc,
                remo_last_error());
    sim_require(took_ns < op_timeout_ns * 3 / 2, "an attempt to reclaim took %llu ns",
                (unsigned long long)took_ns);
    sim_delay_end();
    for (uint32_t i = 0; i < REMO__SLOTS_MAX; i++)
        sim_opened(remo_ack_wait(&acks[i], FOREVER), "wait");
}

const struct sim_case sim_case_heap_full = {.object = "heap",
                                            .name = "full",
                                            .needs_flight = true,
                                            .about = "no slot is free to read the pins of two nodes",
                                            .nodes = 3,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct heap_state),
                                            .open = open_blocks,
                                            .close = close_heap,
                                            .body = full_body,
                                            .after = after,
                                            .has_own_fault = true};
