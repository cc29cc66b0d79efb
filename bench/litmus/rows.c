/* rows.c - the programs of litmus.h.
 * They access network memory by operations, and from CPUs only by the accessors of
 * fabric/access.h. */
#include <remo/ack.h>
#include <string.h>

#include "base/bits.h"
#include "bench/litmus/litmus.h"
#include "fabric/access.h"

#define X LITMUS_X
#define Y LITMUS_Y

static void require(int rc, const char *what) {
    if (rc != 0)
        litmus_fail(what, rc);
}

static void put(struct litmus *s, uint32_t from, uint64_t at, uint64_t value, struct remo_ack *ack) {
    require(remo_region_write(s->regions[from], 1, at, &value, 8, 0, ack), "put");
}

static void get_by(struct litmus *s, uint32_t from, uint64_t at, uint64_t *value, struct remo_ack *ack) {
    require(remo_region_read(s->regions[from], 1, at, value, 8, ack), "get");
}

static void get(struct litmus *s, uint64_t at, uint64_t *value, struct remo_ack *ack) {
    get_by(s, 0, at, value, ack);
}

static void add(struct litmus *s, uint32_t from, uint64_t at, uint64_t *old, struct remo_ack *ack) {
    require(remo_region_fetch_add(s->regions[from], 1, at, 1, old, ack), "add");
}

static void finish(struct remo_ack *ack) {
    require(remo_ack_wait(ack, REMO_FOREVER), "ack");
}

static uint64_t cpu_load(struct litmus *s, uint64_t at) {
    return remo__load((char *)remo_region_local(s->regions[1]) + at);
}

static void cpu_store(struct litmus *s, uint64_t at, uint64_t value) {
    remo__store((char *)remo_region_local(s->regions[1]) + at, value);
}

/* Poll on node 1's CPU whether `second` is visible before `first`. */
static void watch(struct litmus *s, uint64_t first, uint64_t second) {
    for (uint32_t look = 0; litmus_again(look); look++)
        if (cpu_load(s, second) != 0) {
            s->odd = cpu_load(s, first) == 0;
            return;
        }
}

static bool is_flag(void *ctx) {
    return ((struct litmus *)ctx)->flag;
}

static bool are_two(void *ctx) {
    return ((struct litmus *)ctx)->arrived == 2;
}

static void put_put(struct litmus *s, uint32_t node, uint32_t thread) {
    (void)thread;
    if (node == 1)
        watch(s, X, Y);
    if (node == 0) {
        put(s, 0, X, 1, NULL);
        put(s, 0, Y, 1, NULL);
    }
}

static void put_get(struct litmus *s, uint32_t node, uint32_t thread) {
    (void)thread;
    if (node == 0) {
        put(s, 0, X, 1, NULL);
        get(s, X, &s->seen[0], NULL);
        s->odd = s->seen[0] == 0;
    }
}

/* Nodes 0 and 2 each put one word and get the other node's word. */
static void cross(struct litmus *s, uint32_t node, bool fences) {
    if (node == 1)
        return;
    put(s, node, node == 0 ? X : Y, 1, NULL);
    if (fences)
        require(remo_fence(s->nodes[node], REMO_FENCE_PAIR, 1), "fence");
    get_by(s, node, node == 0 ? Y : X, &s->seen[node], NULL);
    if (atomic_fetch_add(&s->arrived, 1) == 1)
        s->odd = s->seen[0] == 0 && s->seen[2] == 0;
}

static void put_get_other(struct litmus *s, uint32_t node, uint32_t thread) {
    (void)thread;
    cross(s, node, false);
}

static void put_fence_get(struct litmus *s, uint32_t node, uint32_t thread) {
    (void)thread;
    cross(s, node, true);
}

static void put_rmw(struct litmus *s, uint32_t node, uint32_t thread) {
    (void)thread;
    if (node == 1)
        watch(s, X, Y);
    if (node == 0) {
        put(s, 0, X, 1, NULL);
        add(s, 0, Y, NULL, NULL);
    }
}

static void get_put(struct litmus *s, uint32_t node, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (node == 0) {
        get(s, X, &s->seen[0], &ack);
        put(s, 0, X, 1, NULL);
        finish(&ack);
        s->odd = s->seen[0] == 1;
    }
}

