/* kept_stripe.c - a stripe that stays locked after its change, while a write of the change may be in flight.
 *
 * Invariant: the stripe is released only when the write is no longer in flight, because a late write would
 * overwrite the next holder's change. A thread keeps at most one stripe, because it makes no other change
 * before the release. */
#include <errno.h>

#include "systems/kv/kv.h"

int remo__kv_keep_locked(const struct remo_kv *kv, struct remo__kv_thread *mine, uint32_t stripe,
                         uint32_t node) {
    mine->is_kept = true;
    mine->kept_stripe = stripe;
    mine->kept_node = node;
    return remo__fail_more(-ETIMEDOUT, "map %s: the outcome of the change is unknown",
                           remo_channel_name(kv->channel));
}

static int try_release(struct remo_kv *kv, struct remo__kv_thread *mine) {
    if (remo__now_ns() < mine->kept_next_ns
        || remo__fence_retry_peer(mine->thread, mine->kept_node, REMO__KV_RELEASE_TIMEOUT_NS, NULL) != 0)
        return -ETIMEDOUT;
    int rc = remo_lock_release(kv->locks, mine->kept_stripe, REMO_FENCE_NONE);
    return rc == -EAGAIN ? -ETIMEDOUT : 0; /* other errors do not concern this call */
}

int remo__kv_release_kept(struct remo_kv *kv, struct remo__kv_thread *mine) {
    if (try_release(kv, mine) != 0) {
        mine->kept_next_ns = remo__max(mine->kept_next_ns, remo__deadline(REMO__KV_RELEASE_INTERVAL_NS));
        mine->failed_tries = REMO__KV_LOCK_TRIES_MAX; /* no change begins in this poll */
        return -ETIMEDOUT;
    }
    mine->is_kept = false;
    mine->locks_held--;
    return 0;
}
