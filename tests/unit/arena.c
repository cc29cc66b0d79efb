/* arena.c - unit tests of the arena: how much address space it reserves, how it grows, and its state after a
 * step has failed. The linker replaces the layers below (meson.build): the address space has a budget, and
 * segments are files without memory. After each test no address space is reserved and no file is open. */
#include "node/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "memory/segment.h"
#include "unit.h"

#define MIB (UINT64_C(1) << 20)
#define SPARE (256 * MIB) /* as in arena.c */
#define LEAST (64 * MIB)  /* as in arena.c */
#define ALIGN REMO__SEGMENT_ALIGN_BYTES
#define PRIVATE_BYTES 100u
#define FIRST 192u /* PRIVATE_BYTES and the 64 bytes that fences read, in cache lines */
#define NODES 3u
#define RESERVED_MAX (REMO_NODES_MAX + 2)
#define CREATED_MAX 64u

static struct {
    void *at;
    uint64_t bytes;
} reserved[RESERVED_MAX];
static uint64_t budget, in_use; /* of address space */
static uint32_t reserve_calls;
static int files[CREATED_MAX];
static uint64_t file_bytes[CREATED_MAX]; /* also of calls that failed */
static uint32_t create_calls, file_count, add_calls, map_calls, send_calls, logs;
static uint64_t create_max; /* a larger file fails with -ENOSPC */
static int add_rc, map_rc;
static bool map_at_fails;
static uint64_t sent_offset, sent_bytes;
static uint32_t sent_index, sent_to, sent_fails_at; /* the n-th send fails; 0: none */

static struct remo__peer peers[NODES];
static struct remo__fabric fabric;
static struct remo_node node;
static struct remo__arena *arena;

void *__real_remo__segment_reserve(uint64_t bytes);
void *__wrap_remo__segment_reserve(uint64_t bytes);
void *__wrap_remo__segment_reserve(uint64_t bytes) {
    reserve_calls++;
    if (in_use + bytes > budget)
        return NULL;
    for (uint32_t i = 0; i < RESERVED_MAX; i++) {
        if (reserved[i].at)
            continue;
        reserved[i].at = __real_remo__segment_reserve(bytes);
        reserved[i].bytes = bytes;
        assert_non_null(reserved[i].at);
        in_use += bytes;
        return reserved[i].at;
    }
    fail();
    return NULL;
}

int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes) {
    for (uint32_t i = 0; i < RESERVED_MAX; i++) {
        if (reserved[i].at != at)
            continue;
        assert_int_equal(bytes, reserved[i].bytes);
        reserved[i].at = NULL;
        in_use -= bytes;
    }
    return __real_munmap(at, bytes);
}

int __wrap_remo__segment_create(const char *dir, uint64_t bytes, int *ret_fd, bool *ret_huge);
int __wrap_remo__segment_create(const char *dir, uint64_t bytes, int *ret_fd, bool *ret_huge) {
    (void)dir;
    assert_int_equal(bytes % ALIGN, 0);
    assert_true(create_calls < CREATED_MAX);
    file_bytes[create_calls++] = bytes;
    if (bytes > create_max)
        return remo__fail(-ENOSPC, "no memory");
    *ret_fd = memfd_create("arena", 0);
    *ret_huge = false;
    assert_int_equal(ftruncate(*ret_fd, (off_t)bytes), 0);
    files[file_count++] = *ret_fd;
    return 0;
}

void *__real_remo__segment_map(void *at, uint64_t bytes, int fd);
void *__wrap_remo__segment_map(void *at, uint64_t bytes, int fd);
void *__wrap_remo__segment_map(void *at, uint64_t bytes, int fd) {
    return map_at_fails ? NULL : __real_remo__segment_map(at, bytes, fd);
}

int __wrap_remo__control_send(struct remo__control *control, uint32_t peer, uint16_t type, const void *data,
                              size_t bytes, int fd);
