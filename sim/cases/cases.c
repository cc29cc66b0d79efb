/* cases.c - the table of all cases, object by object.
 * A case is defined in the file of its object (lock.c); its name here is that of sim_case_NAME. */
#include "sim/case.h"

/* One line per object. clang-format would fill the lines. */
/* clang-format off */
#define CASES(X)                                                                                             \
    X(refusals)                                                                                              \
    X(join_sets) X(join_withdrawn)                                                                           \
    X(publish_pair) X(publish_thread) X(publish_global) X(cross) X(fence_again) X(fence_ends)                \
    X(fence_losses) X(fence_peers) X(fence_reports) X(fence_exempt) X(fence_leave) X(fence_full)             \
    X(fence_later)                                                                                           \
    X(notify_empty) X(notify_pieces)                                                                         \
    X(counter) X(word)                                                                                       \
    X(owned_var) X(owned_var_wait) X(owned_var_threads) X(owned_var_pushers) X(owned_var_lost)               \
    X(sst) X(sst_readers)                                                                                    \
    X(barrier) X(barrier_failures) X(barrier_absent) X(barrier_again) X(barrier_outside)                     \
    X(barrier_stages) X(barrier_stages_fail) X(barrier_stages_absent) X(barrier_stages_leave)                \
    X(barrier_stages_again)                                                                                  \
    X(lock) X(lock_elsewhere) X(lock_continues) X(lock_continues_threads) X(lock_threads) X(lock_late)       \
    X(lock_timed) X(lock_careless) X(lock_careless_threads) X(lock_zombie) X(lock_laps) X(lock_turns)        \
    X(lock_handover) X(lock_tries) X(lock_failures) X(lock_slow_none) X(lock_slow_pair)                      \
    X(lock_leaving) X(lock_unsettled) X(lock_slow_reset) X(lock_slow_grant) X(lock_orphans)                  \
    X(lock_unsent) X(lock_recounts) X(lock_two_failures) X(lock_long_hold) X(lock_unsent_brief)              \
    X(lock_late_grant) X(lock_late_grant_lost) X(lock_lost_pair) X(lock_unsent_grant) X(lock_unplaced)       \
    X(lock_unsure) X(lock_known) X(lock_known_continues) X(lock_known_timed) X(lock_known_slow)              \
    X(lock_known_half) X(lock_known_dead) X(lock_known_skipped)                                              \
    X(lock_report) X(lock_report_hot) X(lock_report_tries) X(lock_report_unsettled) X(lock_report_again)     \
    X(lock_report_dropped) X(lock_report_cut_off)                                                            \
    X(ringbuffer) X(ring_late) X(ring_credit) X(ring_takers)                                                 \
    X(queue) X(queue_threads) X(queue_waits) X(queue_overtaken) X(queue_failures) X(queue_skipped)           \
    X(queue_continues) X(queue_late) X(queue_behind) X(queue_kept) X(queue_kept_threads)                     \
    X(queue_kept_full) X(queue_outrun) X(queue_notified) X(queue_leaving) X(queue_resumes)                   \
    X(queue_retracted_pops) X(queue_retracted_pushes) X(queue_kept_pops) X(queue_kept_pushes)                \
    X(queue_kept_own) X(queue_late_clear) X(queue_removal) X(queue_unmoved) X(queue_unread) X(queue_unsent)  \
    X(queue_large)                                                                                           \
    X(kv_updates) X(kv_deletes) X(kv_threads) X(kv_overtaken) X(kv_reinserted) X(kv_long_keys)               \
    X(kv_collide) X(kv_tight) X(kv_counter) X(kv_puts) X(kv_cursor) X(kv_continues) X(kv_outcome)            \
    X(kv_lost) X(kv_window) X(kv_merged) X(kv_merged_late) X(kv_small_overtaken) X(kv_messages)              \
    X(kv_forged) X(kv_announced) X(kv_stale)                                                                 \
    X(heap) X(heap_copies) X(heap_ends) X(heap_leaving) X(heap_leaving_full) X(heap_reclaims)                \
    X(heap_full)                                                                                             \
    X(collective_moves) X(collective_sums) X(collective_parts) X(collective_differ)                          \
    X(rpc_calls) X(rpc_threads) X(rpc_forward) X(rpc_posts) X(rpc_window) X(rpc_circle) X(rpc_order)         \
    X(rpc_pieces) X(rpc_cancel) X(rpc_long) X(rpc_long_close) X(rpc_long_expired) X(rpc_long_abandon)        \
    X(rpc_forged) X(rpc_named) X(rpc_retired) X(rpc_late) X(rpc_near) X(rpc_near_started)                    \
    X(rpc_overtake) X(rpc_lockers) X(rpc_any) X(rpc_departed)                                                \
    X(rpc_large) X(rpc_large_cancel) X(rpc_large_failed) X(rpc_large_places) X(rpc_large_settle)             \
    X(rpc_large_forward) X(rpc_large_defer) X(rpc_large_delayed) X(rpc_large_forged) X(rpc_large_sizes)      \
    X(rpc_large_full) X(rpc_large_late) X(rpc_large_requests) X(rpc_large_unread) X(rpc_leaf)                \
    X(rpc_leaf_paused) X(rpc_leaf_faulty) X(rpc_named_leaf)                                                  \
    X(table_changes) X(table_updates) X(table_reuse) X(table_relinked) X(table_threads)                      \
    X(table_slots) X(table_buckets) X(table_growth) X(table_divided) X(table_refilled) X(table_crowd)        \
    X(structure_changes) X(structure_reuse) X(structure_relinked) X(structure_threads) X(structure_tx)       \
    X(structure_absent)                                                                                      \
    X(tx_pairs) X(tx_owners) X(tx_absent) X(tx_plain) X(tx_threads) X(tx_groups) X(tx_chain)                 \
    X(tx_both) X(tx_skew) X(tx_gone) X(tx_beside) X(tx_busy) X(tx_three) X(tx_two_fail) X(tx_moved)          \
    X(tx_apart) X(tx_two_apart) X(tx_both_apart) X(tx_together)                                              \
    X(tx_together_calls)                                                                                     \
    X(tx_queue) X(tx_queue_threads) X(tx_queue_key) X(tx_queue_owners)                                       \
    X(tx_wait_turns) X(tx_wait_owners) X(tx_wait_queue) X(tx_wait_growth) X(tx_wait_threads)                 \
    X(tx_wait_again) X(tx_wait_often) X(tx_wait_closes) X(tx_claims)                                         \
    X(tx_early_both) X(tx_early_skew) X(tx_early_gone) X(tx_early_beside) X(tx_early_busy)                   \
    X(tx_early_three) X(tx_early_two_fail) X(tx_early_moved) X(tx_early_apart) X(tx_early_two_apart)         \
    X(tx_early_both_apart) X(tx_early_kept) X(tx_early_renewed) X(tx_early_cross)                            \
    X(table_kept) X(table_late) X(table_moved) X(table_full) X(tx_growth)                                    \
    X(versioned_changes) X(versioned_pairs) X(versioned_instants) X(versioned_reuse) X(versioned_stages)     \
    X(versioned_writers) X(versioned_early) X(versioned_outrun) X(versioned_overtaken)                       \
    X(versioned_rewrites) X(versioned_direct)                                                                \
    X(tree_changes) X(tree_threads) X(tree_owners) X(tree_frozen) X(tree_levels) X(tree_reuse)               \
    X(tree_apply) X(tree_apply_levels) X(tree_load) X(tree_cursor) X(tree_cursor_owners)                     \
    X(tree_window) X(tree_window_frozen) X(tree_extents)                                                     \
    X(task_atomics) X(task_fences) X(task_lock) X(task_map) X(task_queue)
/* clang-format on */

#define DECLARE(name) extern const struct sim_case sim_case_##name;
CASES(DECLARE)

#define ENTRY(name) &sim_case_##name,
const struct sim_case *const sim_cases[] = {CASES(ENTRY)};
const uint32_t sim_cases_count = sizeof sim_cases / sizeof sim_cases[0];
