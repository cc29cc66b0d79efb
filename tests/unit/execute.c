/* execute.c - unit tests of requests that a peer executes, on fabric ofi: a full queue of immediates.
 * A write with an immediate is executed when the queue has room. Its data is placed once, and only then: a
 * second placement could overwrite newer data. */
#include "fabric/ofi/execute.h"

#include <stdlib.h>

#include "unit.h"

#define PEER 0u
#define DATA UINT64_C(0x1111111111111111)
#define VALUE UINT32_C(77)

struct fixture {
    _Atomic uint32_t cut_off_counts[1];
    uint64_t arena[8];
    struct ofi_memory memory;
    uint8_t request[128], answer[REMO__OFI_MESSAGE_BYTES];
    size_t request_bytes;
};

static void append(struct fixture *fixture, const void *from, size_t bytes) {
    memcpy(fixture->request + fixture->request_bytes, from, bytes);
    fixture->request_bytes += bytes;
}

/* A request of one write of a word, with an immediate. */
static struct fixture *make_fixture(void) {
    struct fixture *fixture = aligned_alloc(64, remo__align_up(sizeof *fixture, 64));
    assert_non_null(fixture);
    memset(fixture, 0, sizeof *fixture);
    fixture->memory.arena = (char *)fixture->arena;
    remo__ofi_imms_init(&fixture->memory.imms, fixture->cut_off_counts);
    assert_int_equal(remo__ofi_ranges_add(&fixture->memory.ranges, 0, sizeof fixture->arena), 0);
    struct remo__ofi_head head = {.seq = 1, .count = 1};
    struct remo__ofi_record record = {
        .offset = 8, .size_bytes = 8, .kind = REMO__OP_WRITE, .flags = REMO__OP_IMM};
    uint64_t data = DATA, value = VALUE;
    append(fixture, &head, sizeof head);
    append(fixture, &record, sizeof record);
    append(fixture, &data, sizeof data);
    append(fixture, &value, sizeof value);
    return fixture;
}

static void fill_queue(struct ofi_imms *imms) {
    uint64_t at;
    for (uint32_t i = 0; i < REMO__OFI_IMMS_MAX; i++) {
        assert_true(remo__ofi_imms_claim(imms, &at));
        remo__ofi_imms_fill(imms, at, PEER, 0, i);
    }
    assert_false(remo__ofi_imms_claim(imms, &at));
}

static void test_stalled_write(void **state) {
    (void)state;
    struct fixture *fixture = make_fixture();
    struct ofi_memory *memory = &fixture->memory;
    struct ofi_run run;
    struct remo__imm imm = {0};
    fill_queue(&memory->imms);
    remo__ofi_run_start(&run, fixture->request, fixture->request_bytes, 1, fixture->answer, 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(remo__ofi_run(&run, memory, PEER, 0), OFI_RUN_STALLED);
        assert_int_equal(fixture->arena[1], 0);
    }
    assert_int_equal(remo__ofi_imms_take(&memory->imms, &imm, 1), 1);
    assert_int_equal(imm.value, 0);
    assert_int_equal(remo__ofi_run(&run, memory, PEER, 0), OFI_RUN_DONE);
    assert_int_equal(fixture->arena[1], DATA);
    for (uint32_t i = 1; i < REMO__OFI_IMMS_MAX; i++)
        assert_int_equal(remo__ofi_imms_take(&memory->imms, &imm, 1), 1);
    assert_int_equal(remo__ofi_imms_take(&memory->imms, &imm, 1), 1);
    assert_int_equal(imm.value, VALUE);
    assert_int_equal(remo__ofi_imms_take(&memory->imms, &imm, 1), 0);
    free(fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stalled_write)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
