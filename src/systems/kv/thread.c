/* thread.c - the state of each thread, task and worker in a map, and its buffers for slots.
 * A task has a state of its own, so that operations overlap; the next task with its index uses it again. A
 * worker uses any free one of its thread. On fabrics that are not mapped the buffers are in the arena, so the
 * network accesses them without a copy. A buffer that an operation in flight may still access is not
 * reused. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "systems/kv/kv.h"

#define OWN_BUFFERS 2u /* `outgoing` and `image` */

_Static_assert(REMO__KV_READS_MAX + OWN_BUFFERS <= 64 * REMO__KV_BUFFERS_WORDS, "each buffer has a bit");

static uint32_t buffers_of(const struct remo_kv *kv, uint32_t holder) {
    bool is_task = holder >> REMO__HOLDER_TASK_SHIFT != 0;
    uint64_t bytes = is_task ? REMO__KV_TASK_READS_BYTES : REMO__KV_READS_BYTES;
    uint64_t most = is_task ? REMO__KV_TASK_READS_MAX : REMO__KV_READS_MAX;
    if (holder & REMO__HOLDER_WORKER) /* no window; the others replace those that are lost */
        return OWN_BUFFERS + REMO__KV_WORKER_SPARES;
    return (uint32_t)remo__min(most, 1 + bytes / kv->shape.slot_bytes) + OWN_BUFFERS;
}

static int make_buffers(const struct remo_kv *kv, struct remo__kv_thread *mine, uint32_t holder) {
    uint32_t count = buffers_of(kv, holder);
    mine->scratch = aligned_alloc(REMO__CACHE_LINE, kv->shape.slot_bytes);
    if (!mine->scratch)
        return remo__fail(-ENOMEM, "no memory for a slot of %llu bytes",
                          (unsigned long long)kv->shape.slot_bytes);
    mine->outgoing = mine->image = mine->scratch;
    if (kv->node->mapped)
        return 0;
    bool is_window = !(holder & REMO__HOLDER_WORKER);
    mine->updates = is_window ? calloc(REMO__KV_UPDATES, sizeof(struct remo__kv_thread *)) : NULL;
    if (is_window && !mine->updates)
        return remo__fail(-ENOMEM, "no memory for the updates of a window");
    mine->buffers_bytes = count * kv->shape.slot_bytes;
    int rc = remo__arena_alloc(kv->node->arena, mine->buffers_bytes, &mine->buffers_offset);
    if (rc != 0)
        return rc;
    mine->buffers = remo__arena_base(kv->node->arena) + mine->buffers_offset;
    for (uint32_t i = 0; i < count; i++)
        remo__kv_buffer_give(mine, i);
    mine->outgoing = remo__kv_buffer(mine, (uint32_t)remo__kv_buffer_take(mine));
    mine->image = remo__kv_buffer(mine, (uint32_t)remo__kv_buffer_take(mine));
    return 0;
}

static struct remo__kv_thread *make_state(struct remo_kv *kv, struct remo__thread *thread, uint32_t holder) {
    struct remo__kv_thread *mine = calloc(1, sizeof *mine);
    if (!mine) {
        remo__fail(-ENOMEM, "no memory for the state of a thread in map %s", remo_channel_name(kv->channel));
        return NULL;
    }
    mine->kv = kv;
    int rc = make_buffers(kv, mine, holder);
    if (rc != 0) {
        free(mine->updates);
        free(mine->scratch);
        free(mine);
        remo__fail_more(rc, "map %s: the buffers of a thread", remo_channel_name(kv->channel));
        return NULL;
    }
    mine->thread = thread;
    mine->holder = holder;
    mine->stats = remo__channel_counters(kv->slots->channel, thread);
    return mine;
}

/* Make room for the state of task `index`. */
static int make_room(struct remo__kv_thread *of_thread, uint32_t index) {
    uint32_t before = of_thread->tasks_count, count = (uint32_t)remo__max(2 * before, index + 1);
    struct remo__kv_thread **tasks = realloc(of_thread->tasks, count * sizeof(struct remo__kv_thread *));
    if (!tasks)
        return remo__fail(-ENOMEM, "no memory for the states of %u tasks in a map", count);
    memset(tasks + before, 0, (count - before) * sizeof(struct remo__kv_thread *));
    of_thread->tasks = tasks;
    of_thread->tasks_count = count;
    return 0;
}

/* Only the thread with this index calls this for its index, so there is no race. */
struct remo__kv_thread *remo__kv_thread_find(struct remo_kv *kv, struct remo__thread *thread) {
    struct remo__kv_thread *of_thread = atomic_load(&kv->threads[thread->index]);
    uint32_t index = thread->holder >> REMO__HOLDER_TASK_SHIFT; /* of the task; 0: none */
    if (!of_thread) {
        of_thread = make_state(kv, thread, thread->index);
        atomic_store_explicit(&kv->threads[thread->index], of_thread, memory_order_release);
    }
    if (!of_thread || index == 0)
        return of_thread;
    if (index >= of_thread->tasks_count && make_room(of_thread, index) != 0)
        return NULL;
    if (!of_thread->tasks[index])
        of_thread->tasks[index] = make_state(kv, thread, thread->holder);
    return of_thread->tasks[index];
}

bool remo__kv_worker_is_able(struct remo__kv_thread *own) {
    return !own->is_kept && remo__kv_buffer_ensure(own, &own->outgoing) == 0
           && remo__kv_buffer_ensure(own, &own->image) == 0;
}

