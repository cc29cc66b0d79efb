/* kv_slots.c - slots of the map: gets of a slot that changes meanwhile, and slots that are reused.
 * A read may meet two generations of a slot; it never returns a mixture. No slot is lost. */
#include "sim/cases/kv.h"

#define NOTIFY_TURNS 100u /* until a node has received the deletes of its peers */

/* One node updates a key repeatedly while another reads it. A read may meet a slot after two
 * updates: one line has the older copy and the header of the newer one, the next line the rest of
 * the newer one. */
static void open_short(void *state, struct remo_node *node, uint32_t rank) {
    sim_kv_open(state, node, rank, 8, 2);
}

static void overtaken_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    (void)thread;
    if (rank == 0) {
        (void)sim_kv_call(s, rank, MAP_INSERT, 1, 1);
        (void)sim_kv_call(s, rank, MAP_UPDATE, 1, 2);
        s->there = true;
    } else {
        sim_until(sim_kv_is_there, s, "wait for the key");
    }
    for (uint32_t i = 0; i < (rank == 0 ? 8u : 4u); i++)
        (void)sim_kv_call(s, rank, rank == 0 ? MAP_UPDATE : MAP_GET, 1, 3 + i);
}

const struct sim_case sim_case_kv_overtaken = {.object = "kv",
                                               .name = "overtaken",
                                               .about = "gets that are slower than the updates of their key",
                                               .nodes = 2,
                                               .threads = 1,
                                               .state_bytes = sizeof(struct kv_state),
                                               .open = open_short,
                                               .close = sim_kv_close,
                                               .body = overtaken_body,
                                               .after = sim_kv_after,
                                               .oracle = &oracle_map,
                                               .fault_first = 1};

/* On mapped memory a get of one word takes a shorter path. */
static void open_small(void *state, struct remo_node *node, uint32_t rank) {
    sim_kv_open(state, node, rank, 8, 1);
}

const struct sim_case sim_case_kv_small_overtaken = {.object = "kv",
                                                     .name = "small_overtaken",
                                                     .about = "the same, with a value of one word",
                                                     .nodes = 2,
                                                     .threads = 1,
                                                     .state_bytes = sizeof(struct kv_state),
                                                     .open = open_small,
                                                     .close = sim_kv_close,
                                                     .body = overtaken_body,
                                                     .after = sim_kv_after,
                                                     .oracle = &oracle_map,
                                                     .fault_first = 1};

/* A key is inserted into its old slot again: a read may meet both generations. */
static void open_reinserted(void *state, struct remo_node *node, uint32_t rank) {
    sim_kv_open(state, node, rank, 1, VALUE_WORDS);
}

static void reinserted_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    (void)thread;
    if (rank == 0) {
        (void)sim_kv_call(s, 0, MAP_INSERT, 2, 1); /* occupies one of the two slots */
        (void)sim_kv_call(s, 0, MAP_INSERT, 1, 11);
        (void)sim_kv_call(s, 0, MAP_UPDATE, 1, 12);
        (void)sim_kv_call(s, 0, MAP_DELETE, 1, 0);
        s->there = true;
        (void)sim_kv_call(s, 0, MAP_INSERT, 1, 21);
        return;
    }
    sim_until(sim_kv_is_there, state, "wait for the first delete");
    (void)sim_kv_call(s, 1, MAP_GET, 1, 0);
    (void)sim_kv_call(s, 1, MAP_GET, 1, 0);
}

const struct sim_case sim_case_kv_reinserted = {
    .object = "kv",
    .name = "reinserted",
    .about = "gets of a key that is deleted and inserted into its slot again",
    .nodes = 2,
    .threads = 1,
    .state_bytes = sizeof(struct kv_state),
    .open = open_reinserted,
    .close = sim_kv_close,
    .body = reinserted_body,
    .oracle = &oracle_map,
    .fault_first = 1};

/* The slot of a key is reused for another key with the same first line: a read may meet both. */
static void open_long_keys(void *state, struct remo_node *node, uint32_t rank) {
    ((struct kv_state *)state)->key_words = LONG_KEY_WORDS;
    sim_kv_open(state, node, rank, 1, 1);
}

