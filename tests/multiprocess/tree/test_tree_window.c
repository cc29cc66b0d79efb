/* test_tree_window.c - operations in flight together: outcomes of all kinds against a model, costs, changes
 * that scans delay, tasks, an owner that fails or opens late, and wrong arguments. */
#include <stdio.h>

#include "base/random.h"

#include "tree_common.h"

#define KEYS 200u /* of each node */
#define OPS_MAX 150u

static const struct remo_tree_key middle = {"m", 1};

static int open_two(struct remo_node *node, struct remo_tree **ret_tree) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(2), .boundaries = &middle};
    return open_tree(node, &options, ret_tree);
}

/* An operation with its buffers. */
struct slot {
    struct remo_tree_op op;
    char key[16];
    unsigned char value[NUMBER_BYTES_MAX], expected[NUMBER_BYTES_MAX];
    uint32_t index, number, expected_number;
};

static void make_op(struct slot *slot, enum remo_tree_kind kind, const char *key, uint32_t number) {
    slot->op = (struct remo_tree_op){.kind = kind, .key = slot->key, .value = slot->value};
    slot->op.key_bytes = (size_t)snprintf(slot->key, sizeof slot->key, "%s", key);
    slot->op.value_bytes = kind == REMO_TREE_GET ? sizeof slot->value : make_value(slot->value, number);
    slot->op.expected = slot->expected;
    slot->op.expected_bytes = make_value(slot->expected, slot->expected_number);
    slot->number = number;
}

static uint32_t got_number(const struct slot *slot) {
    return number_of(slot->op.value, slot->op.value_bytes);
}

/* ---- random windows: each key is in one operation of a window, so the outcomes are determined ---- */

struct player {
    struct remo_tree *tree;
    struct remo__random dice;
    char prefix;            /* of its keys: half of them belong to each owner */
    uint32_t numbers[KEYS]; /* of its keys; 0: absent */
    struct slot slots[OPS_MAX];
    uint32_t changes; /* number of the last value */
};

static void start_slot(struct player *player, struct slot *slot, uint32_t index) {
    char key[16];
    enum remo_tree_kind kind = (enum remo_tree_kind)remo__random_below(&player->dice, 6);
    uint32_t before = player->numbers[index];
    snprintf(key, sizeof key, "%c%c%u", index % 2 ? 'a' : 'z', player->prefix, index);
    slot->index = index;
    slot->expected_number = remo__random_below(&player->dice, 2) ? before : before + 1;
    make_op(slot, kind, key, ++player->changes);
}

/* Check the outcome of an operation, and apply it to the model. */
static int judge(struct player *player, const struct slot *slot) {
    uint32_t *number = &player->numbers[slot->index];
    int expected = *number ? 0 : -ENOENT;
    bool is_equal = *number == slot->expected_number;
    switch (slot->op.kind) {
    case REMO_TREE_GET: CHECK(*number == 0 || got_number(slot) == *number); break;
    case REMO_TREE_INSERT: expected = *number ? -EEXIST : 0; break;
    case REMO_TREE_UPSERT: expected = 0; break;
    case REMO_TREE_COMPARE_PUT: expected = *number && !is_equal ? -ESTALE : expected; break;
    case REMO_TREE_UPDATE:
    case REMO_TREE_REMOVE: break;
    }
    CHECK_CODE(slot->op.status, expected);
    if (expected == 0 && slot->op.kind != REMO_TREE_GET)
        *number = slot->op.kind == REMO_TREE_REMOVE ? 0 : slot->number;
    return 0;
}

static int play_window(struct player *player, uint32_t count, bool by_wait) {
    uint32_t first = (uint32_t)remo__random_below(&player->dice, KEYS);
    int left = 1;
    for (uint32_t i = 0; i < count; i++) {
        start_slot(player, &player->slots[i], (first + i) % KEYS);
        CHECK_OK(remo_tree_start(player->tree, &player->slots[i].op));
        CHECK_CODE(player->slots[i].op.status, -EINPROGRESS);
    }
    for (uint32_t i = count; i-- > 0 && by_wait;)
        CHECK_CODE(remo_tree_wait(player->tree, &player->slots[i].op), player->slots[i].op.status);
    while (!by_wait && left > 0) {
        left = remo_tree_poll(player->tree);
        CHECK(left >= 0 && (uint32_t)left <= count);
    }
    CHECK_CODE(remo_tree_poll(player->tree), 0);
    for (uint32_t i = 0; i < count; i++)
        CHECK(judge(player, &player->slots[i]) == 0);
    return 0;
}

