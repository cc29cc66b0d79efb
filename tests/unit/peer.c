/* peer.c - unit tests of what the control thread does when a peer joins, sends a frame, leaves or fails. The
 * linker replaces the layers below (meson.build); the test records their calls in order, because the order of
 * the steps is what docs/architecture.md ("One way to fail") promises. */
#include "node/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "node/arena.h"
#include "unit.h"

#define NODES 3u
#define PEER 2u
#define RESERVED (UINT64_C(8) << 20)
#define GROUP 77u
#define HELLO_BLOB "blob"

static struct remo__peer peers[NODES + 1]; /* the last is beyond the nodes of the job */
static struct remo__doorbell doorbell;
static struct remo__fabric fabric;
static struct remo_node node;
static char calls[256]; /* one word for each call of a replaced function */
static int failing_rc;  /* of the call with the name `failing` */
static const char *failing;
static bool is_lost[NODES + 1];
static uint64_t agreed_bytes;
static bool agreed_is_set;
static uint8_t frame[256];

static int record(const char *call) {
    size_t length = strlen(calls);
    snprintf(calls + length, sizeof calls - length, "%s ", call);
    return failing && strcmp(failing, call) == 0 ? remo__fail(failing_rc, "%s failed", call) : 0;
}

/* The calls of the fabric that change connections require the lock. */
static int record_locked(const char *call) {
    assert_int_equal(pthread_mutex_trylock(&node.fabric_lock), EBUSY);
    return record(call);
}

static void check_calls(const char *expected) {
    assert_string_equal(calls, expected);
    calls[0] = '\0';
    assert_int_equal(pthread_mutex_trylock(&node.fabric_lock), 0);
    pthread_mutex_unlock(&node.fabric_lock);
    assert_false(atomic_load(&node.reporting));
}

int __wrap_remo__arena_agree(struct remo__arena *arena, uint64_t bytes, bool is_set);
int __wrap_remo__arena_agree(struct remo__arena *arena, uint64_t bytes, bool is_set) {
    (void)arena;
    agreed_bytes = bytes;
    agreed_is_set = is_set;
    return record("agree");
}

int __wrap_remo__arena_announce(struct remo__arena *arena, uint32_t peer);
int __wrap_remo__arena_announce(struct remo__arena *arena, uint32_t peer) {
    (void)arena;
    assert_int_equal(peer, PEER);
    return record("announce");
}

void __wrap_remo__arena_forget(struct remo__arena *arena, uint32_t peer);
void __wrap_remo__arena_forget(struct remo__arena *arena, uint32_t peer) {
    (void)arena;
    assert_int_equal(peer, PEER);
    (void)record("forget");
}

uint64_t __wrap_remo__arena_reserved(const struct remo__arena *arena);
uint64_t __wrap_remo__arena_reserved(const struct remo__arena *arena) {
    (void)arena;
    return RESERVED;
}

int __wrap_remo__control_send(struct remo__control *control, uint32_t peer, uint16_t type, const void *data,
                              size_t bytes, int fd);
int __wrap_remo__control_send(struct remo__control *control, uint32_t peer, uint16_t type, const void *data,
                              size_t bytes, int fd) {
    (void)control, (void)data;
    assert_int_equal(peer, PEER);
    assert_int_equal(type, REMO__NODE_FRAME_READY);
    assert_int_equal(bytes, 0);
    assert_int_equal(fd, -1);
    return record("send");
}

void __wrap_remo__control_lose(struct remo__control *control, uint32_t peer);
void __wrap_remo__control_lose(struct remo__control *control, uint32_t peer) {
    (void)control;
    (void)record(peer == 0 ? "lose-0" : peer == 1 ? "lose-1" : "lose-2");
}

void __wrap_remo__doorbell_notify(struct remo__doorbell *bell);
void __wrap_remo__doorbell_notify(struct remo__doorbell *bell) {
    assert_ptr_equal(bell, &doorbell);
    assert_int_equal(pthread_mutex_trylock(&node.fabric_lock), 0); /* a notification may take long */
    pthread_mutex_unlock(&node.fabric_lock);
    (void)record("wake");
}

