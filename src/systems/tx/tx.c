/* tx.c - implements remo/tx.h: transaction spaces, begin and end of a transaction, repetition.
 * A space is a service of rpc.h, and a list of structures. */
#include "systems/tx/tx.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define PAUSE_NS_MIN UINT64_C(1000)
#define PAUSE_NS_MAX UINT64_C(1000000)
#define CLAIM_PAUSE_NS UINT64_C(32000) /* at most, while an older transaction claims a key */

/* ---- spaces ---- */

static int check_structures(const struct remo_tx_space_options *options) {
    uint32_t count = options->structure_count;
    if (count == 0 || count > REMO_TX_STRUCTURES_MAX || !options->structures)
        return remo__fail(-EINVAL, "cannot open a transaction space for %u structures: give 1 to %u", count,
                          REMO_TX_STRUCTURES_MAX);
    if (options->locks != REMO_TX_LATE && options->locks != REMO_TX_EARLY)
        return remo__fail(-EINVAL,
                          "cannot open a transaction space with locks = %d: "
                          "give REMO_TX_LATE or REMO_TX_EARLY",
                          (int)options->locks);
    for (uint32_t i = 0; i < count; i++) {
        if (!options->structures[i])
            return remo__fail(-EINVAL, "cannot open a transaction space: structure %u is NULL", i);
        for (uint32_t j = 0; j < i; j++)
            if (options->structures[j] == options->structures[i])
                return remo__fail(-EINVAL,
                                  "cannot open a transaction space: structures %u and %u are the same", j, i);
    }
    return 0;
}

/* Return a hash of the names of the structures, in their order. */
static uint64_t hash_names(const struct remo_tx_space_options *options) {
    uint64_t hash = options->structure_count;
    for (uint32_t i = 0; i < options->structure_count; i++) {
        const char *name = remo_channel_name(options->structures[i]->share->channel);
        hash = XXH3_64bits_withSeed(name, strlen(name), hash);
    }
    return hash;
}

static void on_connect(void *ctx, uint32_t node) {
    struct remo_tx_space *space = ctx;
    atomic_store(&space->peers[node].was_connected, true);
    atomic_store(&space->peers[node].is_cut_off, false);
}

/* No message of the node is executed from now on. Its transactions are resolved after sweeps. */
static void on_cut_off(void *ctx, uint32_t node) {
    struct remo_tx_space *space = ctx;
    pthread_mutex_lock(&space->peers[node].mutex);
    atomic_store(&space->peers[node].is_cut_off, true);
    atomic_fetch_add(&space->peers[node].losses, 1);
    remo__tx_unsettle(space, node);
    remo__tx_drop_watches(space, node);
    pthread_mutex_unlock(&space->peers[node].mutex);
    if (atomic_load(&space->unsettled) > 0 || atomic_load(&space->must_sweep_watches))
        remo__request_sweeps(space->node);
}

static bool on_swept(struct remo__thread_observer *observer) {
    struct remo_tx_space *space = remo__container_of(observer, struct remo_tx_space, observer);
    bool is_left = remo__tx_continue_all(space);
    is_left |= remo__tx_resolve_all(space);
    is_left |= remo__tx_sweep_watches(space);
    return remo__tx_sweep_waits(space) || is_left;
}

/* The type of the channel names the structures: nodes whose types differ do not connect. */
static int open_channel(struct remo_tx_space *space, struct remo_channel *parent, const char *name,
                        const struct remo_tx_space_options *options) {
    struct remo_channel_options channel = {.ctx = space, .on_connect = on_connect, .on_cut_off = on_cut_off};
    char type[REMO__TYPE_BYTES_MAX + 1];
    snprintf(type, sizeof type, "transactions, %u structures, %016llx", options->structure_count,
             (unsigned long long)hash_names(options));
    int rc = remo__select_participants(parent, &options->participants, &channel.participants);
    if (rc == 0)
        rc = remo_channel_open(parent, name, type, &channel, &space->channel);
    return rc != 0 ? rc : remo_channel_join(space->channel);
}