int __wrap_remo__control_send(struct remo__control *control, uint32_t peer, uint16_t type, const void *data,
                              size_t bytes, int fd) {
    (void)control;
    struct remo__reader reader = remo__reader_of(data, bytes);
    char blob[4];
    assert_int_equal(type, REMO__NODE_FRAME_SEGMENT);
    sent_to = peer;
    sent_index = remo__get_u32(&reader);
    sent_offset = remo__get_u64(&reader);
    sent_bytes = remo__get_u64(&reader);
    assert_int_equal(remo__get_u32(&reader), sizeof blob);
    memcpy(blob, remo__get_span(&reader, sizeof blob), sizeof blob);
    assert_memory_equal(blob, "blob", sizeof blob);
    assert_true(remo__reader_complete(&reader));
    assert_true(fcntl(fd, F_GETFD) >= 0);
    return ++send_calls == sent_fails_at ? -EHOSTDOWN : 0;
}

static int add_segment(struct remo__fabric *of, uint32_t index, uint64_t offset, uint64_t bytes, int fd,
                       void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    (void)of, (void)index, (void)offset, (void)bytes, (void)fd;
    assert_int_equal(pthread_mutex_trylock(&node.fabric_lock), EBUSY);
    assert_true(blob_cap >= 4);
    memcpy(blob, "blob", 4);
    *ret_blob_bytes = 4;
    add_calls++;
    return add_rc;
}

static int map_segment(struct remo__fabric *of, uint32_t peer, uint32_t index, uint64_t offset,
                       uint64_t bytes, const void *blob, size_t blob_bytes, int fd) {
    (void)of, (void)index, (void)offset, (void)bytes, (void)fd;
    assert_int_equal(pthread_mutex_trylock(&node.fabric_lock), EBUSY);
    assert_int_equal(peer, node.rank);
    assert_int_equal(blob_bytes, 4);
    assert_memory_equal(blob, "blob", 4);
    map_calls++;
    return map_rc;
}

static void on_log(void *ctx, int level, const char *message) {
    (void)ctx, (void)level, (void)message;
    logs++;
}

static int prepare(void **state) {
    static const struct remo__fabric_ops ops = {.add_segment = add_segment, .map_segment = map_segment};
    (void)state;
    budget = UINT64_MAX;
    create_max = UINT64_MAX;
    reserve_calls = create_calls = file_count = add_calls = map_calls = send_calls = logs = 0;
    add_rc = map_rc = 0;
    map_at_fails = false;
    sent_fails_at = 0;
    memset(peers, 0, sizeof peers);
    fabric = (struct remo__fabric){.ops = &ops, .size = NODES, .private_bytes = PRIVATE_BYTES};
    node = (struct remo_node){
        .size = NODES,
        .rank = 1,
        .fabric = &fabric,
        .peers = peers,
        .log = {.fn = on_log, .level = REMO_LOG_DEBUG},
    };
    pthread_mutex_init(&node.fabric_lock, NULL);
    return 0;
}

/* Also between two arenas of a test. */
static int close_arena(void **state) {
    (void)state;
    remo__arena_close(arena);
    arena = NULL;
    assert_int_equal(pthread_mutex_trylock(&node.fabric_lock), 0);
    pthread_mutex_unlock(&node.fabric_lock);
    for (uint32_t i = 0; i < file_count; i++)
        assert_int_equal(fcntl(files[i], F_GETFD), -1);
    assert_int_equal(in_use, 0);
    return 0;
}

static int open_arena(uint64_t bytes, uint64_t segment_bytes, bool is_set, uint32_t windows) {
    struct remo__arena_config config = {
        .arena_bytes = bytes, .segment_bytes = segment_bytes, .is_set = is_set, .peer_windows = windows};
    return remo__arena_open(&node, &config, &arena);
}

static void start_arena(uint64_t bytes, uint64_t segment_bytes) {
    assert_int_equal(open_arena(bytes, segment_bytes, false, 0), 0);
    assert_int_equal(remo__arena_start(arena), 0);
}

static uint64_t alloc(uint64_t bytes) {
    uint64_t offset = UINT64_MAX;
    assert_int_equal(remo__arena_alloc(arena, bytes, &offset), 0);
    return offset;
}

static int try_alloc(uint64_t bytes) {
    uint64_t offset = 5;
    int rc = remo__arena_alloc(arena, bytes, &offset);
    if (rc != 0)
        assert_int_equal(offset, 5);
    return rc;
}