static void long_keys_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    (void)thread;
    if (rank == 0) {
        (void)sim_kv_call(s, 0, MAP_INSERT, 2, 1); /* occupies one of the two slots */
        (void)sim_kv_call(s, 0, MAP_INSERT, 1, 11);
        s->there = true;
        (void)sim_kv_call(s, 0, MAP_DELETE, 1, 0);
        (void)sim_kv_call(s, 0, MAP_INSERT, 3, 21);
        return;
    }
    sim_until(sim_kv_is_there, state, "wait for the key");
    (void)sim_kv_call(s, 1, MAP_GET, 1, 0);
    (void)sim_kv_call(s, 1, MAP_GET, 1, 0);
}

const struct sim_case sim_case_kv_long_keys = {.object = "kv",
                                               .name = "long_keys",
                                               .about = "gets of a key whose slot is reused for another key",
                                               .nodes = 2,
                                               .threads = 1,
                                               .state_bytes = sizeof(struct kv_state),
                                               .open = open_long_keys,
                                               .close = sim_kv_close,
                                               .body = long_keys_body,
                                               .oracle = &oracle_map,
                                               .fault_first = 1};

/* The index cannot distinguish the keys; each node has two slots. A node inserts a key that its
 * peer deleted before it is notified: the notification then concerns a slot that it has already
 * found free. */
static void open_collide(void *state, struct remo_node *node, uint32_t rank) {
    ((struct kv_state *)state)->alike = true;
    sim_kv_open(state, node, rank, 2, 1);
    remo__kv_set_hash_mask(((struct kv_state *)state)->kvs[rank], 0);
}

static void collide_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    (void)thread;
    if (rank == 0) {
        (void)sim_kv_call(s, 0, MAP_INSERT, 2, 1);
        (void)sim_kv_call(s, 0, MAP_INSERT, 1, 2);
        s->there = true;
        sim_until(sim_kv_is_deleted, s, "wait until it is deleted");
        (void)sim_kv_call(s, 0, MAP_INSERT, 1, 3);
        (void)sim_kv_call(s, 0, MAP_INSERT, 3, 4);
    } else {
        sim_until(sim_kv_is_there, s, "wait for the keys");
        (void)sim_kv_call(s, 1, MAP_DELETE, 1, 0);
        s->deleted = true;
    }
    for (uint64_t key = 1; key <= 3; key++)
        (void)sim_kv_call(s, rank, MAP_GET, key, 0);
}

const struct sim_case sim_case_kv_collide = {.object = "kv",
                                             .name = "collide",
                                             .about = "keys that the index cannot tell apart",
                                             .nodes = 2,
                                             .threads = 1,
                                             .state_bytes = sizeof(struct kv_state),
                                             .open = open_collide,
                                             .close = sim_kv_close,
                                             .body = collide_body,
                                             .oracle = &oracle_map,
                                             .fault_first = 1};

/* Two slots per node. Node 1 deletes a key of node 0, and may fail before it notifies node 0: the
 * slots must be reclaimed. */
static void open_tight(void *state, struct remo_node *node, uint32_t rank) {
    sim_kv_open(state, node, rank, 2, VALUE_WORDS);
}

/* Return the n-th key, from 0, whose lock has node 0 as its home: the other nodes may fail. */
static uint64_t key_at_home(const struct kv_state *s, uint32_t rank, uint32_t n) {
    const struct remo_kv *kv = s->kvs[rank];
    for (uint64_t key = 1;; key++)
        if (remo_lock_home(kv->locks, remo__kv_stripe_of(kv, remo__kv_hash(&key, sizeof key))) == 0
            && n-- == 0)
            return key;
}

static void tight_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t n = 0; n < 2; n++)
        (void)sim_kv_call(state, rank, rank == 0 ? MAP_INSERT : MAP_DELETE, key_at_home(state, rank, n), 1);
    if (rank != 0)
        (void)sim_kv_call(state, rank, MAP_DELETE, key_at_home(state, rank, 0), 0);
}

/* For each absent key, node 0 must find room for another one, even without a notification. A slot
 * that a peer deleted becomes free when its notification arrives. */
static void tight_after(void *state, uint32_t rank) {
    uint32_t absent = 0;
    for (uint32_t n = 0; n < 2 && rank == 0; n++)
        absent += sim_kv_call(state, 0, MAP_GET, key_at_home(state, 0, n), 0) == -ENOENT;
    for (uint32_t n = 0; n < absent; n++) {
        int rc = sim_kv_call(state, 0, MAP_INSERT, key_at_home(state, 0, 2 + n), 2);
        for (uint32_t i = 0; i < NOTIFY_TURNS && rc == -ENOSPC; i++) {
            sim_point("wait for a slot");
            rc = sim_kv_call(state, 0, MAP_INSERT, key_at_home(state, 0, 2 + n), 2);
        }
        sim_require(rc == 0 || (rc == -ETIMEDOUT && sim_any_hurt()), "a slot was lost: %d (%s)", rc,
                    remo_last_error());
    }
}

