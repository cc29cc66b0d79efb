/* directory.h - a structure of one's own (docs/tutorial.md): a map whose keys begin with their owner's rank.
 * Layout: SLOTS slots of each node. A key is in its own slot or, moved, in another slot of its group.
 * Cost: lookup = 1 read. Then 1 call, if this slot neither has the key nor proves that the key is absent. */
#include <errno.h>
#include <remo/remo.h>
#include <stdatomic.h>

enum { SLOTS = 128, GROUP = 8, CHANGE = 256, KEY_BYTES_MAX = 16, VALUE_BYTES_MAX = 8 };

struct slot {
    uint64_t item[6];       /* 24 bytes of the library, a key of at most 16 bytes, a value of at most 8 */
    _Atomic uint64_t moved; /* {changes:56, keys:8}: keys of this slot that are in other slots */
};

struct directory {
    struct remo_structure *structure;
    struct slot *slots;            /* this node's */
    _Atomic uint64_t places[1024]; /* by hash: 1 + the offset where the owner has found the key; 0: unknown */
};

/* Return the offset of the key's own slot (way 0), or of another slot of its group (1 to GROUP - 1). */
static uint64_t slot_at(const struct remo_structure_key *key, uint32_t way) {
    return (key->hash % SLOTS ^ way) * sizeof(struct slot);
}

static uint32_t owner_of(void *ctx, const struct remo_structure_key *key) {
    (void)ctx;
    return (uint32_t)(*(const char *)key->data - '0');
}

static bool lookup_start(void *ctx, const struct remo_structure_key *key, uint32_t owner,
                         struct remo_structure_place *ret_place) {
    uint64_t place = ((struct directory *)ctx)->places[key->hash >> 54];
    (void)owner;
    *ret_place = (struct remo_structure_place){place ? place - 1 : slot_at(key, 0), sizeof(struct slot)};
    return true;
}

static enum remo_lookup_verdict lookup_end(void *ctx, const struct remo_structure_key *key, uint32_t owner,
                                           const struct remo_structure_place *place, const void *data,
                                           struct remo_item *ret_item) {
    struct directory *d = ctx;
    const struct slot *slot = data;
    enum remo_item_state state = remo_item_read(d->structure, key, slot->item, place->offset, ret_item);
    (void)owner;
    if (state == REMO_ITEM_MATCHES || state == REMO_ITEM_TORN)
        return state == REMO_ITEM_MATCHES ? REMO_LOOKUP_FOUND : REMO_LOOKUP_TORN;
    d->places[key->hash >> 54] = 0; /* another key is there now, or none */
    bool is_own = place->offset == slot_at(key, 0);
    return is_own && slot->moved % CHANGE == 0 ? REMO_LOOKUP_ABSENT : REMO_LOOKUP_ELSEWHERE;
}

static void learn(void *ctx, const struct remo_structure_key *key, uint32_t owner, uint64_t offset) {
    (void)owner;
    ((struct directory *)ctx)->places[key->hash >> 54] = 1 + offset;
}

static uint32_t group_of(void *ctx, const struct remo_structure_key *key) {
    (void)ctx;
    return (uint32_t)(key->hash % SLOTS / GROUP);
}

static uint64_t seek(struct directory *d, const struct remo_structure_key *key, enum remo_item_state state) {
    uint32_t way = 0;
    while (way < GROUP && remo_item_state_of(d->structure, key, slot_at(key, way)) != state)
        way++;
    return way < GROUP ? slot_at(key, way) : REMO_STRUCTURE_NOWHERE;
}

static uint64_t find(void *ctx, const struct remo_structure_key *key) {
    return seek(ctx, key, REMO_ITEM_MATCHES);
}

static int make(void *ctx, const struct remo_structure_key *key, uint64_t *ret_offset) {
    *ret_offset = seek(ctx, key, REMO_ITEM_FREE);
    return *ret_offset == REMO_STRUCTURE_NOWHERE ? -ENOSPC : 0;
}

static void link_item(void *ctx, const struct remo_structure_key *key, uint64_t offset) {
    if (offset != slot_at(key, 0))
        atomic_fetch_add(&((struct directory *)ctx)->slots[key->hash % SLOTS].moved, CHANGE + 1);
}

static void unlink_item(void *ctx, const struct remo_structure_key *key, uint64_t offset) {
    if (offset != slot_at(key, 0))
        atomic_fetch_add(&((struct directory *)ctx)->slots[key->hash % SLOTS].moved, CHANGE - 1);
}

static void opened(void *ctx, struct remo_structure *structure, char *share) {
    *(struct directory *)ctx = (struct directory){.structure = structure, .slots = (struct slot *)share};
}

static int directory_open(struct remo_channel *parent, const char *name, struct directory *d) {
    static const struct remo_structure_type type = {
        "directory", owner_of, lookup_start, lookup_end, learn, group_of, find, make, link_item, unlink_item};
    const struct remo_structure_options options = {
        {{0}}, SLOTS * sizeof(struct slot), KEY_BYTES_MAX, VALUE_BYTES_MAX, d, opened};
    return remo_structure_open(parent, name, &type, &options, &d->structure);
}