static void get_get(struct litmus *s, uint32_t node, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (node == 1) {
        cpu_store(s, Y, 1);
        remo__mapped_fence();
        cpu_store(s, X, 1);
    }
    if (node == 0) {
        get(s, X, &s->seen[0], &ack);
        get(s, Y, &s->seen[1], &ack);
        finish(&ack);
        s->odd = s->seen[0] == 1 && s->seen[1] == 0;
    }
}

static void rmw_put(struct litmus *s, uint32_t node, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (node == 1)
        watch(s, X, Y);
    if (node == 0) {
        add(s, 0, X, &s->seen[0], &ack);
        put(s, 0, Y, 1, NULL);
        finish(&ack);
    }
}

static void rmw_get(struct litmus *s, uint32_t node, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (node == 0) {
        add(s, 0, X, &s->seen[0], &ack);
        get(s, X, &s->seen[1], &ack);
        finish(&ack);
        s->odd = s->seen[1] == 0;
    }
}

/* After the completion of the first put, another thread puts on its own connection. */
static void two_connections(struct litmus *s, uint32_t node, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    if (node == 1)
        watch(s, X, Y);
    if (node == 0 && thread == 0) {
        put(s, 0, X, 1, &ack);
        finish(&ack);
        litmus_signal(s);
    }
    if (node == 0 && thread == 1) {
        litmus_until(is_flag, s, "wait for the completion");
        put(s, 0, Y, 1, NULL);
    }
}

/* The same without waiting for the completion. */
static void two_threads(struct litmus *s, uint32_t node, uint32_t thread) {
    if (node == 1)
        watch(s, X, Y);
    if (node == 0 && thread == 0) {
        put(s, 0, X, 1, NULL);
        litmus_signal(s);
    }
    if (node == 0 && thread == 1) {
        litmus_until(is_flag, s, "wait for the post");
        put(s, 0, Y, 1, NULL);
    }
}

static void completion(struct litmus *s, uint32_t node, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (node == 0) {
        put(s, 0, X, 1, &ack);
        finish(&ack);
        litmus_signal(s);
    }
    if (node == 1) {
        litmus_until(is_flag, s, "wait for the completion");
        s->odd = cpu_load(s, X) == 0;
    }
}

static void result(struct litmus *s, uint32_t node, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (node == 0) {
        s->seen[0] = 99;
        add(s, 0, X, &s->seen[0], &ack);
        finish(&ack);
        s->odd = s->seen[0] != 0;
    }
}

static void completions(struct litmus *s, uint32_t node, uint32_t thread) {
    struct remo_ack first = REMO_ACK_INIT, second = REMO_ACK_INIT;
    (void)thread;
    if (node == 0) {
        put(s, 0, X, 1, &first);
        put(s, 0, Y, 1, &second);
        while (second.pending > 0)
            (void)remo_ack_wait(&second, 100);
        s->odd = first.pending > 0;
        finish(&first);
    }
}

/* Return a filled block of network memory of node 0, two lines long. */
static char *make_source(struct litmus *s) {
    void *buffer = NULL;
    require(remo_buffer_get(s->nodes[0], &buffer), "buffer");
    if (buffer)
        memset(buffer, 1, 128);
    return buffer;
}

/* The put carries the CPU's last store. */
static void store_put(struct litmus *s, uint32_t node, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (node != 0)
        return;
    char *source = make_source(s);
    if (!source)
        return;
    remo__store(source, 2);
    require(remo_region_write(s->regions[0], 1, X, source, 128, 0, &ack), "put");
    finish(&ack);
    require(remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0), "fence");
    get(s, X, &s->seen[0], NULL);
    s->odd = s->seen[0] != 2;
    remo_buffer_put(s->nodes[0], source);
}

/* The network owns the source until the ack completes. */
static void put_store(struct litmus *s, uint32_t node, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (node != 0)
        return;
    char *source = make_source(s);
    if (!source)
        return;
    require(remo_region_write(s->regions[0], 1, X, source, 128, 0, &ack), "put");
    litmus_point("change the source");
    memset(source, 2, 128);
    finish(&ack);
    require(remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0), "fence");
    get(s, X, &s->seen[0], NULL);
    s->odd = (s->seen[0] & 0xff) == 2;
    remo_buffer_put(s->nodes[0], source);
}