const struct sim_case sim_case_kv_tight = {.object = "kv",
                                           .name = "tight",
                                           .about = "slots that a failed node left half deleted are reused",
                                           .nodes = 3,
                                           .threads = 1,
                                           .state_bytes = sizeof(struct kv_state),
                                           .open = open_tight,
                                           .close = sim_kv_close,
                                           .body = tight_body,
                                           .after = tight_after,
                                           .oracle = &oracle_map};

static bool has_ended(void *ctx) {
    return ((const struct kv_state *)ctx)->has_ended;
}

/* The case `announced`: node 1 deletes keys of node 0, but loses the records. Node 0 needs the slots, and
 * sends records of its own, so the index of node 1 keeps no entry. At the end node 1 defers its record, and
 * closes the map. */
static bool is_second(void *ctx) {
    return ((const struct kv_state *)ctx)->has_tried;
}

/* Mark the slot of the key as DELETED. Returns the record that removes its entry. */
static struct remo__kv_record mark_deleted(struct kv_state *s, uint64_t key) {
    struct remo_kv *kv = s->kvs[1];
    uint64_t hash = remo__kv_index_hash(kv, remo__kv_hash(&key, sizeof key)), head;
    struct remo__kv_cursor cursor = remo__kv_index_seek(&kv->index, hash);
    uint64_t entry = remo__kv_index_first(&kv->index, &cursor);
    uint64_t at = remo__kv_slot_at(kv, remo__kv_entry_slot(entry));
    int rc = remo_region_read(kv->slots, 0, at, &head, sizeof head, NULL);
    head = remo__kv_head_with(head, REMO__KV_DELETED);
    if (rc == 0)
        rc = remo_region_write(kv->slots, 0, at, &head, sizeof head, 0, NULL);
    if (rc == 0)
        rc = remo__fence_retry_peer(remo__thread(kv->node), 0, FOREVER, NULL);
    sim_require(rc == 0, "mark the slot of key %llu: %d (%s)", (unsigned long long)key, rc,
                remo_last_error());
    return (struct remo__kv_record){
        .hash = hash, .entry = (entry & ~(UINT64_C(0xffff) << 48)) | REMO__KV_RECORD_REMOVE << 48};
}

static void insert_here(struct kv_state *s, uint64_t key) {
    uint64_t value[VALUE_WORDS] = {0};
    int rc = remo_kv_insert(s->kvs[0], &key, sizeof key, value, s->words * 8);
    sim_require(rc == 0, "insert key %llu: %d (%s)", (unsigned long long)key, rc, remo_last_error());
}

static bool is_empty(void *ctx) {
    return remo_kv_count(((const struct kv_state *)ctx)->kvs[0]) == 0;
}

/* The inserts of node 0 need the slots that are marked: of other keys, and of the same key. */
static void insert_again(struct kv_state *s) {
    insert_here(s, 1);
    insert_here(s, 2);
    s->there = true;
    sim_until(sim_kv_is_deleted, s, "wait until both are marked");
    insert_here(s, 3);
    sim_require(remo_kv_count(s->kvs[1]) == 1, "%llu entries after a scan of the slots",
                (unsigned long long)remo_kv_count(s->kvs[1]));
    s->deleted = false;
    s->has_tried = true;
    sim_until(sim_kv_is_deleted, s, "wait until the key is marked");
    insert_here(s, 3);
    sim_require(remo_kv_count(s->kvs[1]) == 1, "%llu entries after a search",
                (unsigned long long)remo_kv_count(s->kvs[1]));
    s->has_ended = true;
    sim_until(is_empty, s, "wait for the record of the node that closes");
}