static int open_service(struct remo_tx_space *space, const struct remo_tx_space_options *options) {
    const struct remo_rpc_handler handlers[REMO__TX_HANDLERS] = {
        {.number = REMO__TX_EXECUTE, .run = remo__tx_handle_execute, .ctx = space},
        {.number = REMO__TX_PREPARE, .run = remo__tx_handle_prepare, .ctx = space},
        {.number = REMO__TX_FINISH, .run = remo__tx_handle_finish, .ctx = space},
        {.number = REMO__TX_RESOLVE, .run = remo__tx_handle_resolve, .ctx = space},
        {.number = REMO__TX_CONFIRM, .run = remo__tx_handle_confirm, .ctx = space},
        {.number = REMO__TX_WATCH, .run = remo__tx_handle_watch, .ctx = space},
        {.number = REMO__TX_UNWATCH, .run = remo__tx_handle_unwatch, .ctx = space},
        {.number = REMO__TX_LOCK, .run = remo__tx_handle_lock, .ctx = space},
        {.number = REMO__TX_COMMIT, .run = remo__tx_handle_commit, .ctx = space},
        {.number = REMO__TX_CLAIM, .run = remo__tx_handle_claim, .ctx = space},
        {.number = REMO__TX_UNCLAIM, .run = remo__tx_handle_unclaim, .ctx = space}};
    struct remo_rpc_options service = {
        .participants = options->participants, .handlers = handlers, .handler_count = REMO__TX_HANDLERS};
    return remo_rpc_open(space->channel, "calls", &service, &space->rpc);
}

static int open_peers(struct remo_tx_space *space) {
    uint32_t size = space->node->size;
    space->peers = calloc(size, sizeof *space->peers);
    space->records = calloc((size_t)size * REMO__TX_COMMITS_MAX, sizeof *space->records);
    space->watches = calloc((size_t)size * REMO__TX_WAITS_MAX, sizeof *space->watches);
    space->unsent = calloc((size_t)size * REMO__TX_REPLIES_MAX, sizeof *space->unsent);
    space->claims = calloc((size_t)size * REMO__TX_CLAIMS_MAX, sizeof *space->claims);
    if (!space->peers || !space->records || !space->watches || !space->unsent || !space->claims)
        return remo__fail(-ENOMEM, "no memory for a transaction space");
    for (uint32_t node = 0; node < size; node++) {
        pthread_mutex_init(&space->peers[node].mutex, NULL);
        space->peers[node].records = &space->records[(size_t)node * REMO__TX_COMMITS_MAX];
        space->peers[node].watches = &space->watches[(size_t)node * REMO__TX_WAITS_MAX];
        space->peers[node].unsent = &space->unsent[(size_t)node * REMO__TX_REPLIES_MAX];
        space->peers[node].claims = &space->claims[(size_t)node * REMO__TX_CLAIMS_MAX];
    }
    space->observer.swept = on_swept;
    remo__thread_observe(space->node, &space->observer);
    return 0;
}

int remo_tx_space_open(struct remo_channel *parent, const char *name,
                       const struct remo_tx_space_options *options, struct remo_tx_space **ret_space) {
    if (!parent || !name || !options || !ret_space)
        return remo__fail(-EINVAL, "cannot open a transaction space: an argument is NULL");
    int rc = check_structures(options);
    if (rc != 0)
        return rc;
    struct remo_tx_space *space = calloc(1, sizeof *space);
    if (!space)
        return remo__fail(-ENOMEM, "no memory for a transaction space");
    space->node = remo_channel_node(parent);
    space->structure_count = options->structure_count;
    space->is_early = options->locks == REMO_TX_EARLY;
    memcpy(space->structures, options->structures, options->structure_count * sizeof space->structures[0]);
    rc = remo__tx_open_commits(space);
    if (rc == 0)
        rc = remo__tx_open_waits(space);
    if (rc == 0)
        rc = open_peers(space);
    if (rc == 0)
        rc = open_channel(space, parent, name, options);
    if (rc == 0)
        rc = open_service(space, options);
    if (rc != 0) {
        remo_tx_space_close(space);
        return remo__fail_more(rc, "transaction space %s", name);
    }
    *ret_space = space;
    return 0;
}

