/* verbs_device.c - unit tests of fabric verbs that need no device: settings, limits, rejections, error codes,
 * the connection request. */
#include <errno.h>
#include <remo/error.h>
#include <string.h>

#include "fabric/verbs/wire.h"
#include "unit.h"

static const struct ibv_device_attr able = {.atomic_cap = IBV_ATOMIC_HCA, .max_srq = 1};

static void refused(enum ibv_transport_type transport, const struct ibv_device_attr *attr,
                    const char *words) {
    assert_int_equal(remo__verbs_device_check("fake0", transport, attr), -ENODEV);
    assert_non_null(strstr(remo_last_error(), "fake0"));
    assert_non_null(strstr(remo_last_error(), words));
}

static void test_able(void **state) {
    (void)state;
    struct ibv_device_attr global = able;
    global.atomic_cap = IBV_ATOMIC_GLOB;
    assert_int_equal(remo__verbs_device_check("fake0", IBV_TRANSPORT_IB, &able), 0);
    assert_int_equal(remo__verbs_device_check("fake0", IBV_TRANSPORT_IB, &global), 0);
}

static void test_refused(void **state) {
    (void)state;
    struct ibv_device_attr no_atomics = able, no_receives = able;
    no_atomics.atomic_cap = IBV_ATOMIC_NONE;
    no_receives.max_srq = 0;
    refused(IBV_TRANSPORT_IB, &no_atomics, "atomics");
    refused(IBV_TRANSPORT_IB, &no_receives, "immediates");
    refused(IBV_TRANSPORT_IWARP, &able, "immediates");
    refused(IBV_TRANSPORT_IWARP, &no_atomics, "iWARP");
    refused(IBV_TRANSPORT_USNIC, &able, "neither");
}

/* A hardware device detects the failure of a peer within 100 ms. */
static void test_silence(void **state) {
    (void)state;
    assert_true(remo__verbs_silence_ns(REMO__VERBS_ACK_TIMEOUT) <= 100 * REMO__NS_PER_MS);
    assert_true(remo__verbs_silence_ns(REMO__VERBS_ACK_TIMEOUT_SOFTWARE) > REMO__NS_PER_S);
}

/* ---- settings ---- */

static int options_of(const char *text, uint32_t rank, struct verbs_options *ret_options) {
    struct remo__fabric_config config = {.rank = rank, .size = 4, .provider = text};
    return remo__verbs_options_read(&config, ret_options);
}

static void test_options(void **state) {
    (void)state;
    struct verbs_options options;
    assert_int_equal(options_of(NULL, 0, &options), 0);
    assert_string_equal(options.device, "");
    assert_true(options.port == 0 && options.gid_index == -1 && options.mtu_bytes == 0 && !options.paging);
    assert_int_equal(options_of("mlx5_0:2:3:mtu=1024:timeout=200:odp", 0, &options), 0);
    assert_string_equal(options.device, "mlx5_0");
    assert_true(options.port == 2 && options.gid_index == 3);
    assert_true(options.mtu_bytes == 1024 && options.timeout_ms == 200 && options.paging);
    assert_int_equal(options_of("a:mtu=512,b:7,c", 1, &options), 0); /* one device for each rank in turn */
    assert_string_equal(options.device, "b");
    assert_true(options.port == 7 && options.mtu_bytes == 0);
    assert_int_equal(options_of("a:mtu=512,b:7,c", 3, &options), 0);
    assert_string_equal(options.device, "a");
    assert_int_equal(options.mtu_bytes, 512);
}

static void test_wrong_options(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "rxe0:0",
        "rxe0:256",
        "rxe0:one",
        "rxe0:1:-1",
        "rxe0:1:65536",
        "rxe0:1:1:1",
        "rxe0:mtu=0",
        "rxe0:mtu=1000",
        "rxe0:mtu=128",
        "rxe0:mtu=8192",
        "rxe0:mtu=",
        "rxe0:mtu=512x",
        "rxe0:timeout=0",
        "rxe0:timeout=60001",
        "rxe0:timeout=",
        "rxe0:1:1:speed=fast",
        "a_name_that_is_longer_than_any_name_of_a_device_that_the_kernel_would_give_it_0123456789"};
    struct verbs_options options = {.port = 42};
    for (size_t i = 0; i < REMO__ARRAY_COUNT(wrong); i++) {
        assert_int_equal(options_of(wrong[i], 0, &options), -EINVAL);
        assert_non_null(strstr(remo_last_error(), "mtu=BYTES"));
        assert_int_equal(options.port, 42);
    }
}

static const struct ibv_device_attr large = {.vendor_id = 0x15b3,
                                             .atomic_cap = IBV_ATOMIC_GLOB,
                                             .max_srq_wr = 1 << 20,
                                             .max_cqe = 1 << 22,
                                             .max_qp_wr = 1 << 15,
                                             .max_qp_rd_atom = 128,
                                             .max_qp_init_rd_atom = 128};

static struct verbs_device settled(const struct ibv_device_attr *attr, enum ibv_mtu mtu, const char *text) {
    struct ibv_port_attr port = {.active_mtu = mtu, .max_mtu = IBV_MTU_4096};
    struct verbs_device device = {0};
    struct verbs_options options;
    assert_int_equal(options_of(text, 0, &options), 0);
    remo__verbs_device_settle(attr, &port, &options, &device);
    return device;
}

