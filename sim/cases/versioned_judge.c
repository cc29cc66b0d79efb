/* versioned_judge.c - the judge of the cases of versioned objects. The changes of a commit depend on its
 * number only, so each result is compared with a replay up to its version. Versions order all commits. So a
 * history is linearizable if each read returns a version that is not lower than any returned before the read
 * began, and not higher than the number of commits that had begun when the read ended. */
#include "sim/cases/versioned.h"

#define RECORD_BYTES 24u /* of a record without its data */

/* ---- the plan ---- */

const struct range *sim_versioned_ranges_of(const struct plan *plan, uint32_t number) {
    return plan->entries[(number - 1) % plan->count];
}

unsigned char sim_versioned_byte_of(uint32_t number, uint32_t range, uint32_t at) {
    return (unsigned char)(31 * number + 7 * range + at);
}

uint32_t sim_versioned_log_bytes(const struct plan *plan) {
    return plan->log_bytes ? plan->log_bytes : RECORD_BYTES + (plan->object_bytes + 7) / 8 * 8;
}

/* Apply a commit to an object. Returns whether the commit changes the object. */
static bool apply(const struct plan *plan, uint32_t number, uint32_t object, unsigned char *value) {
    const struct range *ranges = sim_versioned_ranges_of(plan, number);
    bool is_changed = false;
    for (uint32_t i = 0; i < RANGES_MAX && ranges[i].size_bytes != 0; i++) {
        uint32_t end = (uint32_t)ranges[i].offset + ranges[i].size_bytes;
        if (ranges[i].object != object)
            continue;
        is_changed = true;
        for (uint32_t at = ranges[i].offset; at < end; at++)
            value[at] = sim_versioned_byte_of(number, i, at);
    }
    return is_changed;
}

/* Set `value` to the object as of `version`. Returns the version of the last commit that changed it. */
static uint64_t replay(const struct versioned_state *s, uint32_t object, uint64_t version,
                       unsigned char *value) {
    uint64_t last = 0;
    memset(value, 0, s->plan->object_bytes);
    for (uint64_t v = 1; v <= version && v <= COMMITS_MAX; v++)
        if (s->numbers[v] != 0 && apply(s->plan, s->numbers[v], object, value))
            last = v;
    return last;
}

static uint64_t last_change(const struct versioned_state *s, uint32_t object, uint64_t version) {
    unsigned char value[VALUE_BYTES];
    return replay(s, object, version, value);
}

/* Return the bytes of records that a commit appends to an object. */
static uint32_t record_bytes(const struct plan *plan, uint32_t number, uint32_t object) {
    const struct range *ranges = sim_versioned_ranges_of(plan, number);
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < RANGES_MAX && ranges[i].size_bytes != 0; i++)
        if (ranges[i].object == object)
            bytes += RECORD_BYTES + (ranges[i].size_bytes + 7u) / 8 * 8;
    return bytes;
}

/* Add the records of a commit to extents that have used[] bytes of records. Returns the mask of the objects
 * that the commit moves. */
static uint32_t pack(const struct versioned_state *s, uint64_t version, uint32_t *used) {
    uint32_t moved = 0;
    for (uint32_t i = 0; i < s->plan->objects; i++) {
        uint32_t bytes = record_bytes(s->plan, s->numbers[version], i);
        bool moves = used[i] + bytes > sim_versioned_log_bytes(s->plan);
        used[i] = moves ? bytes : used[i] + bytes;
        if (used[i] > sim_versioned_log_bytes(s->plan)) /* rewritten: the base has the changes */
            used[i] = 0;
        moved |= (uint32_t)moves << i;
    }
    return moved;
}

/* Return whether a commit changes an object by a new base, so that the extent before has all older states. */
static bool is_rewritten(const struct versioned_state *s, uint64_t version, uint32_t object) {
    return record_bytes(s->plan, s->numbers[version], object) > sim_versioned_log_bytes(s->plan);
}

uint64_t sim_versioned_moves_since(const struct versioned_state *s, uint32_t object, uint64_t version) {
    uint32_t used[OBJECTS_MAX] = {0};
    uint64_t moves = 0;
    for (uint64_t v = 1; v <= s->begun; v++)
        moves += pack(s, v, used) >> object & (v > version);
    return moves;
}

bool sim_versioned_may_be_stale(const struct versioned_state *s, uint32_t object, uint64_t version) {
    uint32_t used[OBJECTS_MAX] = {0}, moves = 0;
    bool is_moved = false;
    for (uint64_t v = 1; v <= s->begun; v++) {
        uint32_t moved = pack(s, v, used);
        if (moved >> object & 1) /* the new base is of this version or of the one before */
            is_moved = is_moved || (is_rewritten(s, v, object) ? v : last_change(s, object, v - 1)) > version;
        if (is_moved) /* another object of the commit may move after this one */
            moves += (uint32_t)__builtin_popcount(moved);
    }
    return is_moved && moves >= 1 + s->plan->retain;
}

/* ---- judge ---- */

void sim_versioned_note_seen(struct versioned_state *s, uint64_t version) {
    if (s->seen < version)
        s->seen = version;
}

const char *sim_versioned_wrong_with(const struct versioned_state *s, const struct result *result) {
    unsigned char expected[VALUE_BYTES];
    uint64_t newest = result->instant == NO_INSTANT ? result->version : result->instant;
    if (newest > result->begun)
        return "a version whose commit has not begun";
    if (result->instant != NO_INSTANT && result->instant < result->seen)
        return "an instant before a version that a call had returned";
    if (result->version < last_change(s, result->object, result->seen))
        return "a version older than one that a call had returned";
    if (replay(s, result->object, newest, expected) != result->version)
        return "a version other than that of the last change";
    return memcmp(expected, result->value, s->plan->object_bytes) == 0 ? NULL : "a torn value";
}

void sim_versioned_require_right(const struct versioned_state *s, const struct result *result) {
    const char *wrong = sim_versioned_wrong_with(s, result);
    sim_require(!wrong,
                "node %u, object %u: version %llu, instant %lld, %llu seen before, %llu commits begun: %s",
                result->rank, result->object, (unsigned long long)result->version, (long long)result->instant,
                (unsigned long long)result->seen, (unsigned long long)result->begun, wrong);
}

void sim_versioned_judge(struct versioned_state *s, const struct result *result) {
    if (!s->is_late)
        sim_versioned_require_right(s, result);
    else if (s->results_count < RESULTS_MAX)
        s->results[s->results_count++] = *result;
    else
        sim_fail("more results than %u", RESULTS_MAX);
}