/* Refuse further PREPAREs, and wait until all transactions that are prepared here have ended. */
static void settle(struct remo_tx_space *space) {
    atomic_store(&space->is_closing, true);
    for (uint32_t node = 0; node < space->node->size; node++) {
        pthread_mutex_lock(&space->peers[node].mutex); /* one that runs now is counted afterwards */
        pthread_mutex_unlock(&space->peers[node].mutex);
    }
    while (atomic_load(&space->unsettled) > 0)
        (void)remo__tx_serve(space);
}

static void free_space(struct remo_tx_space *space) {
    bool has_mutexes = space->peers && space->records && space->watches && space->unsent && space->claims;
    for (uint32_t node = 0; has_mutexes && node < space->node->size; node++)
        pthread_mutex_destroy(&space->peers[node].mutex);
    free(space->peers);
    free(space->records);
    free(space->watches);
    free(space->unsent);
    free(space->claims);
    remo__tx_close_waits(space);
    remo__tx_free_commits(space);
    free(space);
}

void remo_tx_space_close(struct remo_tx_space *space) {
    if (!space)
        return;
    remo__tx_await_commits(space);
    if (space->rpc)
        settle(space);
    remo__thread_unobserve(space->node, &space->observer);
    if (space->rpc) {
        remo__tx_resolve_stop(space);
        remo__tx_stop_watches(space);
        remo__tx_stop_claims(space);
    }
    remo_rpc_close(space->rpc);
    remo_channel_close(space->channel);
    free_space(space);
}

struct remo_channel *remo_tx_space_channel(struct remo_tx_space *space) {
    return space ? space->channel : NULL;
}

/* ---- transactions ---- */

int remo_tx_open(struct remo_tx_space *space, struct remo_tx **ret_tx) {
    if (!space || !ret_tx)
        return remo__fail(-EINVAL, "cannot open a transaction: an argument is NULL");
    struct remo_tx *tx = malloc(sizeof *tx);
    if (!tx)
        return remo__fail(-ENOMEM, "no memory for a transaction");
    tx->space = space;
    tx->state = REMO__TX_ENDED;
    tx->fate = REMO_TX_NOT_COMMITTED;
    tx->conflict_item = REMO__TX_NONE;
    tx->pending = NULL;
    tx->held = NULL;
    tx->claimant = 0;
    *ret_tx = tx;
    return 0;
}

void remo_tx_close(struct remo_tx *tx) {
    remo_tx_abort(tx);
    if (tx && tx->fate == REMO_TX_PENDING)
        remo__tx_forget(tx);
    free(tx);
}

int remo_tx_begin(struct remo_tx *tx) {
    if (!tx)
        return remo__fail(-EINVAL, "cannot begin a transaction: it is NULL");
    if (tx->state != REMO__TX_ENDED)
        return remo__fail(-EBUSY,
                          "cannot begin a transaction: the last one has not ended; commit or abort it");
    if (remo__unlikely(tx->fate == REMO_TX_PENDING))
        remo__tx_forget(tx);
    tx->state = REMO__TX_ACTIVE;
    tx->fate = REMO_TX_NOT_COMMITTED;
    tx->items_count = 0;
    tx->bytes_used = 0;
    tx->lock_error = 0;
    tx->last = tx->conflict_item = REMO__TX_NONE;
    return 0;
}

int remo_tx_check(struct remo_tx *tx) {
    int rc = remo__tx_check_active(tx);
    if (rc != 0)
        return rc;
    if (tx->lock_error != 0)
        return remo__fail(tx->lock_error, "a key could not be locked before: abort the transaction");
    tx->conflict_item = REMO__TX_NONE;
    rc = remo__tx_validate(tx, REMO__TX_ALL);
    return rc == 0 && tx->held ? remo__tx_check_owners(tx->held) : rc;
}