static void check_reserved(uint64_t space, uint64_t bytes, uint32_t windows, uint64_t expected) {
    void *state = NULL;
    prepare(&state);
    budget = space;
    if (expected == 0) {
        assert_int_equal(open_arena(bytes, ALIGN, false, windows), -ENOMEM);
    } else {
        assert_int_equal(open_arena(bytes, ALIGN, false, windows), 0);
        assert_int_equal(remo__arena_reserved(arena), expected);
        assert_int_equal(in_use, expected);
        assert_int_equal(logs, expected < bytes);
        assert_false(remo__arena_is_set(arena));
    }
    assert_int_equal(close_arena(&state), 0);
}

/* Half as much until the arena, the windows of the peers and the spare space fit. */
static void test_reserve(void **state) {
    (void)state;
    for (uint64_t bytes = 8 * LEAST; bytes > LEAST; bytes /= 2) {
        check_reserved(3 * bytes + SPARE, 8 * LEAST, 2, bytes);
        check_reserved(3 * bytes + SPARE - 1, 8 * LEAST, 2, bytes / 2);
    }
    check_reserved(LEAST, 8 * LEAST, 2, LEAST); /* the last attempt: the arena alone */
    check_reserved(LEAST - 1, 8 * LEAST, 2, 0);
    check_reserved(SPARE - 1, 2 * LEAST, 0, LEAST);
    check_reserved(UINT64_MAX, 2 * LEAST - 1, 0, 2 * LEAST); /* aligned */
    check_reserved(SPARE + REMO_NODES_MAX * 2 * LEAST, 2 * LEAST, UINT32_MAX, 2 * LEAST);
}

static void test_reserve_is_set(void **state) {
    (void)state;
    budget = 4 * LEAST;
    assert_int_equal(open_arena(4 * LEAST, ALIGN, true, 2), 0);
    assert_true(remo__arena_is_set(arena));
    assert_int_equal(reserve_calls, 1);
    assert_int_equal(close_arena(state), 0);
    assert_int_equal(open_arena(8 * LEAST, ALIGN, true, 2), -ENOMEM);
    assert_int_equal(reserve_calls, 2);
}

static void check_agrees(bool own_is_set, uint64_t bytes, bool is_set, int expected) {
    void *state = NULL;
    assert_int_equal(open_arena(8 * MIB, ALIGN, own_is_set, 0), 0);
    assert_int_equal(remo__arena_agree(arena, bytes, is_set), expected);
    assert_int_equal(close_arena(&state), 0);
}

static void test_agree(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        check_agrees(i & 1, 8 * MIB, i & 2, 0);
    check_agrees(false, 4 * MIB, false, 0);
    check_agrees(false, 16 * MIB, false, 0);
    check_agrees(true, 4 * MIB, false, -EPROTO);
    check_agrees(true, 16 * MIB, false, 0);
    check_agrees(false, 4 * MIB, true, 0);
    check_agrees(false, 16 * MIB, true, -EPROTO);
    check_agrees(true, 4 * MIB, true, -EPROTO);
    check_agrees(true, 16 * MIB, true, -EPROTO);
}

/* The limit of the job bounds allocations. It is not below committed memory, and is constant once fixed. */
static void test_limit(void **state) {
    (void)state;
    start_arena(16 * MIB, 4 * MIB);
    assert_int_equal(remo__arena_agree(arena, 8 * MIB, false), 0);
    assert_int_equal(remo__arena_agree(arena, 12 * MIB, false), 0); /* the smallest remains */
    assert_int_equal(try_alloc(8 * MIB + 1), -ENOSPC);
    assert_non_null(strstr(remo_last_error(), "limited to 8388608 bytes"));
    assert_int_equal(create_calls, 1);
    assert_int_equal(try_alloc(8 * MIB), -ENOSPC); /* the first segment is in the way */
    assert_non_null(strstr(remo_last_error(), "the arena has grown to 4194304"));
    assert_int_equal(remo__arena_agree(arena, 4 * MIB - 1, false), -EPROTO);
    assert_int_equal(alloc(4 * MIB), 2 * MIB);
    assert_int_equal(remo__arena_agree(arena, 8 * MIB, false), 0);
    remo__arena_freeze(arena);
    assert_int_equal(remo__arena_agree(arena, 8 * MIB, false), 0);
    assert_int_equal(remo__arena_agree(arena, 8 * MIB - 1, false), -EPROTO);
}

