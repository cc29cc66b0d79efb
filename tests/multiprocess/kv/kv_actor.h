/* kv_actor.h - one thread that works on the map without pause: it changes its own keys, reads the keys of all
 * threads, and checks every result.
 *
 * Each key has one writer. Each change of a key has a number, one more than that of the change before, also
 * across delete and insert; values contain it. The writer records the number before a change begins and after
 * it is complete, in memory that all processes share. A get must return a change between the last one that
 * was complete before the get began, and the last one that began before the get returned. It may return
 * -ENOENT only if the key was absent, or a delete had begun. */
#pragma once

#include "kv_common.h"

#define ACTOR_WINDOW_MAX 128
#define ACTOR_KEYS_MAX 64 /* of one thread */

/* The last complete change of a key: its number, the number of deletes up to it, and whether the key is
 * present. */
struct actor_done {
    uint64_t number, deletes, present;
};

static inline uint64_t actor_done_pack(struct actor_done done) {
    return done.number << 32 | done.deletes << 1 | done.present;
}

static inline struct actor_done actor_done_unpack(uint64_t word) {
    return (struct actor_done){
        .number = word >> 32, .deletes = (word & UINT32_MAX) >> 1, .present = word & 1};
}

/* The record of a key, written by its writer. */
struct actor_key {
    _Atomic uint64_t done;    /* see actor_done */
    _Atomic uint64_t begun;   /* change number */
    _Atomic uint64_t deletes; /* begun */
    _Atomic uint32_t unknown; /* a change failed, so the writer does not change the key again */
};

struct actor_options {
    uint32_t actors; /* of all nodes */
    uint32_t keys;   /* of each actor */
    uint32_t window;
    uint32_t write_percent;
    uint32_t value_bytes_max;
    uint32_t key_bytes; /* at least 8 */
    _Atomic uint32_t *stop;
    _Atomic uint32_t *killed; /* a node was killed: errors of unreachable nodes are expected; may be NULL */
};

struct actor_slot {
    struct remo_kv_op op;
    uint64_t id;     /* of the key */
    uint64_t number; /* of the change */
    int expected;
    struct actor_done before; /* a get */
    uint32_t in_flight;
    unsigned char key[256];
    unsigned char value[4096];
};

struct actor {
    const struct actor_options *options;
    struct remo_kv *kv;
    struct actor_key *keys; /* of all actors, shared */
    uint32_t me;
    struct remo__random random;
    struct {
        uint64_t number, deletes;
        uint32_t present, busy, unknown;
    } mine[ACTOR_KEYS_MAX];
    struct actor_slot slots[ACTOR_WINDOW_MAX];
    uint64_t done, lost;
};

static inline struct actor_key *actor_key_of(const struct actor *actor, uint64_t id) {
    return &actor->keys[id];
}

static inline void actor_fill(struct actor *actor, struct actor_slot *slot, enum remo_kv_kind kind,
                              uint64_t id) {
    const struct actor_options *options = actor->options;
    memset(slot->key, (int)id, options->key_bytes);
    memcpy(slot->key, &id, sizeof id);
    slot->id = id;
    slot->op = (struct remo_kv_op){.kind = kind,
                                   .key = slot->key,
                                   .key_bytes = options->key_bytes,
                                   .value = slot->value,
                                   .value_bytes = sizeof slot->value};
    slot->in_flight = 1;
}

static inline void actor_begin_get(struct actor *actor, struct actor_slot *slot) {
    const struct actor_options *options = actor->options;
    actor_fill(actor, slot, REMO_KV_GET,
               remo__random_below(&actor->random, (uint64_t)options->actors * options->keys));
    slot->before = actor_done_unpack(atomic_load(&actor_key_of(actor, slot->id)->done));
}

static inline enum remo_kv_kind actor_choose(struct actor *actor, uint32_t present) {
    uint64_t dice = remo__random_below(&actor->random, 100);
    if (present)
        return dice < 60 ? REMO_KV_UPDATE : dice < 90 ? REMO_KV_DELETE : REMO_KV_INSERT;
    return dice < 80 ? REMO_KV_INSERT : dice < 90 ? REMO_KV_UPDATE : REMO_KV_DELETE;
}