int remo_tx_commit(struct remo_tx *tx) {
    int rc = remo__tx_check_active(tx);
    if (rc != 0)
        return rc;
    if (tx->lock_error == 0) /* else that of the lock */
        tx->conflict_item = REMO__TX_NONE;
    remo__structure_serve_now(tx->space->structures[0]);
    rc = remo__tx_apply(tx);
    tx->state = REMO__TX_ENDED;
    if (rc == 0)
        tx->fate = REMO_TX_COMMITTED;
    return rc;
}

int remo_tx_settle(struct remo_tx *tx, uint64_t timeout_ns, enum remo_tx_fate *ret_fate) {
    if (!tx || !ret_fate)
        return remo__fail(-EINVAL, "cannot settle a transaction: an argument is NULL");
    if (tx->state != REMO__TX_ENDED)
        return remo__fail(-EBUSY, "cannot settle a transaction: it has not ended; commit or abort it");
    int rc = tx->fate == REMO_TX_PENDING ? remo__tx_settle(tx, timeout_ns) : 0;
    *ret_fate = tx->fate;
    return rc;
}

int remo_tx_wait(struct remo_tx *tx, uint64_t timeout_ns) {
    int rc = remo__tx_check_active(tx);
    if (rc != 0)
        return rc;
    rc = remo__tx_wait(tx, remo__deadline(timeout_ns));
    tx->state = REMO__TX_ENDED;
    return rc;
}

void remo_tx_abort(struct remo_tx *tx) {
    if (!tx)
        return;
    remo__tx_release_held(tx);
    tx->state = REMO__TX_ENDED;
}

int remo_tx_last_conflict(const struct remo_tx *tx, struct remo_tx_conflict *ret_conflict) {
    if (!tx || !ret_conflict)
        return remo__fail(-EINVAL, "cannot return a conflict: an argument is NULL");
    if (tx->conflict_item == REMO__TX_NONE)
        return remo__fail(-ENOENT, "cannot return a conflict: the last commit or check reported none");
    const struct remo__tx_item *item = &tx->items[tx->conflict_item];
    *ret_conflict = (struct remo_tx_conflict){.structure = tx->space->structures[item->structure],
                                              .key = item->key.data,
                                              .key_bytes = item->key.bytes,
                                              .kind = tx->conflict_kind};
    return 0;
}

/* ---- repetition ---- */

enum next { ENDS, REPEATS, REPEATS_AT_ONCE };

struct run {
    struct remo_tx *tx;
    int (*body)(void *ctx, struct remo_tx *tx);
    void *ctx;
    uint64_t deadline_ns, pause_ns;
    uint32_t conflicts; /* of attempts in succession */
    bool claims_failed; /* its attempts were in conflict in spite of its claims: pauses stay long */
    bool is_seeded;
    struct remo__random random;
};

/* Run the transaction once. *ret_next: REPEATS if it was in conflict, so another attempt may succeed;
 * REPEATS_AT_ONCE if it has waited, and a key has changed. */
static int run_once(const struct run *run, enum next *ret_next) {
    struct remo_tx *tx = run->tx;
    *ret_next = ENDS;
    int rc = remo_tx_begin(tx);
    if (rc != 0)
        return rc;
    rc = run->body(run->ctx, tx);
    if (rc == 0) {
        rc = remo_tx_commit(tx);
        *ret_next = rc == -EAGAIN && tx->conflict_item != REMO__TX_NONE ? REPEATS : ENDS;
        return rc;
    }
    if (rc == REMO_TX_WAIT) {
        rc = remo__tx_check_active(tx);
        remo__tx_unclaim(tx); /* it waits for others */
        rc = rc == 0 ? remo__tx_wait(tx, run->deadline_ns) : rc;
        *ret_next = rc == 0 ? REPEATS_AT_ONCE : ENDS;
    } else {
        *ret_next = rc == -EAGAIN ? REPEATS : ENDS;
    }
    remo_tx_abort(tx);
    return rc;
}

