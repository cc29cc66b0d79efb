/* key_claim.c - unit tests of the claims of keys at their owner: which claims precede a transaction, and
 * which have no effect any more. No test depends on time: a time limit has passed, or is never reached. */
#include "systems/tx/key_claim.h"

#include "unit.h"

#define CLAIMS 4u
#define KEY 5u       /* hashes of keys of the group */
#define OTHER_KEY 6u /* likewise */

static struct remo__structure_group group;
static _Atomic uint32_t losses; /* of the node of claims[0] */
static const char space, other_space;
static struct remo__key_claim claims[CLAIMS];
static struct remo__key_claim_entry entries[CLAIMS];

static int setup(void **state) {
    (void)state;
    memset(entries, 0, sizeof entries);
    memset(claims, 0, sizeof claims);
    group = (struct remo__structure_group){.mutex = PTHREAD_MUTEX_INITIALIZER};
    atomic_store(&losses, 0);
    return 0;
}

static uint32_t count_entries(void) {
    uint32_t count = 0;
    for (const struct remo__key_claim_entry *entry = group.claims; entry; entry = entry->next)
        count++;
    return count;
}

static bool is_listed(uint32_t index) {
    return entries[index].link != NULL;
}

/* Claim a key with claims[index]. */
static void add(uint32_t index, uint64_t hash, uint32_t claimant, uint64_t age) {
    static _Atomic uint32_t no_losses;
    claims[index] = (struct remo__key_claim){
        .space = &space, .claimant = claimant, .age = age, .ends_at_ns = UINT64_MAX, .losses = &no_losses};
    entries[index] = (struct remo__key_claim_entry){.group = &group, .claim = &claims[index], .hash = hash};
    remo__key_claim_add(&entries[index]);
}

static bool is_preceded(uint64_t hash, uint32_t claimant) {
    return remo__key_claim_precedes(&group, hash, &space, claimant, true);
}

static void test_no_claim(void **state) {
    (void)state;
    assert_false(is_preceded(KEY, 0));
    assert_false(is_preceded(KEY, 1));
}

static void test_age(void **state) {
    (void)state;
    add(0, KEY, 7, 20);
    add(1, KEY, 8, 10); /* the older one has the greater number */
    add(2, KEY, 9, 30);
    assert_true(is_preceded(KEY, 7));
    assert_false(is_preceded(KEY, 8));
    assert_true(is_preceded(KEY, 9));
    assert_true(is_preceded(KEY, 0)); /* without claims */
    assert_true(is_preceded(KEY, 6)); /* its claim has not arrived */
    assert_false(is_preceded(OTHER_KEY, 0));
    remo__key_claim_remove(&entries[1]);
    assert_false(is_preceded(KEY, 7));
    assert_true(is_preceded(KEY, 9));
}

static void test_equal_age(void **state) {
    (void)state;
    add(0, KEY, 8, 10);
    add(1, KEY, 7, 10);
    add(2, KEY, 9, 10);
    assert_false(is_preceded(KEY, 7));
    assert_true(is_preceded(KEY, 8));
    assert_true(is_preceded(KEY, 9));
}

/* A transaction claims other keys of the group: its age counts there too. */
static void test_own_claim(void **state) {
    (void)state;
    add(0, KEY, 7, 10);
    add(1, KEY, 7, 10);
    assert_false(is_preceded(KEY, 7));
    add(2, OTHER_KEY, 8, 20);
    assert_false(is_preceded(OTHER_KEY, 7));
    add(3, OTHER_KEY, 9, 5);
    assert_true(is_preceded(OTHER_KEY, 7));
    assert_true(is_preceded(OTHER_KEY, 8));
}

/* A claimant of another space may have the same number. */
static void test_other_space(void **state) {
    (void)state;
    add(0, KEY, 7, 10);
    claims[0].space = &other_space;
    assert_true(is_preceded(KEY, 7));
    assert_true(is_preceded(KEY, 0));
    add(1, KEY, 7, 20);
    assert_true(is_preceded(KEY, 7));
    assert_false(remo__key_claim_precedes(&group, KEY, &other_space, 7, true));
}

