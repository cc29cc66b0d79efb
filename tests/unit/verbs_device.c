/* Devices that cannot do what objects need are refused by a sentence that names what is missing. */
#include <errno.h>
#include <remo/error.h>
#include <string.h>

#include "fabric/verbs.h"
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

/* A device of its own processor is given up in time for whoever waits 100 ms for the news. */
static void test_silence(void **state) {
    (void)state;
    assert_true(remo__verbs_silence_ns(REMO__VERBS_ACK_TIMEOUT) <= 100 * REMO__NS_PER_MS);
    assert_true(remo__verbs_silence_ns(REMO__VERBS_ACK_TIMEOUT_SOFTWARE) > REMO__NS_PER_S);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_able), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_silence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