/* Node 2 owns no keys. */
static int windows(struct remo_node *node, void *ctx) {
    struct player *player = calloc(1, sizeof *player);
    static const uint32_t counts[] = {1, 2, 16, 17, 70, OPS_MAX};
    (void)ctx;
    CHECK(player);
    CHECK(open_two(node, &player->tree) == 0);
    player->prefix = (char)('a' + remo_node_rank(node));
    remo__random_seed(&player->dice, 1 + remo_node_rank(node));
    for (uint32_t i = 0; i < (is_mapped(node) ? 600 : 60); i++)
        CHECK(play_window(player, counts[i % 6], i / 6 % 2) == 0);
    CHECK_OK(cluster_meet());
    CHECK(!player->tree->own || check_shape(player->tree, NULL) == 0);
    CHECK(close_tree(player->tree) == 0);
    free(player);
    return 0;
}

/* ---- costs ---- */

#define COST_OPS 32u

/* Start operations, and poll until all are complete. */
static int run_slots(struct remo_tree *tree, struct slot *slots, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        CHECK_OK(remo_tree_start(tree, &slots[i].op));
    int left = 1;
    while (left > 0)
        CHECK((left = remo_tree_poll(tree)) >= 0);
    for (uint32_t i = 0; i < count; i++)
        CHECK_CODE(slots[i].op.status, 0);
    return 0;
}

/* Start costs nothing. The first poll makes the reads of all gets, and sends the requests of all changes. The
 * owner delays these, so the poll cannot have waited for a reply. */
static int poll_at_cost(struct remo_tree *tree, struct slot *slots) {
    struct remo_channel *channel = remo_tree_channel(tree);
    struct remo_stats before, after;
    char key[16];
    for (uint32_t i = 0; i < COST_OPS; i++) {
        snprintf(key, sizeof key, "k%u", i);
        make_op(&slots[i], i % 2 ? REMO_TREE_GET : REMO_TREE_UPDATE, key, 100 + i);
        CHECK_COST(channel, CHECK_OK(remo_tree_start(tree, &slots[i].op)), 0, 0, 0, 0);
    }
    remo_channel_stats(channel, &before);
    CHECK_CODE(remo_tree_poll(tree), COST_OPS / 2);
    remo_channel_stats(channel, &after);
    CHECK_EQUAL(after.reads - before.reads, COST_OPS / 2);
    CHECK_EQUAL(after.writes - before.writes, COST_OPS / 2);
    CHECK_EQUAL(after.atomics, before.atomics);
    for (uint32_t i = 0; i < COST_OPS; i++) {
        CHECK_CODE(slots[i].op.status, i % 2 ? 0 : -EINPROGRESS);
        CHECK(i % 2 == 0 || got_number(&slots[i]) == 1 + i);
    }
    return 0;
}

/* Node 0 is the owner. It delays changes while node 1 polls. */
static int cost(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1)};
    static struct slot slots[COST_OPS];
    struct remo_tree *tree;
    char key[16];
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    for (uint32_t i = 0; i < COST_OPS && !tree->own; i++) {
        snprintf(key, sizeof key, "k%u", i);
        make_op(&slots[i], REMO_TREE_INSERT, key, 1 + i);
    }
    if (!tree->own)
        CHECK(run_slots(tree, slots, COST_OPS) == 0);
    for (uint32_t i = 0; i < COST_OPS;
         i++) { /* now the inner nodes and the places of the leaves are cached */
        snprintf(key, sizeof key, "k%u", i);
        make_op(&slots[i], REMO_TREE_GET, key, 0);
    }
    CHECK(tree->own || run_slots(tree, slots, COST_OPS) == 0);
    CHECK_OK(cluster_meet());
    if (tree->own) {
        CHECK(freeze_until_thawed(tree) == 0);
        CHECK_COST(remo_tree_channel(tree), CHECK(run_slots(tree, slots, COST_OPS) == 0), 0, 0, 0, 0);
    }
    CHECK_OK(cluster_meet());
    CHECK(tree->own || poll_at_cost(tree, slots) == 0);
    CHECK_OK(cluster_meet());
    if (tree->own)
        remo__tree_thaw(tree);
    for (uint32_t i = 0; i < COST_OPS && !tree->own; i++) {
        CHECK_OK(remo_tree_wait(tree, &slots[i].op));
        snprintf(key, sizeof key, "k%u", i);
        CHECK_NUMBER(tree, key, i % 2 ? 1 + i : 100 + i);
    }
    return close_tree(tree);
}

