/* grace.c - pins of a heap, and grace periods of retired blocks (docs/internals/heap.md).
 *
 * A thread stores an odd pin, fences, and loads addresses. The owner removes an address, fences, and reads
 * the pins. So the owner reads the pin, or the thread does not load the address. Invariant: a block becomes
 * FREE only when each pin that was odd after its retirement has changed, or its node is cut off. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects/heap/heap.h"

#define PINS_BYTES ((uint64_t)REMO__THREADS_MAX * HEAP_PIN_BYTES)
#define PAUSE_NS_MIN (50 * REMO__NS_PER_US) /* between two attempts to reclaim */
#define PAUSE_NS_MAX REMO__NS_PER_MS

static_assert(PINS_BYTES <= REMO__BOUNCE_BYTES, "one operation reads the pins of a node");

/* ---- pins ---- */

static char *own_pin(const struct remo_heap *heap, const struct remo__thread *thread) {
    return heap->region->memory->own + (uint64_t)thread->index * HEAP_PIN_BYTES;
}

static void store_pin(char *pin, uint64_t value) {
    remo__store(pin, value);
    remo__flush(pin, sizeof value);
}

int remo_heap_pin(struct remo_heap *heap) {
    REMO__REQUIRE(heap);
    struct remo__thread *thread;
    struct heap_thread *state;
    int rc = remo__heap_thread(heap, &thread, &state);
    if (rc == 0)
        rc = remo__channel_check_match(heap->region->channel);
    if (rc != 0 || state->pin_depth++ > 0)
        return rc;
    /* An odd pin remains if the earlier thread with this index failed to unpin at its end. */
    if (state->pin % 2 == 0)
        store_pin(own_pin(heap, thread), ++state->pin);
    remo__mapped_fence(); /* pairs with the fence in begin() */
    return 0;
}

int remo_heap_unpin(struct remo_heap *heap) {
    REMO__REQUIRE(heap);
    struct remo__thread *thread;
    struct heap_thread *state;
    int loss = 0, rc = remo__heap_thread(heap, &thread, &state);
    if (rc != 0)
        return rc;
    if (state->pin_depth == 0)
        return remo__fail(-EINVAL, "cannot unpin heap %s: this thread has not pinned it",
                          remo_channel_name(heap->region->channel));
    if (--state->pin_depth == 0) {
        uint32_t number = ++state->unpins;
        rc = remo__fence_retry(thread, REMO_FENCE_THREAD, 0, &loss);
        if (rc != 0) { /* a write may be placed later */
            state->pin_depth++;
            return remo__fail_more(-ETIMEDOUT, "unpinning heap %s", remo_channel_name(heap->region->channel));
        }
        /* During the fence another task may have pinned, or pinned, written and begun to unpin. */
        if (state->pin_depth == 0 && state->unpins == number)
            store_pin(own_pin(heap, thread), ++state->pin);
    }
    return loss == -ETIMEDOUT ? remo__fail_more(-EIO, "heap %s", remo_channel_name(heap->region->channel))
                              : loss;
}

void remo__heap_grace_unpin(struct remo_heap *heap, struct remo__thread *thread, struct heap_thread *state) {
    state->pin_depth = 0;
    if (state->pin % 2 == 1 && remo__fence_retry(thread, REMO_FENCE_THREAD, 0, NULL) == 0)
        store_pin(own_pin(heap, thread), ++state->pin);
}

/* ---- the retired blocks ---- */

void remo__heap_grace_note(struct remo_heap *heap, struct heap_slab *slab) {
    if (atomic_exchange(&slab->in_limbo, true))
        return;
    slab->next_in_limbo = atomic_load(&heap->limbo);
    while (!atomic_compare_exchange_weak(&heap->limbo, &slab->next_in_limbo, slab))
        continue;
}

/* Record the retired blocks of a slab as waiting. Return whether there are any. */
static bool mark_waiting(struct heap_slab *slab) {
    uint32_t any = 0;
    atomic_store(&slab->in_limbo, false); /* a later retirement enters the slab again */
    for (uint32_t i = 0; i < slab->word_count; i++)
        any |= slab->waiting[i] = (uint32_t)(atomic_load(&slab->words[i]) >> HEAP_BITS);
    return any != 0;
}

