/* loss.c - implements loss.h: the rules for lost connections of the data plane.
 *
 * Only the lower rank of a pair decides, so the rules never end both nodes of a single loss, however late a
 * message arrives. tests/unit/loss.c explores all orders of events of a small job. */
#include "bootstrap/control/loss.h"

#include "base/clock.h"

void remo__losses_init(struct remo__losses *losses, uint32_t rank, uint32_t size, uint64_t wait_ns,
                       struct remo__loss *of) {
    *losses = (struct remo__losses){
        .rank = rank, .size = size, .wait_ns = wait_ns, .decide_at = REMO_FOREVER, .of = of};
    for (uint32_t peer = 0; peer < size; peer++)
        of[peer].machine = peer;
}

/* Each loss postpones the decision: a peer that has really failed must not count. A peer postpones it once in
 * each of its incarnations. */
bool remo__losses_add(struct remo__losses *losses, uint32_t peer, uint64_t now) {
    if (losses->of[peer].is_open)
        return false;
    losses->of[peer].is_open = true;
    losses->decide_at = now + losses->wait_ns;
    return true;
}

void remo__losses_remove(struct remo__losses *losses, uint32_t peer) {
    losses->of[peer].is_open = false;
    for (uint32_t i = 0; i < losses->size; i++)
        if (losses->of[i].is_open)
            return;
    losses->decide_at = REMO_FOREVER;
    losses->postponed = 0;
}

void remo__losses_postpone(struct remo__losses *losses, uint64_t now) {
    if (losses->decide_at != REMO_FOREVER && losses->postponed++ < REMO__LOSS_POSTPONES_MAX)
        losses->decide_at = now + losses->wait_ns;
}

/* Return whether the losses that count are of peers on more than one machine. The demand on an earlier
 * incarnation does not count beside an open loss of the same peer. */
static bool has_lost_machines(const struct remo__losses *losses, uint64_t now) {
    bool any = false;
    uint32_t first = 0;
    for (uint32_t peer = 0; peer < losses->size; peer++) {
        const struct remo__loss *loss = &losses->of[peer];
        if (!loss->is_open && now >= loss->demand_counts_until)
            continue;
        uint32_t machine = loss->is_open ? loss->machine : loss->demand_machine;
        if (any && machine != first)
            return true;
        any = true;
        first = machine;
    }
    return false;
}

static bool has_open(const struct remo__losses *losses, uint32_t from, uint32_t to) {
    for (uint32_t peer = from; peer < to; peer++)
        if (losses->of[peer].is_open)
            return true;
    return false;
}

static void record_demand(struct remo__loss *loss, uint64_t counts_until) {
    if (!loss->is_open)
        return;
    loss->demand_machine = loss->machine;
    loss->demand_counts_until = counts_until;
}

enum remo__loss_action remo__losses_decide(struct remo__losses *losses, uint64_t now) {
    if (now < losses->decide_at)
        return REMO__LOSS_WAIT;
    losses->decide_at = now + losses->wait_ns;
    losses->postponed = 0;
    if (!has_open(losses, losses->rank + 1, losses->size)) /* the peers decide */
        return REMO__LOSS_WAIT;
    if (has_lost_machines(losses, now))
        return REMO__LOSS_END;
    if (has_open(losses, 0, losses->rank)) /* that peer decides first: this node may have to end */
        return REMO__LOSS_WAIT;
    for (uint32_t peer = losses->rank + 1; peer < losses->size; peer++)
        record_demand(&losses->of[peer], now + REMO__LOSS_DEMAND_WAITS * losses->wait_ns);
    return REMO__LOSS_DEMAND;
}