static void announced_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    (void)thread;
    if (rank == 0) {
        insert_again(s);
        return;
    }
    sim_until(sim_kv_is_there, s, "wait for the keys");
    (void)mark_deleted(s, 1);
    (void)mark_deleted(s, 2);
    s->deleted = true;
    sim_until(is_second, s, "wait for the second key");
    (void)mark_deleted(s, 3);
    s->deleted = true;
    sim_until(has_ended, s, "wait for the end");
    const struct remo__kv_record record = mark_deleted(s, 3), nothing = {1, REMO__KV_RECORD_REMOVE << 48};
    uint64_t number;
    uint32_t count;
    for (uint32_t i = 0; i < REMO__KV_MESSAGES_MAX; i++) /* then perhaps none is free */
        (void)remo__kv_send_records(s->kvs[1], &nothing, 1, &count, &number);
    remo__kv_defer_record(s->kvs[1], &record);
    remo_kv_close(s->kvs[1]);
    s->kvs[1] = NULL;
}

const struct sim_case sim_case_kv_announced = {.object = "kv",
                                               .name = "announced",
                                               .about = "slots whose records were lost are reused",
                                               .nodes = 2,
                                               .threads = 1,
                                               .state_bytes = sizeof(struct kv_state),
                                               .open = open_tight,
                                               .close = sim_kv_close,
                                               .body = announced_body,
                                               .has_own_fault = true};

/* Node 0 updates or deletes a key of node 1, which fails meanwhile. If the change returns 0, it is placed:
 * another node may still read the slot, because it detects the failure later. */
#define LOSE_TURNS 16u

static bool has_begun(void *ctx) {
    return ((const struct kv_state *)ctx)->has_tried;
}

/* Read the slot in node 1's own memory. */
static void require_placed(struct kv_state *s, uint64_t key) {
    uint64_t value[VALUE_WORDS] = {0};
    size_t bytes;
    int rc = remo_kv_get(s->kvs[1], &key, sizeof key, value, sizeof value, &bytes);
    sim_require(rc == 0 || rc == -ENOENT, "get: %d (%s)", rc, remo_last_error());
    if (s->has_changed)
        sim_require(s->deletes ? rc == -ENOENT : rc == 0 && value[0] == 2,
                    "a change that returned 0 is lost");
}

static void lost_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    uint64_t key = key_at_home(s, rank, 0);
    (void)thread;
    if (rank == 0) {
        sim_until(sim_kv_is_there, s, "wait for the key");
        s->deletes = sim_choose(2) == 0;
        s->has_tried = true;
        s->has_changed = sim_kv_call(s, 0, s->deletes ? MAP_DELETE : MAP_UPDATE, key, 2) == 0;
        s->has_ended = true;
        return;
    }
    (void)sim_kv_call(s, 1, MAP_INSERT, key, 1);
    s->there = true;
    sim_until(has_begun, s, "wait for the change");
    for (uint32_t turns = sim_choose(LOSE_TURNS); turns > 0; turns--)
        sim_point("wait before the failure");
    sim_lose(1);
    sim_until(has_ended, s, "wait until the change ends");
    require_placed(s, key);
}

const struct sim_case sim_case_kv_lost = {.object = "kv",
                                          .name = "lost",
                                          .about = "a change while the node of its key fails",
                                          .nodes = 2,
                                          .threads = 1,
                                          .state_bytes = sizeof(struct kv_state),
                                          .open = open_tight,
                                          .close = sim_kv_close,
                                          .body = lost_body,
                                          .has_own_fault = true};

/* Node 1 deletes a key of node 0. Its record reaches node 0, which uses the slot again, but not node 2.
 * Node 2 finds the stale entry in a search for a key of another line. It keeps the entry while the record may
 * be in flight. After node 1 has departed, node 2 removes the entry, and still finds all keys of both lines.
 * All fingerprints are equal. */
#define STALE_LINE 2u                            /* of the deleted key */
#define FULL_LINE 1u                             /* of the other keys: one of them is in the line after it */
#define FULL_ENTRIES (REMO__KV_LINE_ENTRIES - 1) /* in the full line, with another fingerprint */

static void open_stale(void *state, struct remo_node *node, uint32_t rank) {
    struct kv_state *s = state;
    sim_kv_open(state, node, rank, 6, 1);
    struct remo_kv *kv = s->kvs[rank];
    remo__kv_set_hash_mask(kv, ~UINT64_C(0xffff));
    uint64_t hash = UINT64_MAX / kv->index.lines_count * FULL_LINE + 0x10000;
    (void)remo__mutex_lock(kv->node, &kv->index_mutex, FOREVER);
    for (uint32_t i = 0; i < FULL_ENTRIES && rank == 2; i++)
        sim_require(remo__kv_index_line_of(&kv->index, hash) == FULL_LINE
                        && remo__kv_index_add(&kv->index, hash, remo__kv_entry_make(2, 2, 0, i)) == 0,
                    "fill the line");
    remo__mutex_unlock(kv->node, &kv->index_mutex);
}