static void count_end(struct heap_grace *grace) {
    atomic_fetch_add(&grace->ended, 1);
}

/* Begin a grace period for all blocks that are retired now, if there are any. */
static void begin(struct remo_heap *heap) {
    struct heap_grace *grace = &heap->grace;
    /* before the exchange: a block that is retired later needs the next one */
    atomic_fetch_add(&grace->begun, 1);
    struct heap_slab *slab = atomic_exchange(&heap->limbo, NULL);
    pthread_mutex_lock(&heap->lock); /* a slab may have been emptied since it entered the list */
    while (slab) {
        struct heap_slab *next = slab->next_in_limbo;
        if (mark_waiting(slab)) {
            slab->next_in_grace = grace->slabs;
            grace->slabs = slab;
        }
        slab = next;
    }
    pthread_mutex_unlock(&heap->lock);
    if (!grace->slabs) {
        count_end(grace);
        return;
    }
    grace->is_active = true;
    grace->pending = heap->region->channel->participants;
    grace->read = (struct remo_nodeset){0};
    remo__mapped_fence(); /* pairs with the fence in remo_heap_pin: a CPU store may have removed a block */
}

static void end(struct remo_heap *heap) {
    struct heap_grace *grace = &heap->grace;
    struct heap_slab *slab = grace->slabs;
    grace->slabs = NULL;
    grace->is_active = false;
    while (slab) {
        struct heap_slab *next = slab->next_in_grace;
        uint32_t words = slab->word_count; /* the release of the last block may free the slab for reuse */
        uint32_t waiting[1u << (HEAP_CAPACITIES - 1)];
        memcpy(waiting, slab->waiting, words * sizeof waiting[0]);
        memset(slab->waiting, 0, words * sizeof waiting[0]);
        for (uint32_t i = 0; i < words; i++)
            if (waiting[i] != 0)
                remo__heap_blocks_release(heap, slab, i, waiting[i]);
        slab = next;
    }
    count_end(grace);
}

/* ---- the pins of the participants ---- */

enum verdict { PASSED, PINNED, NOT_OPENED, UNKNOWN, READING };

static char *copy_of_pins(const struct remo_heap *heap, uint32_t node) {
    return heap->grace.pins + (size_t)node * PINS_BYTES;
}

/* Compare a copy of a participant's pins with the first copy of this grace period. */
static enum verdict compare_pins(struct remo_heap *heap, uint32_t node) {
    struct heap_grace *grace = &heap->grace;
    uint64_t *pinned = grace->pinned + (size_t)node * REMO__THREADS_MAX, any = 0;
    bool is_first = !remo_nodeset_has(&grace->read, node);
    for (uint32_t i = 0; i < REMO__THREADS_MAX; i++) {
        uint64_t pin;
        memcpy(&pin, copy_of_pins(heap, node) + (uint64_t)i * HEAP_PIN_BYTES, sizeof pin);
        if (is_first)
            pinned[i] = pin % 2 ? pin : 0;
        else if (pinned[i] != pin)
            pinned[i] = 0;
        any |= pinned[i];
    }
    remo_nodeset_add(&grace->read, node);
    return any ? PINNED : PASSED;
}

static void copy_own_pins(struct remo_heap *heap) {
    for (uint32_t i = 0; i < REMO__THREADS_MAX; i++) {
        uint64_t pin = remo__load(heap->region->memory->own + (uint64_t)i * HEAP_PIN_BYTES);
        memcpy(copy_of_pins(heap, heap->rank) + (uint64_t)i * HEAP_PIN_BYTES, &pin, sizeof pin);
    }
}

/* Start to read the pins of a participant, before the deadline. */
static enum verdict start_read(struct remo_heap *heap, uint32_t node, uint64_t deadline_ns) {
    struct remo_ack *ack = &heap->grace.acks[node];
    struct remo__ref ref;
    *ack = (struct remo_ack)REMO_ACK_INIT;
    int rc = remo__region_find(heap->region, node, 0, &ref);
    if (rc == 0)
        rc = remo__op_start_read(ref, copy_of_pins(heap, node), PINS_BYTES, ack, deadline_ns);
    if (rc == -ETIMEDOUT)
        remo__fail(rc,
                   "a read of the pins of node %u has not started: this thread has too many operations in "
                   "flight",
                   node);
    return rc == 0 ? READING : UNKNOWN; /* if the participant has failed, its state changes soon */
}

