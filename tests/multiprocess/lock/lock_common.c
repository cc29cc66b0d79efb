/* lock_common.c - implements lock_common.h.
 * The word pair of a block is equal whenever its lock is free, so a torn pair shows a second holder. */
#include "lock_common.h"

#include <sched.h>

struct shared *shared;

int is_shm(struct remo_node *node) {
    return strcmp(remo_node_fabric(node), "shm") == 0;
}

int open_table(struct remo_node *node, uint32_t count, uint64_t homes, struct remo_lock **ret_lock) {
    struct remo_lock_options options = {.count = count, .homes.word[0] = homes};
    CHECK_OK(remo_lock_open(remo_node_root(node), "locks", &options, ret_lock));
    CHECK_OK(remo_channel_wait(remo_lock_channel(*ret_lock), 100 * SECOND));
    return cluster_meet();
}

static void *take_next_turn(void *ctx) {
    struct next *next = ctx;
    while (remo__state_kind(atomic_load(&next->lock->locals[0].state)) != REMO__LOCK_WAITING)
        sched_yield();
    begin_turn(&shared->turns, next->turn);
    return NULL;
}

int start_next(struct next *next, struct remo_lock *lock, uint32_t turn) {
    *next = (struct next){.lock = lock, .turn = turn};
    CHECK(pthread_create(&next->thread, NULL, take_next_turn, next) == 0);
    return 0;
}

int check_quiet(const struct remo_lock *lock) {
    for (uint32_t i = 0; i < lock->count; i++) {
        const uint64_t *words = (const uint64_t *)(lock->words->own + lock->locals[i].offset);
        CHECK(!remo__lock_threads_wait(&lock->locals[i])); /* a release would be slow for ever */
        if (lock->locals[i].home != lock->rank)
            continue;
        CHECK(remo__word_is_free(remo__load(&words[0])));
        for (uint32_t place = 0; place < lock->places; place++)
            CHECK_EQUAL(remo__load(&words[1 + place]), 0);
    }
    return 0;
}

int run_workers(void *(*body)(void *), struct worker *workers, uint32_t count) {
    pthread_t threads[16];
    for (uint32_t i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, body, &workers[i]) == 0);
    int result = 0;
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        result |= workers[i].result;
    }
    return result;
}

int add_one(struct worker *worker, uint32_t index, uint32_t home) {
    uint64_t offset = 1024ull * index, first, last;
    CHECK_EQUAL(atomic_fetch_add(&shared->held[index], 1), 0);
    CHECK_OK(remo_region_read(worker->data, home, offset, &first, 8, NULL));
    CHECK_OK(remo_region_read(worker->data, home, offset + 800, &last, 8, NULL));
    CHECK_EQUAL(first, last);
    first++;
    CHECK_OK(remo_region_write(worker->data, home, offset, &first, 8, 0, NULL));
    CHECK_OK(remo_region_write(worker->data, home, offset + 800, &first, 8, 0, NULL));
    CHECK_EQUAL(atomic_fetch_sub(&shared->held[index], 1), 1);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int lock_main(int argc, char **argv, const struct cluster_test *tests) {
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