static struct remo__kv_thread *make_worker(struct remo_kv *kv, struct remo__kv_thread *of_thread) {
    struct remo__kv_thread *own =
        make_state(kv, of_thread->thread, of_thread->thread->index | REMO__HOLDER_WORKER);
    if (!own)
        return NULL;
    own->next_worker = of_thread->workers;
    of_thread->workers = own;
    of_thread->workers_count++;
    return own;
}

/* Remove the first state from the free ones that a worker can use, usually the first of all. */
static struct remo__kv_thread *take_free(struct remo__kv_thread *of_thread) {
    struct remo__kv_thread **at = &of_thread->free_workers, *own;
    while ((own = *at) != NULL && !remo__kv_worker_is_able(own))
        at = &own->next_free;
    if (own)
        *at = own->next_free;
    return own;
}

/* The states of windows are in no list. */
void remo__kv_worker_give(struct remo__kv_thread *own) {
    own->is_used = false;
    if (own == own->window)
        return;
    struct remo__kv_thread *of_thread = atomic_load(&own->kv->threads[own->thread->index]);
    own->next_free = of_thread->free_workers;
    of_thread->free_workers = own;
}

struct remo__kv_thread *remo__kv_worker_take(struct remo_kv *kv, struct remo__kv_thread *mine) {
    struct remo__kv_thread *of_thread = atomic_load(&kv->threads[mine->thread->index]);
    struct remo__kv_thread *own = take_free(of_thread);
    if (!own && of_thread->workers_count < kv->workers_max)
        own = make_worker(kv, of_thread);
    if (!own && !mine->is_used && remo__kv_worker_is_able(mine))
        own = mine;
    if (!own)
        return NULL;
    own->is_used = true;
    own->window = mine;
    return own;
}

static void close_state(struct remo__kv_thread *mine, bool are_buffers_unused) {
    if (!mine)
        return;
    if (mine->buffers && are_buffers_unused)
        remo__arena_free(mine->kv->node->arena, mine->buffers_offset, mine->buffers_bytes);
    for (uint32_t i = 0; i < mine->tasks_count; i++)
        close_state(mine->tasks[i], are_buffers_unused);
    for (struct remo__kv_thread *own = mine->workers, *next; own; own = next) {
        next = own->next_worker;
        close_state(own, are_buffers_unused);
    }
    free(mine->tasks);
    free(mine->updates);
    free(mine->scratch);
    free(mine);
}

/* Buffers that a late operation may access stay allocated until the node closes. */
void remo__kv_threads_close(struct remo_kv *kv) {
    bool are_unused = remo__node_quiescent(kv->node);
    for (uint32_t i = 0; i < REMO__THREADS_MAX; i++)
        close_state(atomic_load(&kv->threads[i]), are_unused);
}

/* Make the lost buffers free, if no operation may access them any more. */
static void recover_lost(struct remo__kv_thread *mine) {
    if (!mine->has_lost_buffers || !remo__ops_have_ended(mine->thread, mine->lost_started))
        return;
    for (uint32_t i = 0; i < REMO__KV_BUFFERS_WORDS; i++) {
        mine->buffers_free[i] |= mine->buffers_lost[i];
        mine->buffers_lost[i] = 0;
    }
    mine->has_lost_buffers = false;
}

static int take_buffer(struct remo__kv_thread *mine) {
    for (uint32_t i = 0; i < REMO__KV_BUFFERS_WORDS; i++) {
        uint64_t all = mine->buffers_free[i];
        if (all == 0)
            continue;
        mine->buffers_free[i] = all & (all - 1);
        return (int)(i * 64) + __builtin_ctzll(all);
    }
    return -1;
}

int remo__kv_buffer_take(struct remo__kv_thread *mine) {
    int index = take_buffer(mine);
    if (remo__likely(index >= 0))
        return index;
    recover_lost(mine);
    return take_buffer(mine);
}

void remo__kv_buffer_give(struct remo__kv_thread *mine, uint32_t index) {
    mine->buffers_free[index / 64] |= UINT64_C(1) << index % 64;
}

char *remo__kv_buffer(const struct remo__kv_thread *mine, uint32_t index) {
    return mine->buffers + index * mine->kv->shape.slot_bytes;
}

void remo__kv_buffer_lose(struct remo__kv_thread *mine, uint32_t index) {
    mine->buffers_lost[index / 64] |= UINT64_C(1) << index % 64;
    mine->has_lost_buffers = true;
    mine->lost_started = remo__ops_started(mine->thread);
}

static uint32_t buffer_index(const struct remo__kv_thread *mine, const char *buffer) {
    return (uint32_t)((uint64_t)(buffer - mine->buffers) / mine->kv->shape.slot_bytes);
}

void remo__kv_buffer_replace(struct remo__kv_thread *mine, char **buffer) {
    remo__kv_buffer_lose(mine, buffer_index(mine, *buffer));
    int other = remo__kv_buffer_take(mine);
    *buffer = other < 0 ? NULL : remo__kv_buffer(mine, (uint32_t)other);
}

int remo__kv_buffer_ensure(struct remo__kv_thread *mine, char **buffer) {
    if (remo__likely(*buffer != NULL))
        return 0;
    int index = remo__kv_buffer_take(mine);
    if (index >= 0) {
        *buffer = remo__kv_buffer(mine, (uint32_t)index);
        return 0;
    }
    return remo__fail(-ENOBUFS, "cannot access a slot: all buffers of this thread are in use, by operations "
                                "in flight or by operations that timed out; wait for those in flight");
}

void remo__kv_second_image_give(struct remo__kv_thread *mine) {
    remo__kv_buffer_give(mine, buffer_index(mine, mine->second_image));
    mine->second_image = NULL;
}