static int fake_connect(struct remo__fabric *of, uint32_t peer, const void *blob, size_t blob_bytes) {
    (void)of;
    assert_int_equal(peer, PEER);
    assert_int_equal(blob_bytes, strlen(HELLO_BLOB));
    assert_memory_equal(blob, HELLO_BLOB, blob_bytes);
    return record_locked("connect");
}

static void fake_disconnect(struct remo__fabric *of, uint32_t peer) {
    (void)of;
    assert_int_equal(peer, PEER);
    assert_int_not_equal(remo_node_peer(&node, peer), REMO_PEER_UP); /* no new operation starts */
    (void)record_locked("disconnect");
}

static int fake_map(struct remo__fabric *of, uint32_t peer, uint32_t index, uint64_t offset, uint64_t bytes,
                    const void *blob, size_t blob_bytes, int fd) {
    (void)of, (void)index, (void)offset, (void)bytes, (void)blob, (void)blob_bytes;
    assert_int_equal(peer, PEER);
    assert_true(fcntl(fd, F_GETFD) >= 0); /* still open */
    return record_locked("map");
}

static bool fake_is_lost(struct remo__fabric *of, uint32_t peer) {
    (void)of;
    return is_lost[peer];
}

static void on_peer_up(void *ctx, uint32_t peer) {
    (void)ctx;
    assert_int_equal(peer, PEER);
    assert_int_equal(remo_node_peer(&node, peer), REMO_PEER_UP);
    (void)record("up-hook");
}

static void on_peer_down(void *ctx, uint32_t peer) {
    (void)ctx;
    assert_int_equal(peer, PEER);
    (void)record("down-hook");
}

static void on_frame(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes) {
    (void)ctx, (void)data;
    assert_int_equal(peer, PEER);
    assert_true(type >= REMO__NODE_FRAME_CHANNELS);
    assert_int_equal(bytes, 3);
    (void)record("frame");
}

static void on_peer(void *ctx, uint32_t peer, enum remo_peer_state state) {
    assert_ptr_equal(ctx, &node);
    assert_int_equal(peer, PEER);
    assert_int_equal(state, remo_node_peer(&node, peer));
    assert_true(atomic_load(&node.reporting));
    assert_false(atomic_load(&node.peers[peer].reported) && state == REMO_PEER_UP);
    (void)record("report");
}

static void on_log(void *ctx, int level, const char *message) {
    (void)ctx, (void)message;
    (void)record(level == REMO_LOG_ERROR ? "error" : level == REMO_LOG_WARNING ? "warning" : "info");
}

static int open_node(void **state) {
    static const struct remo__fabric_ops ops = {.name = "fake",
                                                .connect = fake_connect,
                                                .disconnect = fake_disconnect,
                                                .map_segment = fake_map,
                                                .is_lost = fake_is_lost};
    (void)state;
    memset(peers, 0, sizeof peers);
    memset(is_lost, 0, sizeof is_lost);
    doorbell = (struct remo__doorbell){.sleepers = 1}; /* so that each wake-up is a call */
    fabric = (struct remo__fabric){.ops = &ops, .size = NODES};
    node = (struct remo_node){
        .size = NODES,
        .rank = 1,
        .fabric = &fabric,
        .peers = peers,
        .doorbell = &doorbell,
        .processors = {.word = {6}, .count = 2, .quota_group = GROUP},
        .log = {.fn = on_log, .level = REMO_LOG_DEBUG},
        .op_timeout_ns = 7 * REMO__NS_PER_MS,
        .on_peer = on_peer,
        .on_peer_ctx = &node,
        .hooks = {.peer_up = on_peer_up, .peer_down = on_peer_down, .frame = on_frame},
    };
    pthread_mutex_init(&node.fabric_lock, NULL);
    calls[0] = '\0';
    failing = NULL;
    return 0;
}