static void torn_put(struct litmus *s, uint32_t node, uint32_t thread) {
    char bytes[128];
    (void)thread;
    memset(bytes, 1, sizeof bytes);
    if (node == 0)
        require(remo_region_write(s->regions[0], 1, X, bytes, sizeof bytes, 0, NULL), "put");
    if (node == 1)
        watch(s, X, Y);
}

static void torn_get(struct litmus *s, uint32_t node, uint32_t thread) {
    uint64_t words[16] = {0};
    (void)thread;
    if (node == 1) {
        cpu_store(s, X, 1);
        remo__mapped_fence();
        cpu_store(s, Y, 1);
    }
    if (node == 0) {
        require(remo_region_read(s->regions[0], 1, X, words, sizeof words, NULL), "get");
        s->odd = words[8] == 1 && words[0] == 0;
    }
}

static void rmw_rmw(struct litmus *s, uint32_t node, uint32_t thread) {
    (void)thread;
    if (node == 1)
        return;
    add(s, node, X, &s->seen[node], NULL);
    if (atomic_fetch_add(&s->arrived, 1) == 1)
        s->odd = s->seen[0] == s->seen[2];
}

/* The put is lost if the atomic read before it and wrote after it. */
static void rmw_overlaps_put(struct litmus *s, uint32_t node, uint32_t thread) {
    (void)thread;
    if (node == 0)
        add(s, 0, X, NULL, NULL);
    if (node == 2) {
        put(s, 2, X, 10, NULL);
        require(remo_fence(s->nodes[2], REMO_FENCE_THREAD, 0), "fence");
    }
    if (node != 1) {
        s->arrived++;
        return;
    }
    litmus_until(are_two, s, "both");
    s->odd = cpu_load(s, X) == 1;
}

static void rmw_overlaps_store(struct litmus *s, uint32_t node, uint32_t thread) {
    (void)thread;
    if (node == 0) {
        add(s, 0, X, NULL, NULL);
        litmus_signal(s);
    }
    if (node == 1) {
        cpu_store(s, X, 10);
        remo__mapped_fence();
        litmus_until(is_flag, s, "the atomic");
        s->odd = cpu_load(s, X) == 1;
    }
}

/* The word has one value or the other, never bytes of both. */
static void rmw_load(struct litmus *s, uint32_t node, uint32_t thread) {
    const uint64_t after = 0x1122334455667788;
    (void)thread;
    if (node == 0) {
        require(remo_region_compare_swap(s->regions[0], 1, X, 0, after, NULL, NULL), "swap");
        litmus_signal(s);
    }
    for (uint32_t look = 0; node == 1 && !s->flag && litmus_again(look); look++) {
        uint64_t value = cpu_load(s, X);
        if (value != 0 && value != after)
            s->odd = 1;
    }
}

static void puts_overlap(struct litmus *s, uint32_t node, uint32_t thread) {
    char bytes[128];
    (void)thread;
    memset(bytes, 1 + (int)node, sizeof bytes);
    if (node != 1) {
        require(remo_region_write(s->regions[node], 1, X, bytes, sizeof bytes, 0, NULL), "put");
        require(remo_fence(s->nodes[node], REMO_FENCE_THREAD, 0), "fence");
        s->arrived++;
        return;
    }
    litmus_until(are_two, s, "both puts");
    s->odd = (cpu_load(s, X) & 0xff) != (cpu_load(s, Y) & 0xff);
}

/* Row 24: CPUs without coherent caches. */
static void store_signalled(struct litmus *s, uint32_t node, uint32_t thread) {
    (void)thread;
    if (node == 1) {
        cpu_store(s, X, 1);
        remo__mapped_fence();
        litmus_signal(s);
    }
    if (node == 0) {
        litmus_until(is_flag, s, "wait for the store");
        get(s, X, &s->seen[0], NULL);
        s->odd = s->seen[0] == 0;
    }
}

static void loaded_before(struct litmus *s, uint32_t node, uint32_t thread) {
    (void)thread;
    if (node == 0) {
        put(s, 0, X, 1, NULL);
        require(remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0), "fence");
        litmus_signal(s);
    }
    if (node == 1) {
        (void)cpu_load(s, X);
        litmus_until(is_flag, s, "wait for the put");
        s->odd = cpu_load(s, X) == 0;
    }
}