static void test_freeze(void **state) {
    (void)state;
    start_arena(16 * MIB, 4 * MIB);
    remo__arena_freeze(arena);
    assert_int_equal(remo__arena_agree(arena, 8 * MIB, false), -EPROTO); /* above the committed memory */
    assert_int_equal(alloc(12 * MIB), 2 * MIB);
}

static void test_alloc(void **state) {
    (void)state;
    start_arena(16 * MIB, 4 * MIB);
    assert_int_equal(remo__arena_first(arena), FIRST);
    assert_int_equal(alloc(0), FIRST);
    assert_int_equal(alloc(65), FIRST + 64);
    assert_int_equal(alloc(1), FIRST + 64 + 128);
    assert_int_equal(alloc(MIB - 1), FIRST + 64 + 128 + 64);
    assert_int_equal(alloc(MIB), ALIGN);
    remo__arena_free(arena, FIRST, 0);
    remo__arena_free(arena, FIRST + 64, 65);
    assert_int_equal(alloc(192), FIRST);
    uint64_t offset;
    assert_int_equal(remo__arena_alloc_aligned(arena, 64, 4096, &offset), 0);
    assert_int_equal(offset % 4096, 0);
}

/* Memory that was freed is zero when it is allocated again, and its neighbours do not change. */
static void test_zeroed(void **state) {
    enum { BYTES = 2 * 4096 + 64 };
    static const char zeros[BYTES];
    char ones[64];
    (void)state;
    start_arena(16 * MIB, 4 * MIB);
    memset(ones, 0xff, sizeof ones);
    uint64_t at = alloc(BYTES), next = alloc(64), last = alloc(64);
    char *base = remo__arena_base(arena);
    memset(base + at, 0xff, BYTES + sizeof ones);
    base[last] = 1;
    remo__arena_free(arena, at, BYTES);
    assert_int_equal(alloc(BYTES), at);
    assert_memory_equal(base + at, zeros, BYTES);
    assert_memory_equal(base + next, ones, sizeof ones);
    remo__arena_free(arena, last, 64);
    memset(base + last + 64, 0xff, 64); /* never allocated: must not be cleared */
    assert_int_equal(alloc(128), last);
    assert_int_equal(base[last], 0);
    assert_int_equal((uint8_t)base[last + 64], 0xff);
}

/* The size of a segment: what is needed, segment_bytes, a sixteenth of the arena, but not above the limit. */
static void test_growth(void **state) {
    (void)state;
    start_arena(128 * MIB, 4 * MIB);
    assert_int_equal(file_bytes[0], 4 * MIB);
    assert_int_equal(peers[1].mapped_bytes, 4 * MIB);
    assert_int_equal(alloc(92 * MIB - 1), 2 * MIB);
    assert_int_equal(file_bytes[1], 92 * MIB);
    (void)alloc(3 * MIB);
    (void)alloc(MIB);
    assert_int_equal(file_bytes[2], 6 * MIB); /* 96 / 16 */
    assert_int_equal(alloc(26 * MIB), 100 * MIB);
    assert_int_equal(file_bytes[3], 26 * MIB);
    assert_int_equal(create_calls, 4);
    assert_int_equal(add_calls, 4);
    assert_int_equal(map_calls, 4);
    assert_int_equal(peers[1].mapped_bytes, 128 * MIB);
    assert_int_equal(send_calls, 0);
    assert_int_equal(try_alloc(4 * MIB), -ENOSPC);
}

static void test_growth_is_bounded(void **state) {
    (void)state;
    start_arena(6 * MIB, 4 * MIB);
    assert_int_equal(alloc(2 * MIB), 2 * MIB);
    assert_int_equal(alloc(2 * MIB), 4 * MIB);
    assert_int_equal(file_bytes[1], 2 * MIB);
}