/* Returns the size of the hello in `frame`. */
static size_t write_hello(const char *name, uint64_t first_word, uint64_t group) {
    struct remo__writer writer = remo__writer_of(frame, sizeof frame);
    remo__put_string(&writer, name);
    remo__put_u64(&writer, RESERVED);
    remo__put_u32(&writer, 1);
    for (uint32_t i = 0; i < REMO__ARRAY_COUNT(node.processors.word); i++)
        remo__put_u64(&writer, i == 0 ? first_word : 0);
    remo__put_u64(&writer, group);
    remo__put_bytes(&writer, HELLO_BLOB, strlen(HELLO_BLOB));
    return (size_t)(writer.at - frame);
}

static void greet(bool same_machine, const char *name, uint64_t first_word, uint64_t group) {
    size_t bytes = write_hello(name, first_word, group);
    remo__peer_on_up(&node, PEER, 9, same_machine, frame, bytes);
}

static void check_refused(const char *because) {
    assert_true(atomic_load(&node.refused));
    assert_int_equal(node.join_rc, -EPROTO);
    assert_non_null(strstr(node.join_error, "node 2: "));
    assert_non_null(strstr(node.join_error, because));
}

static void test_hello(void **state) {
    (void)state;
    peers[PEER].mapped_bytes = 5; /* of an earlier incarnation */
    greet(true, "fake", 2, GROUP);
    check_calls("agree connect announce send ");
    assert_false(atomic_load(&node.refused));
    assert_true(atomic_load(&peers[PEER].was_connected));
    assert_int_equal(peers[PEER].incarnation, 9);
    assert_int_equal(peers[PEER].mapped_bytes, 0);
    assert_true(peers[PEER].shares_processors);
    assert_true(peers[PEER].shares_quota);
    assert_int_equal(agreed_bytes, RESERVED);
    assert_true(agreed_is_set);
    greet(true, "fake", 1, GROUP + 1);
    assert_false(peers[PEER].shares_processors);
    assert_false(peers[PEER].shares_quota);
    greet(false, "fake", 2, GROUP);
    assert_false(peers[PEER].shares_processors);
    assert_false(peers[PEER].shares_quota);
}

static void test_hello_fails(void **state) {
    static const struct {
        const char *call, *calls;
    } cases[] = {
        {"agree", "agree error wake "},
        {"connect", "agree connect error wake "},
        {"announce", "agree connect announce error wake "},
        {"send", "agree connect announce send error wake "},
    };
    failing_rc = -EIO;
    for (size_t i = 0; i < REMO__ARRAY_COUNT(cases); i++) {
        open_node(state);
        failing = cases[i].call;
        greet(true, "fake", 2, GROUP);
        check_calls(cases[i].calls);
        check_refused(i == 0 ? "it has reserved 8 MiB for its arena, this node 8" : "failed");
    }
}

static void test_hello_is_wrong(void **state) {
    greet(true, "other", 2, GROUP);
    check_calls("error wake ");
    check_refused("another fabric");
    open_node(state);
    size_t bytes = write_hello("fake", 2, GROUP) - strlen(HELLO_BLOB);
    remo__peer_on_up(&node, PEER, 9, true, frame, bytes - 1);
    check_calls("error wake ");
    check_refused("malformed hello");
    greet(true, "other", 2, GROUP); /* the first reason remains */
    check_refused("malformed hello");
}

static void test_denied(void **state) {
    (void)state;
    remo__peer_on_denied(&node, PEER, "no credential");
    check_calls("error wake ");
    assert_true(atomic_load(&node.refused));
    assert_int_equal(node.join_rc, -EACCES);
    assert_string_equal(node.join_error, "node 2: no credential");
    remo__peer_on_denied(&node, PEER, "another reason");
    check_calls("");
    assert_string_equal(node.join_error, "node 2: no credential");
}