/* Wait for the read of a participant's pins, until the deadline. */
static enum verdict finish_read(struct remo_heap *heap, uint32_t node, uint64_t deadline_ns) {
    struct remo_ack *ack = &heap->grace.acks[node];
    int rc = remo_ack_wait(ack, remo__remaining_ns(deadline_ns));
    if (rc == 0)
        return compare_pins(heap, node);
    if (rc == -ETIMEDOUT)
        remo__fail(rc, "node %u has not answered a read of its pins", node);
    remo_ack_cancel(ack); /* a late answer must not change the copy */
    return UNKNOWN;
}

/* Examine whether a participant may use a block of the current grace period. After a failure the state of the
 * channel changes later than that of the node, after the node was cut off. Until then a write of the failed
 * node may be placed, so the state of the channel decides. A participant that has closed the heap may have a
 * write in flight until it is cut off. */
static enum verdict examine(struct remo_heap *heap, uint32_t node, uint64_t deadline_ns) {
    uint32_t state = atomic_load(&heap->region->channel->peers[node].state);
    enum remo_peer_state in_job = remo_node_peer(heap->node, node);
    if (node == heap->rank) {
        copy_own_pins(heap);
        return compare_pins(heap, node);
    }
    if (state == REMO_CHANNEL_LEFT && !remo__channel_is_cut_off(heap->region->channel, node)) {
        remo__fail(-ETIMEDOUT, "operations of node %u, which has closed the heap, are in flight", node);
        return UNKNOWN;
    }
    if (state == REMO_CHANNEL_LEFT || state == REMO_CHANNEL_DOWN
        || (in_job > REMO_PEER_UP && remo_nodeset_has(&heap->absent, node)))
        return PASSED;
    return state == REMO_CHANNEL_WAITING ? NOT_OPENED : start_read(heap, node, deadline_ns);
}

/* Return -ETIMEDOUT with a sentence that names the participant. */
static int delayed_by(const struct remo_heap *heap, uint32_t node, enum verdict verdict) {
    const char *name = remo_channel_name(heap->region->channel);
    if (verdict == PINNED)
        return remo__fail(-ETIMEDOUT,
                          "retired blocks of heap %s cannot be reused: a thread of node %u is still pinned; "
                          "unpin it",
                          name, node);
    if (verdict == NOT_OPENED)
        return remo__fail(-ETIMEDOUT,
                          "retired blocks of heap %s cannot be reused: node %u has not opened the heap; open "
                          "it there",
                          name, node);
    return remo__fail_more(-ETIMEDOUT, "retired blocks of heap %s cannot be reused", name);
}

/* Record the verdict on a participant. Return 0, or -ETIMEDOUT if the participant delays the end. */
static int conclude(struct remo_heap *heap, uint32_t node, enum verdict verdict) {
    if (verdict != PASSED)
        return delayed_by(heap, node, verdict);
    remo_nodeset_remove(&heap->grace.pending, node);
    return 0;
}

/* Examine all participants that may still use blocks of the grace period. The reads of their pins overlap;
 * they start and end before the deadline. Return 0 if no participant may, or -ETIMEDOUT with a sentence. */
static int examine_all(struct remo_heap *heap, uint64_t deadline_ns) {
    const struct remo_nodeset *pending = &heap->grace.pending;
    struct remo_nodeset reading = {0};
    int rc = 0;
    for (uint32_t node = remo__nodeset_next(pending, 0); node < REMO_NODES_MAX;
         node = remo__nodeset_next(pending, node + 1)) {
        enum verdict verdict = examine(heap, node, deadline_ns);
        if (verdict == READING)
            remo_nodeset_add(&reading, node);
        else
            rc = conclude(heap, node, verdict) ? -ETIMEDOUT : rc;
    }
    for (uint32_t node = remo__nodeset_next(&reading, 0); node < REMO_NODES_MAX;
         node = remo__nodeset_next(&reading, node + 1))
        rc = conclude(heap, node, finish_read(heap, node, deadline_ns)) ? -ETIMEDOUT : rc;
    return rc;
}