/* ---- changes that are delayed for too long ---- */

static int delayed(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1)};
    struct slot slots[2] = {0};
    struct remo_tree *tree;
    uint64_t before;
    uint32_t number;
    (void)ctx;
    CHECK(open_tree(node, &options, &tree) == 0);
    CHECK(!tree->own || freeze_until_thawed(tree) == 0);
    CHECK_OK(cluster_meet());
    before = cluster_set_op_timeout(node, 3 * SECOND); /* a slow machine needs much of it for the poll */
    make_op(&slots[0], REMO_TREE_INSERT, tree->own ? "own" : "other", 1);
    make_op(&slots[1], REMO_TREE_GET, "none", 1);
    CHECK_OK(remo_tree_start(tree, &slots[0].op));
    CHECK_OK(remo_tree_start(tree, &slots[1].op));
    CHECK_CODE(remo_tree_poll(tree), 1);
    CHECK_SENTENCE(remo_tree_wait(tree, &slots[0].op), -EBUSY, "scans delay changes at node 0");
    CHECK_CODE(slots[1].op.status, -ENOENT);
    cluster_set_op_timeout(node, before);
    CHECK_CODE(get_number(tree, tree->own ? "own" : "other", &number), -ENOENT);
    CHECK_OK(cluster_meet());
    if (tree->own)
        remo__tree_thaw(tree);
    return close_tree(tree);
}

/* ---- tasks have windows of their own ---- */

#define TASKS 5u

struct tasks {
    struct remo_tree *tree;
    uint32_t next, started, checked;
    struct slot slots[TASKS][4];
};

/* All tasks have operations in flight. No task can wait for those of another one. */
static int wait_for_other(struct tasks *tasks, uint32_t number) {
    struct remo_tree_op *op = &tasks->slots[(number + 1) % TASKS][3].op;
    for (tasks->started++; tasks->started < TASKS;)
        remo_task_yield();
    int rc = remo_tree_wait(tasks->tree, op);
    for (tasks->checked++; tasks->checked < TASKS;)
        remo_task_yield();
    CHECK_SENTENCE(rc, -EPERM, "another thread or task");
    return 0;
}

static int run_task(void *ctx) {
    struct tasks *tasks = ctx;
    uint32_t number = tasks->next++;
    struct slot *slots = tasks->slots[number];
    char key[16];
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(key, sizeof key, "%c%u.%u.%u", i % 2 ? 'a' : 'z', remo_node_rank(tasks->tree->node),
                     number, i);
            make_op(&slots[i], round % 2 ? REMO_TREE_GET : REMO_TREE_UPSERT, key, 1 + number);
            CHECK_OK(remo_tree_start(tasks->tree, &slots[i].op));
        }
        if (round == 0)
            CHECK(wait_for_other(tasks, number) == 0);
        for (uint32_t i = 0; i < 4; i++)
            CHECK_OK(remo_tree_wait(tasks->tree, &slots[i].op));
        CHECK(round % 2 == 0 || got_number(&slots[3]) == 1 + number);
    }
    return 0;
}

