/* fabric.c - the parts of fabric.h that all fabrics share: doorbells, and stubs for missing operations.
 *
 * Doorbells lose no wake-up. The ringer does a full fence and then reads `sleepers`; the sleeper counts
 * itself and then checks its condition. It reads `seen_seq` before that check, so the futex does not sleep
 * after a ring in between. */
#include "fabric/fabric.h"

#include <errno.h>

#include "base/error.h"
#include "base/futex.h"

/* ---- doorbells ---- */

void remo__doorbell_ring(struct remo__doorbell *bell) {
    atomic_fetch_add(&bell->seq, 1);
    remo__futex_wake_all(&bell->seq);
}

void remo__doorbell_sleep(struct remo__doorbell *bell, uint32_t seen_seq, uint64_t timeout_ns) {
    remo__futex_wait(&bell->seq, seen_seq, timeout_ns);
}

/* ---- stubs ---- */

static int stub_fail(void) {
    return remo__fail_static(-EOPNOTSUPP,
                             "this fabric does not support the operation; choose another fabric");
}

static int stub_probe(const struct remo__fabric_config *config) {
    (void)config;
    return stub_fail();
}

static int stub_open(const struct remo__fabric_config *config, struct remo__fabric **ret_fabric) {
    (void)config, (void)ret_fabric;
    return stub_fail();
}

static void stub_close(struct remo__fabric *fabric) {
    (void)fabric;
}

static int stub_add_segment(struct remo__fabric *fabric, uint32_t index, uint64_t offset, uint64_t bytes,
                            int fd, void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    (void)fabric, (void)index, (void)offset, (void)bytes, (void)fd, (void)blob, (void)blob_cap,
        (void)ret_blob_bytes;
    return stub_fail();
}

static int stub_map_segment(struct remo__fabric *fabric, uint32_t peer, uint32_t index, uint64_t offset,
                            uint64_t bytes, const void *blob, size_t blob_bytes, int fd) {
    (void)fabric, (void)peer, (void)index, (void)offset, (void)bytes, (void)blob, (void)blob_bytes, (void)fd;
    return stub_fail();
}

static int stub_describe(struct remo__fabric *fabric, void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    (void)fabric, (void)blob, (void)blob_cap, (void)ret_blob_bytes;
    return stub_fail();
}

static int stub_connect(struct remo__fabric *fabric, uint32_t peer, const void *blob, size_t blob_bytes) {
    (void)fabric, (void)peer, (void)blob, (void)blob_bytes;
    return stub_fail();
}

static void stub_disconnect(struct remo__fabric *fabric, uint32_t peer) {
    (void)fabric, (void)peer;
}

static int stub_endpoint_open(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint) {
    (void)fabric, (void)ret_endpoint;
    return stub_fail();
}

static void stub_endpoint_close(struct remo__endpoint *endpoint) {
    (void)endpoint;
}

static int stub_post(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count) {
    (void)endpoint, (void)ops, (void)count;
    return stub_fail();
}

static int stub_poll(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max) {
    (void)endpoint, (void)done, (void)max;
    return stub_fail();
}

static void stub_wait(struct remo__endpoint *endpoint, uint64_t timeout_ns) {
    (void)endpoint, (void)timeout_ns;
}

static int stub_imm_poll(struct remo__fabric *fabric, struct remo__imm *imms, uint32_t max) {
    (void)fabric, (void)imms, (void)max;
    return stub_fail();
}

static void stub_imm_wait(struct remo__fabric *fabric, uint64_t timeout_ns) {
    (void)fabric, (void)timeout_ns;
}

static void stub_imm_wake(struct remo__fabric *fabric) {
    (void)fabric;
}

void remo__fabric_wire_none(struct remo__fabric *fabric, struct remo__fabric_wire *ret_wire) {
    (void)fabric;
    *ret_wire = (struct remo__fabric_wire){0};
}

const struct remo__fabric_ops remo__fabric_stubs = {
    .name = "none",
    .probe = stub_probe,
    .open = stub_open,
    .close = stub_close,
    .add_segment = stub_add_segment,
    .map_segment = stub_map_segment,
    .describe = stub_describe,
    .connect = stub_connect,
    .disconnect = stub_disconnect,
    .endpoint_open = stub_endpoint_open,
    .endpoint_close = stub_endpoint_close,
    .post = stub_post,
    .poll = stub_poll,
    .wait = stub_wait,
    .imm_poll = stub_imm_poll,
    .imm_wait = stub_imm_wait,
    .imm_wake = stub_imm_wake,
    .wire = remo__fabric_wire_none,
};

struct remo__fabric_ops remo__fabric_complete(const struct remo__fabric_ops *ops) {
    struct remo__fabric_ops whole = *ops;
#define FILL(member)   \
    if (!whole.member) \
    whole.member = remo__fabric_stubs.member
    FILL(name);
    FILL(probe);
    FILL(open);
    FILL(close);
    FILL(add_segment);
    FILL(map_segment);
    FILL(describe);
    FILL(connect);
    FILL(disconnect);
    FILL(endpoint_open);
    FILL(endpoint_close);
    FILL(post);
    FILL(poll);
    FILL(wait);
    FILL(imm_poll);
    FILL(imm_wait);
    FILL(imm_wake);
    FILL(wire);
#undef FILL
    return whole;
}