/* Return the n-th key, from 0, whose entry belongs into the line, and whose lock has node 0 as its home. */
static uint64_t key_of_line(const struct remo_kv *kv, uint32_t line, uint32_t n) {
    for (uint64_t key = 1;; key++) {
        uint64_t hash = remo__kv_hash(&key, sizeof key);
        if (remo__kv_index_line_of(&kv->index, remo__kv_index_hash(kv, hash)) == line
            && remo_lock_home(kv->locks, remo__kv_stripe_of(kv, hash)) == 0 && n-- == 0)
            return key;
    }
}

/* Delete the key; only node 0 receives the record. */
static void delete_in_part(struct kv_state *s, uint64_t key) {
    const struct remo__kv_record record = mark_deleted(s, key);
    struct remo_rpc_op call = {.node = 0, .number = 0, .request = &record, .request_bytes = sizeof record};
    int rc = remo__rpc_start_leaf(s->kvs[1]->trackers, &call);
    sim_require(rc == 0 && remo_rpc_wait(&call) == 0, "send the record: %d (%s)", rc, remo_last_error());
    s->deleted = true;
}

/* Search for an absent key under its lock. Afterwards the index of node 2 has `count` entries for keys. */
static void search_stale(struct kv_state *s, uint32_t count) {
    const struct remo_kv *kv = s->kvs[2];
    uint64_t value, absent = key_of_line(kv, FULL_LINE, 2);
    int rc = remo_kv_delete(s->kvs[2], &absent, sizeof absent);
    sim_require(rc == -ENOENT, "delete an absent key: %d (%s)", rc, remo_last_error());
    sim_require(remo_kv_count(kv) == FULL_ENTRIES + count, "%llu entries, of which %u are for no key",
                (unsigned long long)remo_kv_count(kv), FULL_ENTRIES);
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t key = i < 2 ? key_of_line(kv, FULL_LINE, i) : key_of_line(kv, STALE_LINE, 1);
        rc = remo_kv_get(s->kvs[2], &key, sizeof key, &value, sizeof value, NULL);
        sim_require(rc == 0, "get key %u: %d (%s)", i, rc, remo_last_error());
    }
}

static bool has_departed(void *ctx) {
    return remo_channel_peer(remo_kv_channel(((const struct kv_state *)ctx)->kvs[2]), 1)
           > REMO_CHANNEL_CONNECTED;
}

static void insert_stale(struct kv_state *s) {
    const struct remo_kv *kv = s->kvs[0];
    insert_here(s, key_of_line(kv, STALE_LINE, 0));
    for (uint32_t i = 0; i < 2; i++)
        insert_here(s, key_of_line(kv, FULL_LINE, i));
    s->there = true;
    sim_until(sim_kv_is_deleted, s, "wait until the record is applied");
    insert_here(s, key_of_line(kv, STALE_LINE, 1)); /* into the slot of the deleted key */
    s->has_tried = true;
}

static void stale_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    (void)thread;
    if (rank == 0) {
        insert_stale(s);
    } else if (rank == 1) {
        sim_until(sim_kv_is_there, s, "wait for the keys");
        delete_in_part(s, key_of_line(s->kvs[1], STALE_LINE, 0));
        sim_until(has_ended, s, "wait for the search");
        remo_kv_close(s->kvs[1]);
        s->kvs[1] = NULL;
    } else {
        sim_until(is_second, s, "wait until the slot is used again");
        search_stale(s, 4);
        s->has_ended = true;
        sim_until(has_departed, s, "wait until the node that has deleted the key has departed");
        search_stale(s, 3);
    }
}

const struct sim_case sim_case_kv_stale = {.object = "kv",
                                           .name = "stale",
                                           .about = "an entry whose removal was lost, of a slot in use",
                                           .nodes = 3,
                                           .threads = 1,
                                           .state_bytes = sizeof(struct kv_state),
                                           .open = open_stale,
                                           .close = sim_kv_close,
                                           .body = stale_body,
                                           .has_own_fault = true};