static void put_and_fence(struct litmus *s, uint32_t node, uint64_t at, uint64_t value) {
    put(s, node, at, value, NULL);
    require(remo_fence(s->nodes[node], REMO_FENCE_THREAD, 0), "fence");
}

/* Two words of one line, each written by another node. */
static void neighbours(struct litmus *s, uint32_t node, uint32_t thread) {
    (void)thread;
    if (node != 1) {
        put_and_fence(s, node, X + 8 * node, 1);
        put_and_fence(s, node, X + 8 * node, 2);
        s->arrived++;
        return;
    }
    litmus_until(are_two, s, "both");
    remo__invalidate((char *)remo_region_local(s->regions[1]) + X, LITMUS_Y);
    s->odd = cpu_load(s, X) != 2 || cpu_load(s, X + 16) != 2;
}

const struct litmus_row litmus_rows[] = {
    {"1", "put X; put Y", "Y was seen before X", put_put, LITMUS_PUT_PUT, false, false},
    {"2", "put X; get X", "the get misses the put", put_get, LITMUS_PUT_GET, false, false},
    {"2", "put X; get Y | put Y; get X", "both gets miss the other's put", put_get_other,
     LITMUS_PUT_GET_OTHER, false, false},
    {"2", "put X; fence; get Y | put Y; fence; get X", "both gets miss the other's put", put_fence_get,
     LITMUS_NEVER, false, false},
    {"3", "put X; rmw Y", "Y was seen before X", put_rmw, LITMUS_PUT_RMW, false, true},
    {"4", "get X; put X", "the get sees the later put", get_put, LITMUS_GET_PUT, false, false},
    {"5", "get X; get Y", "the later get sees the older value", get_get, LITMUS_GET_GET, false, false},
    {"6", "rmw X; put Y", "Y was seen before X", rmw_put, LITMUS_RMW_PUT, false, true},
    {"7", "rmw X; get X", "the get misses the atomic", rmw_get, LITMUS_RMW_GET, false, true},
    {"8", "put X; completion | other thread: put Y", "Y was seen before X", two_connections, LITMUS_PLACED,
     true, false},
    {"9", "put X | other thread: put Y", "Y was seen before X", two_threads, LITMUS_FLIGHT, true, false},
    {"10", "put X; completion", "not placed yet", completion, LITMUS_PLACED, false, false},
    {"11", "rmw X; completion", "the result is not there", result, LITMUS_NEVER, false, true},
    {"12", "put X; put Y", "the second completes first", completions, LITMUS_COMPLETIONS, false, false},
    {"13", "store; put from there", "the put carries the old value", store_put, LITMUS_NEVER, false, false},
    {"14", "put; store to its source", "the put carries the later value", put_store, LITMUS_FLIGHT, false,
     false},
    {"15", "put of two lines | CPU loads", "the second line was seen first", torn_put, LITMUS_ALWAYS, false,
     false},
    {"16", "CPU stores X, Y | get of both", "Y new, X old", torn_get, LITMUS_ALWAYS, false, false},
    {"17", "rmw X | rmw X", "one is lost", rmw_rmw, LITMUS_NEVER, false, true},
    {"18", "rmw X | put X", "the put is lost", rmw_overlaps_put, LITMUS_COHERENT, false, true},
    {"19", "rmw X | CPU stores X", "the store is lost", rmw_overlaps_store, LITMUS_COHERENT, false, true},
    {"20", "rmw X | CPU loads X", "neither the old value nor the new one", rmw_load, LITMUS_NEVER, false,
     true},
    {"21", "put X, Y | put X, Y", "X of one, Y of the other", puts_overlap, LITMUS_ALWAYS, false, false},
    {"24", "CPU stores X; fence | signalled: get X", "the get misses the store", store_signalled,
     LITMUS_CACHED, false, false},
    {"24", "CPU has loaded X | put X; fence | signalled: load", "the load misses the put", loaded_before,
     LITMUS_CACHED, false, false},
    {"24", "put X; fence | put X + 16; fence", "one of the neighbours is lost", neighbours, LITMUS_CACHED,
     false, false},
};
const uint32_t litmus_rows_count = REMO__ARRAY_COUNT(litmus_rows);