static int pause_randomly(struct run *run) {
    if (!run->is_seeded)
        remo__tx_seed_pauses(run->tx, &run->random);
    run->is_seeded = true;
    return remo_task_sleep(run->tx->space->node, 1 + remo__random_below(&run->random, run->pause_ns));
}

/* Claim the keys, and wait while older transactions claim one of them: another attempt would fail. This
 * transaction holds no locks meanwhile, so it delays none of them. */
static int claim_keys(struct run *run) {
    int rc = 0;
    bool is_first = run->conflicts == REMO__TX_CONFLICTS_MAX && !run->claims_failed;
    run->pause_ns = is_first ? PAUSE_NS_MIN : run->pause_ns;
    while (rc == 0 && remo__tx_claim(run->tx, run->deadline_ns) && remo__remaining_ns(run->deadline_ns) > 0) {
        run->pause_ns = CLAIM_PAUSE_NS;
        rc = pause_randomly(run);
        run->pause_ns = PAUSE_NS_MIN;
    }
    return rc;
}

/* A transaction that has been in conflict several times in succession claims its keys. An -EAGAIN of the body
 * is no conflict: perhaps it waits for others, so it ends the claims. If the attempts fail in spite of the
 * claims, they end too, and the transaction gets a new age later. With early locks a transaction cannot lose
 * a key that it has locked. */
static int count_conflict(struct run *run) {
    bool is_conflict = run->tx->conflict_item != REMO__TX_NONE;
    if (!is_conflict || ++run->conflicts > REMO__TX_CONFLICTS_MAX + REMO__TX_CLAIMED_MAX) {
        run->claims_failed |= is_conflict;
        run->conflicts = 0;
        remo__tx_unclaim(run->tx);
    }
    bool claims = run->conflicts >= REMO__TX_CONFLICTS_MAX && !run->tx->space->is_early;
    return claims ? claim_keys(run) : 0;
}

/* Run the transaction until it need not be repeated. */
static int repeat(struct run *run) {
    for (;;) {
        enum next next;
        int rc = run_once(run, &next);
        if (next == ENDS)
            return rc;
        if (next == REPEATS_AT_ONCE) {
            run->pause_ns = PAUSE_NS_MIN;
            run->conflicts = 0;
            continue;
        }
        if (remo__now_ns() >= run->deadline_ns)
            return remo__fail(-ETIMEDOUT, "cannot commit a transaction in time: the last attempt returned "
                                          "-EAGAIN, and nothing has changed; increase timeout_ns");
        rc = count_conflict(run);
        if (rc == 0)
            rc = pause_randomly(run);
        if (rc != 0)
            return rc;
        run->pause_ns = remo__min(2 * run->pause_ns, PAUSE_NS_MAX);
    }
}

/* End the claims of a run that has the result `result`, and return it. Its sentence is kept. */
static int end_claims(struct remo_tx *tx, int result) {
    char sentence[REMO__SENTENCE_MAX];
    bool is_own = result < 0 && result == remo__sentence_code();
    snprintf(sentence, sizeof sentence, "%s", remo_last_error());
    remo__tx_unclaim(tx);
    return is_own ? remo__fail(result, "%s", sentence) : result;
}

int remo_tx_run(struct remo_tx *tx, int (*body)(void *ctx, struct remo_tx *tx), void *ctx,
                uint64_t timeout_ns) {
    if (!tx || !body)
        return remo__fail(-EINVAL, "cannot run a transaction: an argument is NULL");
    struct run run = {.tx = tx,
                      .body = body,
                      .ctx = ctx,
                      .deadline_ns = remo__deadline(timeout_ns),
                      .pause_ns = PAUSE_NS_MIN};
    int rc = repeat(&run);
    return remo__unlikely(tx->claimant != 0) ? end_claims(tx, rc) : rc;
}