static int tasks(struct remo_node *node, void *ctx) {
    struct tasks tasks = {0};
    struct remo_scheduler *scheduler;
    remo_task_id ids[TASKS];
    (void)ctx;
    CHECK(open_two(node, &tasks.tree) == 0);
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    for (uint32_t i = 0; i < TASKS; i++)
        CHECK_OK(remo_task_spawn(scheduler, run_task, &tasks, &ids[i]));
    for (uint32_t i = 0; i < TASKS; i++) {
        int result = -1;
        CHECK_OK(remo_task_join(scheduler, ids[i], REMO_FOREVER, &result));
        CHECK_CODE(result, 0);
    }
    CHECK_OK(remo_scheduler_close(scheduler));
    return close_tree(tasks.tree);
}

/* ---- owners that fail, or open late ---- */

/* Operations on keys of the failed owner fail. Others of the same window are unaffected. */
static int use_lost(struct remo_tree *tree) {
    struct slot slots[40] = {0};
    char key[16];
    for (uint32_t i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "%c%u.%u", i % 4 < 2 ? 'a' : 'z', remo_node_rank(tree->node), i);
        make_op(&slots[i], i % 2 ? REMO_TREE_GET : REMO_TREE_UPSERT, key, 1 + i);
        int rc = remo_tree_start(tree, &slots[i].op);
        CHECK_OK(rc);
    }
    for (uint32_t i = 0; i < 40; i++) {
        int rc = remo_tree_wait(tree, &slots[i].op);
        CHECK_CODE(rc, i % 4 < 2 ? -EHOSTDOWN : i % 2 ? -ENOENT : 0);
    }
    return 0;
}

static int owner_fails(struct remo_node *node, void *ctx) {
    struct remo_tree *tree;
    struct slot slot = {0};
    int rc = 0;
    (void)ctx;
    CHECK(open_two(node, &tree) == 0);
    CHECK_OK(cluster_meet()); /* otherwise a node may still wait for its peers to open when node 0 fails */
    if (remo_node_rank(node) == 0)
        for (;;)
            cluster_sleep_ms(1000);
    for (uint32_t i = 0; rc == 0; i++) { /* until the owner fails */
        make_op(&slot, REMO_TREE_UPSERT, remo_node_rank(node) == 1 ? "a1" : "a2", 1 + i);
        rc = remo_tree_start(tree, &slot.op);
        rc = rc == 0 ? remo_tree_wait(tree, &slot.op) : rc;
        if (remo_node_rank(node) == 2 && i == 20)
            CHECK_OK(cluster_kill(0));
    }
    CHECK_SENTENCE(rc, -EHOSTDOWN, "node 0");
    cluster_await_cut_off(node, 0);
    CHECK(use_lost(tree) == 0);
    CHECK_OK(cluster_meet());
    remo_tree_close(tree);
    return 0;
}

static int late_owner(struct remo_node *node, void *ctx) {
    const struct remo_tree_options options = {SMALL, .owners = first_nodes(1)};
    struct slot slot = {0};
    struct remo_tree *tree;
    (void)ctx;
    make_op(&slot, REMO_TREE_INSERT, remo_node_rank(node) ? "other" : "own", 1);
    if (remo_node_rank(node) == 1) {
        CHECK_OK(remo_tree_open(remo_node_root(node), "tree", &options, &tree));
        CHECK_OK(remo_tree_start(tree, &slot.op));
        CHECK_CODE(remo_tree_poll(tree), 1); /* the owner has not opened */
        uint64_t before = cluster_set_op_timeout(node, SECOND / 10);
        struct slot other = {0};
        make_op(&other, REMO_TREE_REMOVE, "other", 1);
        CHECK_OK(remo_tree_start(tree, &other.op));
        CHECK_SENTENCE(remo_tree_wait(tree, &other.op), -ETIMEDOUT, "node 0 has not opened it");
        cluster_set_op_timeout(node, before);
        CHECK_OK(cluster_meet());
    } else {
        CHECK_OK(cluster_meet());
        CHECK_OK(remo_tree_open(remo_node_root(node), "tree", &options, &tree));
        CHECK_OK(remo_tree_start(tree, &slot.op));
    }
    CHECK_OK(remo_tree_wait(tree, &slot.op));
    return close_tree(tree);
}

/* ---- wrong arguments ---- */