/* The MTU is the port's or smaller, so that the network transports every packet. */
static void test_mtu(void **state) {
    (void)state;
    assert_int_equal(settled(&large, IBV_MTU_1024, "mlx5_0").mtu_bytes, 1024);
    assert_int_equal(settled(&large, IBV_MTU_4096, "mlx5_0").mtu_bytes, 4096);
    assert_int_equal(settled(&large, IBV_MTU_4096, "mlx5_0:1:3:mtu=1024").mtu_bytes, 1024);
    assert_int_equal(settled(&large, IBV_MTU_4096, "mlx5_0:mtu=256").mtu_bytes, 256);
    assert_int_equal(settled(&large, IBV_MTU_1024, "mlx5_0:mtu=4096").mtu_bytes, 1024);
}

static void test_limits(void **state) {
    (void)state;
    struct ibv_device_attr small = {
        .max_srq_wr = 100, .max_cqe = 200, .max_qp_wr = 50, .max_qp_rd_atom = 8, .max_qp_init_rd_atom = 4};
    struct verbs_device device = settled(&large, IBV_MTU_4096, "mlx5_0");
    assert_true(device.atomics_global && !device.software);
    assert_int_equal(device.receives, REMO__VERBS_RECEIVES_MAX);
    assert_int_equal(device.completions, REMO__VERBS_COMPLETIONS_MAX);
    assert_int_equal(device.sends, REMO__VERBS_SENDS_MAX);
    assert_int_equal(device.reads, REMO__VERBS_READS_MAX);
    device = settled(&small, IBV_MTU_4096, "mlx5_0");
    assert_false(device.atomics_global);
    assert_int_equal(device.receives, 100);
    assert_int_equal(device.completions, 200);
    assert_int_equal(device.sends, 50);
    assert_int_equal(device.reads, 4);
}

static void test_patience(void **state) {
    (void)state;
    struct ibv_device_attr software = large;
    software.vendor_id = 0xffffff;
    assert_int_equal(settled(&large, IBV_MTU_4096, "mlx5_0").ack_timeout, REMO__VERBS_ACK_TIMEOUT);
    assert_int_equal(settled(&software, IBV_MTU_4096, "rxe0").ack_timeout, REMO__VERBS_ACK_TIMEOUT_SOFTWARE);
    uint8_t asked = settled(&software, IBV_MTU_4096, "rxe0:timeout=200").ack_timeout;
    assert_true(remo__verbs_silence_ns(asked) <= 200 * REMO__NS_PER_MS);
    assert_true(remo__verbs_silence_ns(asked + 1) > 200 * REMO__NS_PER_MS);
}

/* ---- errors ---- */

static void test_status(void **state) {
    (void)state;
    static const enum ibv_wc_status refusals[] = {IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR,
                                                  IBV_WC_LOC_PROT_ERR},
                                    losses[] = {IBV_WC_RETRY_EXC_ERR,     IBV_WC_REM_ABORT_ERR,
                                                IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_RESP_TIMEOUT_ERR,
                                                IBV_WC_WR_FLUSH_ERR,      IBV_WC_LOC_LEN_ERR,
                                                IBV_WC_REM_INV_REQ_ERR,   IBV_WC_REM_OP_ERR,
                                                IBV_WC_FATAL_ERR,         IBV_WC_GENERAL_ERR};
    for (size_t i = 0; i < REMO__ARRAY_COUNT(refusals); i++)
        assert_true(remo__verbs_is_refusal(refusals[i]));
    for (size_t i = 0; i < REMO__ARRAY_COUNT(losses); i++)
        assert_false(remo__verbs_is_refusal(losses[i]));
}

/* ---- the connection request ---- */

static void test_hello(void **state) {
    (void)state;
    struct verbs_hello said = {.rank = 7, .from_incarnation = 0x123456789, .to_incarnation = UINT64_MAX},
                       heard;
    uint8_t data[196] = {0}; /* received data is padded to this size */
    memset(said.secret, 0x5a, sizeof said.secret);
    verbs_hello_write(data, &said);
    assert_true(verbs_hello_read(data, sizeof data, &heard));
    assert_true(heard.rank == 7 && heard.from_incarnation == said.from_incarnation
                && heard.to_incarnation == said.to_incarnation);
    assert_memory_equal(heard.secret, said.secret, sizeof said.secret);
    for (size_t bytes = 0; bytes < 4 + 4 + 8 + 8 + REMO__VERBS_SECRET_BYTES; bytes++)
        assert_false(verbs_hello_read(data, bytes, &heard));
    data[0] ^= 1;
    assert_false(verbs_hello_read(data, sizeof data, &heard));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_able),          cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_silence),       cmocka_unit_test(test_options),
                                       cmocka_unit_test(test_wrong_options), cmocka_unit_test(test_mtu),
                                       cmocka_unit_test(test_limits),        cmocka_unit_test(test_patience),
                                       cmocka_unit_test(test_status),        cmocka_unit_test(test_hello)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