/* Start a change of a key of this thread; returns false if all its keys are being changed. */
static inline int actor_begin_change(struct actor *actor, struct actor_slot *slot) {
    const struct actor_options *options = actor->options;
    uint32_t i = (uint32_t)remo__random_below(&actor->random, options->keys);
    if (actor->mine[i].busy || actor->mine[i].unknown)
        return 0;
    uint32_t present = actor->mine[i].present;
    enum remo_kv_kind kind = actor_choose(actor, present);
    actor_fill(actor, slot, kind, (uint64_t)actor->me * options->keys + i);
    slot->expected = kind == REMO_KV_INSERT ? (present ? -EEXIST : 0) : (present ? 0 : -ENOENT);
    slot->number = actor->mine[i].number + 1;
    slot->op.value_bytes = 16 + remo__random_below(&actor->random, options->value_bytes_max - 15);
    kv_value_make(slot->value, slot->op.value_bytes, slot->id, slot->number);
    struct actor_key *shared = actor_key_of(actor, slot->id);
    if (slot->expected == 0) {
        if (kind == REMO_KV_DELETE)
            atomic_fetch_add(&shared->deletes, 1);
        atomic_store(&shared->begun, slot->number);
    }
    actor->mine[i].busy = 1;
    return 1;
}

static inline int actor_excused(const struct actor *actor, int status) {
    return actor->options->killed && atomic_load(actor->options->killed)
           && (status == -EHOSTDOWN || status == -ENOTCONN);
}

static inline int actor_end_get(struct actor *actor, struct actor_slot *slot) {
    struct actor_key *shared = actor_key_of(actor, slot->id);
    uint64_t begun = atomic_load(&shared->begun), deletes = atomic_load(&shared->deletes), number;
    if (actor_excused(actor, slot->op.status)) {
        actor->lost++;
        return 0;
    }
    if (slot->op.status == -ENOENT) {
        CHECK(!slot->before.present || deletes > slot->before.deletes);
        return 0;
    }
    CHECK_CODE(slot->op.status, 0);
    CHECK(kv_value_check(slot->value, slot->op.value_bytes, slot->id, &number));
    CHECK(number <= begun);
    CHECK(number >= slot->before.number + !slot->before.present);
    return 0;
}

static inline int actor_end_change(struct actor *actor, struct actor_slot *slot) {
    uint32_t i = (uint32_t)(slot->id % actor->options->keys);
    struct actor_key *shared = actor_key_of(actor, slot->id);
    actor->mine[i].busy = 0;
    if (actor_excused(actor, slot->op.status)) {
        actor->mine[i].unknown = 1;
        atomic_store(&shared->unknown, 1);
        actor->lost++;
        return 0;
    }
    CHECK_CODE(slot->op.status, slot->expected);
    if (slot->expected != 0)
        return 0;
    if (slot->op.kind != REMO_KV_UPDATE)
        actor->mine[i].present = slot->op.kind == REMO_KV_INSERT;
    actor->mine[i].number = slot->number;
    actor->mine[i].deletes += slot->op.kind == REMO_KV_DELETE;
    atomic_store(&shared->done, actor_done_pack((struct actor_done){.number = slot->number,
                                                                    .deletes = actor->mine[i].deletes,
                                                                    .present = actor->mine[i].present}));
    return 0;
}

static inline int actor_end(struct actor *actor, struct actor_slot *slot) {
    slot->in_flight = 0;
    actor->done++;
    return slot->op.kind == REMO_KV_GET ? actor_end_get(actor, slot) : actor_end_change(actor, slot);
}

/* Keep the window full until `stop` is set, then complete it. The first window is always started: on a busy
 * machine the thread may begin late. */
static inline int actor_run(struct actor *actor) {
    const struct actor_options *options = actor->options;
    uint32_t in_flight = 0, turn = 0;
    do {
        for (uint32_t i = 0; i < options->window; i++) {
            struct actor_slot *slot = &actor->slots[i];
            if (slot->in_flight && slot->op.status != -EINPROGRESS) {
                in_flight--;
                if (actor_end(actor, slot) != 0)
                    return 1;
            }
            if (slot->in_flight || (turn > 0 && atomic_load(options->stop)))
                continue;
            if (remo__random_below(&actor->random, 100) >= options->write_percent
                || !actor_begin_change(actor, slot))
                actor_begin_get(actor, slot);
            CHECK_OK(remo_kv_start(actor->kv, &slot->op));
            in_flight++;
        }
        struct actor_slot *first = &actor->slots[turn++ % options->window];
        if (first->in_flight && turn % 3 == 0)
            (void)remo_kv_wait(actor->kv, &first->op);
        else
            CHECK(remo_kv_poll(actor->kv) >= 0);
    } while (in_flight > 0 || !atomic_load(options->stop));
    return 0;
}

static inline void actor_prepare(struct actor *actor, const struct actor_options *options, struct remo_kv *kv,
                                 struct actor_key *keys, uint32_t me) {
    memset(actor, 0, sizeof *actor);
    actor->options = options;
    actor->kv = kv;
    actor->keys = keys;
    actor->me = me;
    remo__random_seed(&actor->random, me * 77 + 5);
}