static int codes(struct remo_node *node, void *ctx) {
    struct slot slot = {0}, other = {0};
    struct remo_tree *tree;
    (void)ctx;
    CHECK(open_two(node, &tree) == 0);
    CHECK_CODE(remo_tree_poll(tree), 0);
    make_op(&slot, (enum remo_tree_kind)6, "k", 1);
    CHECK_SENTENCE(remo_tree_start(tree, &slot.op), -EINVAL, "unknown kind 6");
    CHECK_CODE(slot.op.status, -EINVAL);
    CHECK_CODE(remo_tree_wait(tree, &slot.op), -EINVAL);
    for (uint32_t kind = 0; kind < 6; kind++) {
        make_op(&slot, (enum remo_tree_kind)kind, "k", 1);
        slot.op.key_bytes = 25;
        CHECK_SENTENCE(remo_tree_start(tree, &slot.op), -EINVAL, "too long");
        slot.op.key_bytes = 1;
        slot.op.value = NULL;
        if (kind != REMO_TREE_REMOVE)
            CHECK_SENTENCE(remo_tree_start(tree, &slot.op), -EINVAL, "NULL");
    }
    struct remo_tree_write get = {.kind = REMO_TREE_GET, .key = {"k", 1}};
    CHECK_SENTENCE(remo_tree_apply(tree, &get, 1, NULL), -EINVAL, "unknown kind 5");
    CHECK_OK(cluster_meet());
    make_op(&slot, REMO_TREE_INSERT, remo_node_rank(node) ? "a1" : "z0", 20);
    CHECK_OK(remo_tree_start(tree, &slot.op));
    CHECK_OK(remo_tree_wait(tree, &slot.op));
    CHECK_OK(remo_tree_wait(tree, &slot.op)); /* it is complete */
    slot.op.kind = REMO_TREE_GET;
    slot.op.value_bytes = 3;
    make_op(&other, REMO_TREE_UPDATE, "absent", 1);
    CHECK_OK(remo_tree_start(tree, &other.op));
    CHECK_OK(remo_tree_start(tree, &slot.op));
    CHECK_SENTENCE(remo_tree_wait(tree, &slot.op), -EMSGSIZE, "the buffer has 3"); /* not that of the other */
    CHECK(slot.op.value_bytes > 3);
    CHECK_CODE(remo_tree_wait(tree, &other.op), -ENOENT);
    slot.op.value_bytes = 3;
    make_op(&other, REMO_TREE_GET, "absent", 1); /* both in one batch of gets */
    CHECK_OK(remo_tree_start(tree, &slot.op));
    CHECK_OK(remo_tree_start(tree, &other.op));
    CHECK_SENTENCE(remo_tree_wait(tree, &slot.op), -EMSGSIZE, "the buffer has 3");
    CHECK_CODE(remo_tree_wait(tree, &other.op), -ENOENT);
    slot.op.value = NULL; /* only the size */
    slot.op.value_bytes = 0;
    CHECK_OK(remo_tree_start(tree, &slot.op));
    CHECK_CODE(remo_tree_wait(tree, &slot.op), -EMSGSIZE);
    CHECK(slot.op.value_bytes > 3);
    slot.op.kind = REMO_TREE_UPSERT; /* an empty value needs no place */
    slot.op.value_bytes = 0;
    slot.op.value = slot.value;
    CHECK_OK(remo_tree_start(tree, &slot.op));
    CHECK_OK(remo_tree_wait(tree, &slot.op));
    slot.op.kind = REMO_TREE_GET;
    slot.op.value = NULL;
    CHECK_OK(remo_tree_start(tree, &slot.op));
    CHECK_OK(remo_tree_wait(tree, &slot.op));
    CHECK(slot.op.value_bytes == 0);
    return close_tree(tree);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(windows, 3),     CLUSTER_TEST(cost, 2),
        CLUSTER_TEST(delayed, 2),     CLUSTER_TEST(tasks, 2),
        CLUSTER_TEST(owner_fails, 3), CLUSTER_TEST(late_owner, 2),
        CLUSTER_TEST(codes, 2),       {0},
    };
    return tree_main(argc, argv, tests);
}