/* A claim of an absent key is for all keys of the group. */
static void test_group(void **state) {
    (void)state;
    add(0, KEY, 7, 10);
    assert_false(is_preceded(OTHER_KEY, 9));
    entries[0].is_for_group = true;
    assert_true(is_preceded(OTHER_KEY, 9));
    add(1, OTHER_KEY, 8, 5);
    assert_false(is_preceded(OTHER_KEY, 8));
    assert_false(is_preceded(KEY, 7));
    assert_false(is_preceded(KEY, 8)); /* the other claimant is older */
}

/* Transactions that only read a key do not wait for each other, but changes wait for them. */
static void test_only_read(void **state) {
    (void)state;
    add(0, KEY, 7, 10);
    add(1, KEY, 8, 20);
    add(2, OTHER_KEY, 9, 5);
    entries[2].is_for_group = true;
    assert_false(remo__key_claim_precedes(&group, KEY, &space, 8, false));
    assert_true(is_preceded(KEY, 8));
    entries[0].changes = true;
    assert_true(remo__key_claim_precedes(&group, KEY, &space, 8, false));
    assert_false(remo__key_claim_precedes(&group, OTHER_KEY, &space, 8, false));
    entries[2].changes = true;
    assert_true(remo__key_claim_precedes(&group, KEY, &space, 7, false)); /* a new key changes the group */
}

static void test_time_limit(void **state) {
    (void)state;
    add(0, KEY, 7, 10);
    add(1, KEY, 8, 20);
    add(2, OTHER_KEY, 9, 5);
    claims[0].ends_at_ns = claims[2].ends_at_ns = 0;
    assert_false(is_preceded(KEY, 8));
    assert_false(is_listed(0));
    assert_false(is_listed(2)); /* each search removes all of them */
    assert_true(is_listed(1));
    assert_int_equal(count_entries(), 1);
    assert_true(is_preceded(KEY, 7)); /* its own claim has ended */
}

static void test_cut_off(void **state) {
    (void)state;
    add(0, KEY, 7, 10);
    claims[0].losses = &losses;
    assert_true(is_preceded(KEY, 0));
    atomic_store(&losses, 1);
    assert_false(is_preceded(KEY, 0));
    assert_false(is_listed(0));
    assert_null(group.claims);
}

/* A node connects again: its claims from then on have an effect, and those from before do not. */
static void test_connected_again(void **state) {
    (void)state;
    atomic_store(&losses, 1);
    add(0, KEY, 7, 10);
    add(1, KEY, 8, 20);
    claims[0].losses = claims[1].losses = &losses;
    claims[1].losses_before = 1;
    assert_false(is_preceded(KEY, 8));
    assert_true(is_preceded(KEY, 0));
    assert_false(is_listed(0));
}

static void test_removal(void **state) {
    (void)state;
    for (uint32_t i = 0; i < CLAIMS; i++)
        add(i, KEY, 7 + i, 10 + i);
    remo__key_claim_remove(&entries[1]); /* between others */
    remo__key_claim_remove(&entries[1]);
    assert_int_equal(count_entries(), 3);
    remo__key_claim_remove(&entries[3]); /* the first of the list */
    remo__key_claim_remove(&entries[0]); /* the last one */
    assert_int_equal(count_entries(), 1);
    assert_true(group.claims == &entries[2] && is_listed(2));
    claims[2].ends_at_ns = 0;
    assert_false(is_preceded(KEY, 0));
    remo__key_claim_remove(&entries[2]); /* a search has removed it before */
    assert_null(group.claims);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_no_claim, setup),    cmocka_unit_test_setup(test_age, setup),
        cmocka_unit_test_setup(test_equal_age, setup),   cmocka_unit_test_setup(test_own_claim, setup),
        cmocka_unit_test_setup(test_other_space, setup), cmocka_unit_test_setup(test_group, setup),
        cmocka_unit_test_setup(test_only_read, setup),   cmocka_unit_test_setup(test_time_limit, setup),
        cmocka_unit_test_setup(test_cut_off, setup),     cmocka_unit_test_setup(test_connected_again, setup),
        cmocka_unit_test_setup(test_removal, setup)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