/* Begin, continue or end grace periods until number `goal` has ended, or no block is retired. The caller
 * holds `busy`. Blocks for op_timeout_ns at most. Return 0, or -ETIMEDOUT with a sentence that names a
 * participant. */
static int advance(struct remo_heap *heap, uint64_t goal) {
    struct heap_grace *grace = &heap->grace;
    uint64_t deadline_ns = remo__deadline(heap->node->op_timeout_ns);
    while (atomic_load(&grace->ended) < goal) {
        if (!grace->is_active)
            begin(heap);
        if (!grace->is_active)
            return 0;
        int rc = examine_all(heap, deadline_ns);
        if (rc != 0)
            return rc;
        end(heap);
    }
    return 0;
}

static int try_reclaim(struct remo_heap *heap, uint64_t goal) {
    struct heap_grace *grace = &heap->grace;
    if (atomic_load(&grace->ended) >= goal)
        return 0;
    if (atomic_exchange(&grace->busy, true))
        return remo__fail(-ETIMEDOUT,
                          "retired blocks of heap %s cannot be reused: another thread of this node reclaims "
                          "them; try again",
                          remo_channel_name(heap->region->channel));
    int rc = advance(heap, goal);
    atomic_store(&grace->busy, false);
    return rc;
}

/* Pause between two attempts, longer each time. */
static void pause_attempts(struct remo_heap *heap, uint64_t deadline_ns, uint64_t *pause_ns) {
    remo__pause(heap->node, remo__min(deadline_ns, remo__deadline(*pause_ns)));
    *pause_ns = remo__min(2 * *pause_ns, PAUSE_NS_MAX);
}

/* The grace period that is active at the call may have begun before the last retirement. So the next one is
 * needed. */
int remo_heap_reclaim(struct remo_heap *heap, uint64_t timeout_ns) {
    REMO__REQUIRE(heap);
    uint64_t goal = atomic_load(&heap->grace.begun) + 1, pause_ns = PAUSE_NS_MIN;
    uint64_t deadline_ns = timeout_ns > 0 ? remo__deadline(timeout_ns) : 0;
    char sentence[REMO__SENTENCE_MAX];
    int rc;
    while ((rc = try_reclaim(heap, goal)) != 0 && timeout_ns > 0 && remo__remaining_ns(deadline_ns) > 0) {
        snprintf(sentence, sizeof sentence, "%s", remo_last_error());
        pause_attempts(heap, deadline_ns, &pause_ns);
        remo__fail(rc, "%s", sentence);
    }
    return rc;
}

/* ---- open and close ---- */

int remo__heap_grace_open(struct remo_heap *heap) {
    struct heap_grace *grace = &heap->grace;
    grace->pinned = calloc((size_t)heap->node->size * REMO__THREADS_MAX, sizeof grace->pinned[0]);
    grace->pins = calloc(heap->node->size, PINS_BYTES);
    grace->acks = calloc(heap->node->size, sizeof grace->acks[0]);
    return grace->pinned && grace->pins && grace->acks
               ? 0
               : remo__fail(-ENOMEM, "no memory for the pins of a heap");
}

void remo__heap_grace_close(struct remo_heap *heap) {
    free(heap->grace.pinned);
    free(heap->grace.pins);
    free(heap->grace.acks);
}

bool remo__heap_grace_last(struct remo_heap *heap) {
    struct heap_grace *grace = &heap->grace;
    const struct remo_nodeset *participants = &heap->region->channel->participants;
    uint64_t deadline_ns = remo__deadline(heap->node->op_timeout_ns), pause_ns = PAUSE_NS_MIN;
    grace->pending = (struct remo_nodeset){0};
    grace->read = (struct remo_nodeset){0};
    for (uint32_t node = remo__nodeset_next(participants, 0); node < REMO_NODES_MAX;
         node = remo__nodeset_next(participants, node + 1))
        if (node != heap->rank && remo__channel_may_have_opened(heap->region->channel, node))
            remo_nodeset_add(&grace->pending, node);
    remo__mapped_fence();
    while (examine_all(heap, deadline_ns) != 0 && remo__remaining_ns(deadline_ns) > 0)
        pause_attempts(heap, deadline_ns, &pause_ns);
    return remo_nodeset_empty(&grace->pending);
}