/* If there is no memory for a whole segment, the requested bytes alone may fit. */
static void test_little_memory(void **state) {
    (void)state;
    start_arena(32 * MIB, 8 * MIB);
    create_max = 2 * MIB;
    assert_int_equal(try_alloc(7 * MIB), -ENOSPC); /* a segment of 8 MiB, and no smaller one suffices */
    assert_int_equal(create_calls, 2);
    (void)alloc(6 * MIB);
    assert_int_equal(alloc(2 * MIB), 8 * MIB);
    assert_int_equal(create_calls, 4);
    assert_int_equal(file_bytes[3], 2 * MIB);
    assert_int_equal(peers[1].mapped_bytes, 10 * MIB);
}

/* A segment that the fabric has not registered is undone; one that it has registered is used later. */
static void test_growth_fails(void **state) {
    (void)state;
    start_arena(32 * MIB, 4 * MIB);
    map_at_fails = true;
    assert_int_equal(try_alloc(4 * MIB), -ENOMEM);
    assert_int_equal(add_calls, 1);
    assert_int_equal(fcntl(files[1], F_GETFD), -1);
    map_at_fails = false;
    add_rc = -EIO;
    assert_int_equal(try_alloc(4 * MIB), -EIO);
    assert_int_equal(map_calls, 1);
    assert_int_equal(fcntl(files[2], F_GETFD), -1);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], remo__arena_base(arena) + 4 * MIB, 1), -1); /* only reserved */
    assert_int_equal(errno, EFAULT);
    close(ends[0]);
    close(ends[1]);
    add_rc = 0;
    map_rc = -EFAULT;
    assert_int_equal(try_alloc(4 * MIB), -EFAULT);
    assert_true(fcntl(files[3], F_GETFD) >= 0);
    assert_int_equal(peers[1].mapped_bytes, 4 * MIB);
    map_rc = 0;
    assert_int_equal(alloc(4 * MIB), 2 * MIB);
    assert_int_equal(create_calls, 4);
    assert_int_equal(add_calls, 3);
    assert_int_equal(map_calls, 3);
    map_rc = -EFAULT;
    assert_int_equal(try_alloc(4 * MIB), -EFAULT); /* remains pending until the close */
}

static void test_announce(void **state) {
    (void)state;
    start_arena(32 * MIB, 4 * MIB);
    (void)alloc(4 * MIB);
    assert_int_equal(remo__arena_announce(arena, 2), 0);
    assert_int_equal(send_calls, 2);
    assert_int_equal(sent_to, 2);
    (void)alloc(6 * MIB);
    assert_int_equal(send_calls, 3);
    assert_int_equal(sent_to, 2);
    assert_int_equal(sent_index, 2);
    assert_int_equal(sent_offset, 8 * MIB);
    assert_int_equal(sent_bytes, 6 * MIB);
    remo__arena_forget(arena, 2);
    (void)alloc(4 * MIB);
    assert_int_equal(send_calls, 3);
    sent_fails_at = 4;
    assert_int_equal(remo__arena_announce(arena, 0), -EHOSTDOWN);
    assert_int_equal(send_calls, 4); /* no further one */
    (void)alloc(4 * MIB);
    assert_int_equal(send_calls, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reserve, prepare, close_arena),
        cmocka_unit_test_setup_teardown(test_reserve_is_set, prepare, close_arena),
        cmocka_unit_test_setup_teardown(test_agree, prepare, close_arena),
        cmocka_unit_test_setup_teardown(test_limit, prepare, close_arena),
        cmocka_unit_test_setup_teardown(test_freeze, prepare, close_arena),
        cmocka_unit_test_setup_teardown(test_alloc, prepare, close_arena),
        cmocka_unit_test_setup_teardown(test_zeroed, prepare, close_arena),
        cmocka_unit_test_setup_teardown(test_growth, prepare, close_arena),
        cmocka_unit_test_setup_teardown(test_growth_is_bounded, prepare, close_arena),
        cmocka_unit_test_setup_teardown(test_little_memory, prepare, close_arena),
        cmocka_unit_test_setup_teardown(test_growth_fails, prepare, close_arena),
        cmocka_unit_test_setup_teardown(test_announce, prepare, close_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