/* Returns the file descriptor that the frame carried. */
static int announce(uint32_t index, uint64_t offset, uint64_t bytes, uint32_t blob_bytes, size_t extra) {
    static const uint8_t blob[REMO__BLOB_BYTES_MAX + 1];
    static uint8_t announcement[REMO__BLOB_BYTES_MAX + 64];
    struct remo__writer writer = remo__writer_of(announcement, sizeof announcement);
    remo__put_u32(&writer, index);
    remo__put_u64(&writer, offset);
    remo__put_u64(&writer, bytes);
    remo__put_u32(&writer, blob_bytes);
    remo__put_bytes(&writer, blob, blob_bytes + extra);
    int fd = dup(STDOUT_FILENO);
    assert_true(fd >= 0);
    remo__peer_on_frame(&node, PEER, REMO__NODE_FRAME_SEGMENT, announcement,
                        (size_t)(writer.at - announcement), fd);
    return fd;
}

static void check_closed(int fd) {
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void test_segments(void **state) {
    (void)state;
    check_closed(announce(0, 0, RESERVED / 2, 4, 0));
    check_calls("map wake ");
    assert_int_equal(peers[PEER].mapped_bytes, RESERVED / 2);
    check_closed(announce(REMO__SEGMENTS_MAX - 1, RESERVED / 2, RESERVED / 2, REMO__BLOB_BYTES_MAX, 0));
    check_calls("map wake ");
    assert_int_equal(peers[PEER].mapped_bytes, RESERVED);
    assert_false(atomic_load(&node.refused));
}

static void test_segment_is_invalid(void **state) {
    static const struct {
        uint32_t index;
        uint64_t offset, bytes;
        uint32_t blob_bytes;
        size_t extra;
    } cases[] = {
        {REMO__SEGMENTS_MAX, 0, 64, 4, 0}, {0, 0, 64, REMO__BLOB_BYTES_MAX + 1, 0},
        {0, 0, RESERVED + 1, 4, 0},        {0, 64, 64, 4, 0},
        {0, 64, UINT64_MAX, 4, 0},         {0, 0, 64, 4, 1},
    };
    for (size_t i = 0; i < REMO__ARRAY_COUNT(cases); i++) {
        open_node(state);
        if (cases[i].bytes == UINT64_MAX)
            peers[PEER].mapped_bytes = 64; /* only the sum is wrong */
        check_closed(
            announce(cases[i].index, cases[i].offset, cases[i].bytes, cases[i].blob_bytes, cases[i].extra));
        check_calls("error wake wake ");
        check_refused("it announced an invalid segment");
    }
}

static void test_segment_fails(void **state) {
    (void)state;
    failing = "map";
    failing_rc = -ENOMEM;
    check_closed(announce(0, 0, 64, 4, 0));
    check_calls("map error wake wake ");
    check_refused("map failed");
    assert_int_equal(peers[PEER].mapped_bytes, 0);
}

static void test_ready(void **state) {
    (void)state;
    peers[PEER].state = REMO_PEER_JOINING;
    remo__peer_on_frame(&node, PEER, REMO__NODE_FRAME_READY, NULL, 0, -1);
    check_calls("wake "); /* no segment yet */
    assert_int_equal(remo_node_peer(&node, PEER), REMO_PEER_JOINING);
    peers[PEER].mapped_bytes = 1;
    remo__peer_on_frame(&node, PEER, REMO__NODE_FRAME_READY, NULL, 0, -1);
    check_calls("info up-hook report wake ");
    assert_int_equal(remo_node_peer(&node, PEER), REMO_PEER_UP);
    assert_true(atomic_load(&peers[PEER].reported));
}

static void test_other_frames(void **state) {
    (void)state;
    remo__peer_on_frame(&node, PEER, REMO__NODE_FRAME_CHANNELS, "abc", 3, -1);
    check_calls("frame wake ");
    remo__peer_on_frame(&node, PEER, REMO__NODE_FRAME_CHANNELS - 1, "abc", 3, -1);
    check_calls("wake ");
    int fd = dup(STDOUT_FILENO);
    remo__peer_on_frame(&node, PEER, REMO__NODE_FRAME_CHANNELS + 1, "abc", 3, fd);
    check_closed(fd);
}

static void test_down(void **state) {
    (void)state;
    peers[PEER].state = REMO_PEER_UP;
    remo__peer_on_down(&node, PEER, -EIO);
    check_calls("warning wake disconnect wake down-hook report wake forget ");
    assert_int_equal(remo_node_peer(&node, PEER), REMO_PEER_DEAD);
    peers[PEER].state = REMO_PEER_UP;
    node.on_peer = NULL;
    remo__peer_on_down(&node, PEER, 0);
    check_calls("info wake disconnect wake down-hook wake forget ");
    assert_int_equal(remo_node_peer(&node, PEER), REMO_PEER_LEFT);
}

static void test_loss(void **state) {
    (void)state;
    for (uint32_t peer = 0; peer <= NODES; peer++)
        is_lost[peer] = true;
    remo__peer_on_wake(&node);
    check_calls(""); /* the wake-up had another reason */
    atomic_store(&node.has_loss, true);
    remo__peer_on_wake(&node);
    check_calls("lose-0 lose-2 "); /* not this node */
    remo__peer_on_wake(&node);
    check_calls("");
    is_lost[0] = false;
    atomic_store(&node.has_loss, true);
    remo__peer_on_wake(&node);
    check_calls("lose-2 ");
}

static void test_end(void **state) {
    (void)state;
    peers[0].state = REMO_PEER_LEFT;
    peers[1].state = peers[2].state = peers[NODES].state = REMO_PEER_UP;
    remo__peer_on_end(&node);
    check_calls("wake ");
    assert_int_equal(remo_node_peer(&node, 0), REMO_PEER_LEFT);
    assert_int_equal(remo_node_peer(&node, 1), REMO_PEER_UP); /* this node */
    assert_int_equal(remo_node_peer(&node, 2), REMO_PEER_DEAD);
    assert_int_equal(peers[NODES].state, REMO_PEER_UP);
}

static void test_sentences(void **state) {
    static const struct {
        enum remo_peer_state state;
        const char *text;
    } cases[] = {
        {REMO_PEER_LEFT, "it has left the job"},
        {REMO_PEER_JOINING, "it has not joined yet"},
        {REMO_PEER_UP, "and has joined again"},
        {REMO_PEER_DEAD, "it has failed"},
    };
    (void)state;
    for (size_t i = 0; i < REMO__ARRAY_COUNT(cases); i++) {
        peers[PEER].state = cases[i].state;
        assert_int_equal(remo_node_peer(&node, PEER), cases[i].state);
        assert_int_equal(remo__peer_fail(&node, PEER, "read"), -EHOSTDOWN);
        assert_non_null(strstr(remo_last_error(), "cannot read node 2"));
        assert_non_null(strstr(remo_last_error(), cases[i].text));
    }
    assert_int_equal(remo__peer_timeout(&node, PEER, "read"), -ETIMEDOUT);
    assert_non_null(strstr(remo_last_error(), "(7 ms)"));
    peers[NODES - 1].state = REMO_PEER_UP;
    assert_int_equal(remo_node_peer(&node, NODES - 1), REMO_PEER_UP);
    assert_int_equal(remo_node_peer(&node, NODES), REMO_PEER_DEAD);
    assert_int_equal(remo_node_peer(NULL, 0), REMO_PEER_DEAD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_hello, open_node),
        cmocka_unit_test_setup(test_hello_fails, open_node),
        cmocka_unit_test_setup(test_hello_is_wrong, open_node),
        cmocka_unit_test_setup(test_denied, open_node),
        cmocka_unit_test_setup(test_segments, open_node),
        cmocka_unit_test_setup(test_segment_is_invalid, open_node),
        cmocka_unit_test_setup(test_segment_fails, open_node),
        cmocka_unit_test_setup(test_ready, open_node),
        cmocka_unit_test_setup(test_other_frames, open_node),
        cmocka_unit_test_setup(test_down, open_node),
        cmocka_unit_test_setup(test_loss, open_node),
        cmocka_unit_test_setup(test_end, open_node),
        cmocka_unit_test_setup(test_sentences, open_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
