/* loss.c - unit tests of the rules for lost connections, and of a job that follows them.
 *
 * The job has up to four nodes. All orders of its events are explored: losses at either node of a pair,
 * leaves, messages, decisions, pauses and time. From each state that is reached, the job then runs until no
 * loss is open, and the result is checked. */
#include "unit.h"

#include <string.h>
#include <xxhash.h>

#include "base/bits.h"
#include "base/clock.h"
#include "bootstrap/control/loss.h"

#define NODES_MAX 4u
#define QUEUE_MAX 8u
#define FAULTS_MAX 4u
#define WAIT_NS 2u /* so a step of time is half of a wait */
#define DEMAND_NS (WAIT_NS * REMO__LOSS_DEMAND_WAITS)
#define SETTLE_STEPS_MAX 100u
#define STATES_MAX (1u << 17)
#define STACK_MAX (1u << 14)

enum presence { UP, ENDED, LEFT };
enum message { LOST = 1, END, CLOSE };

struct fault {
    uint8_t node, peer; /* the node loses the connection to the peer; node == peer: the node leaves */
};

struct world {
    uint64_t now, first_loss_at, last_loss_at; /* 0: no loss */
    uint8_t fired;                             /* a mask of the faults */
    bool is_spread;                            /* two successive losses were a wait apart, or more */
    bool is_long;                              /* the first and a later loss were a wait apart, or more */
    uint8_t lost[NODES_MAX];                   /* [of a node] a mask: the pair has a lost connection */
    struct node {
        uint8_t presence;
        uint8_t is_connected; /* a mask of peers */
        uint64_t decide_at;
        struct remo__loss of[NODES_MAX];
        uint8_t count[NODES_MAX], queue[NODES_MAX][QUEUE_MAX]; /* messages to this node, by sender */
    } nodes[NODES_MAX];
};

static struct scenario {
    uint32_t nodes, faults;
    struct fault fault[FAULTS_MAX];
    bool is_prompt;          /* messages and decisions take no time */
    const uint8_t *machines; /* [nodes] */
    uint8_t expected; /* a mask: these nodes end if all faults happen, close in time; 0: no expectation */
} scenario;

static struct remo__losses losses_of(struct world *world, uint32_t rank) {
    struct remo__losses losses;
    remo__losses_init(&losses, rank, scenario.nodes, WAIT_NS, world->nodes[rank].of);
    for (uint32_t peer = 0; peer < scenario.nodes; peer++)
        if (scenario.machines[peer] != scenario.machines[rank])
            losses.of[peer].machine = NODES_MAX + scenario.machines[peer];
    losses.decide_at = world->nodes[rank].decide_at;
    return losses;
}

static bool is_connected(const struct world *world, uint32_t node, uint32_t peer) {
    return world->nodes[node].is_connected >> peer & 1;
}

/* ---- events ---- */

/* A message that repeats the last one of the stream has no effect. So the streams are bounded. */
static void send_message(struct world *world, uint32_t from, uint32_t to, enum message message) {
    struct node *receiver = &world->nodes[to];
    uint8_t *count = &receiver->count[from];
    if (!is_connected(world, to, from) || (*count > 0 && receiver->queue[from][*count - 1] == message))
        return;
    assert_true(*count < QUEUE_MAX);
    receiver->queue[from][(*count)++] = (uint8_t)message;
}

static void disconnect(struct world *world, uint32_t node, uint32_t peer) {
    struct remo__losses losses = losses_of(world, node);
    remo__losses_remove(&losses, peer);
    world->nodes[node].decide_at = losses.decide_at;
    world->nodes[node].is_connected &= (uint8_t) ~(1u << peer);
    world->nodes[node].count[peer] = 0;
}

static void stop(struct world *world, uint32_t node, enum presence presence) {
    world->nodes[node].presence = (uint8_t)presence;
    for (uint32_t peer = 0; peer < scenario.nodes; peer++)
        if (is_connected(world, node, peer)) {
            disconnect(world, node, peer);
            send_message(world, node, peer, CLOSE);
        }
}

static bool add(struct world *world, uint32_t node, uint32_t peer) {
    struct remo__losses losses = losses_of(world, node);
    bool is_new = remo__losses_add(&losses, peer, world->now);
    world->nodes[node].decide_at = losses.decide_at;
    return is_new;
}

static void deliver(struct world *world, uint32_t node, uint32_t from) {
    struct node *receiver = &world->nodes[node];
    uint8_t message = receiver->queue[from][0];
    memmove(receiver->queue[from], receiver->queue[from] + 1, QUEUE_MAX - 1);
    receiver->queue[from][QUEUE_MAX - 1] = 0;
    receiver->count[from]--;
    if (message == LOST)
        (void)add(world, node, from);
    else if (message == END)
        stop(world, node, ENDED);
    else
        disconnect(world, node, from);
}

/* As end.c does. A node that runs late may have been paused. */
static void decide(struct world *world, uint32_t rank, bool was_away) {
    struct remo__losses losses = losses_of(world, rank);
    enum remo__loss_action action = REMO__LOSS_WAIT;
    if (was_away)
        remo__losses_postpone(&losses, world->now);
    else
        action = remo__losses_decide(&losses, world->now);
    world->nodes[rank].decide_at = losses.decide_at;
    if (action == REMO__LOSS_END)
        stop(world, rank, ENDED);
    for (uint32_t peer = 0; peer < scenario.nodes && !was_away; peer++)
        if (world->nodes[rank].of[peer].is_open)
            send_message(world, rank, peer, action == REMO__LOSS_DEMAND && peer > rank ? END : LOST);
}

static bool can_fire(const struct world *world, uint32_t index) {
    struct fault fault = scenario.fault[index];
    return !(world->fired >> index & 1) && world->nodes[fault.node].presence == UP
           && (fault.node == fault.peer || is_connected(world, fault.node, fault.peer));
}

static void fire(struct world *world, uint32_t index) {
    struct fault fault = scenario.fault[index];
    world->fired |= (uint8_t)(1u << index);
    if (fault.node == fault.peer) {
        stop(world, fault.node, LEFT);
        return;
    }
    if (!add(world, fault.node, fault.peer))
        return;
    bool is_first = world->last_loss_at == 0;
    world->is_spread = world->is_spread || (!is_first && world->now - world->last_loss_at >= WAIT_NS);
    if (is_first)
        world->first_loss_at = world->now;
    world->is_long = world->is_long || world->now - world->first_loss_at >= WAIT_NS;
    world->last_loss_at = world->now;
    world->lost[fault.node] |= (uint8_t)(1u << fault.peer);
    world->lost[fault.peer] |= (uint8_t)(1u << fault.node);
    send_message(world, fault.node, fault.peer, LOST);
}

static bool is_due(const struct world *world, uint32_t node) {
    return world->now >= world->nodes[node].decide_at;
}

/* ---- the result ---- */

static bool has_messages(const struct world *world) {
    for (uint32_t node = 0; node < scenario.nodes; node++)
        for (uint32_t from = 0; from < scenario.nodes; from++)
            if (world->nodes[node].count[from] > 0)
                return true;
    return false;
}

static bool any_due(const struct world *world) {
    for (uint32_t node = 0; node < scenario.nodes; node++)
        if (is_due(world, node))
            return true;
    return false;
}

static bool waits(const struct world *world) {
    for (uint32_t node = 0; node < scenario.nodes; node++)
        if (world->nodes[node].decide_at != REMO_FOREVER)
            return true;
    return false;
}

/* Return whether a message was delivered. */
static bool deliver_all(struct world *world) {
    bool any = false;
    for (uint32_t node = 0; node < scenario.nodes; node++)
        for (uint32_t from = 0; from < scenario.nodes; from++)
            for (; world->nodes[node].count[from] > 0; any = true)
                deliver(world, node, from);
    return any;
}

/* Run the job until no loss is open; no message and no decision is late any more. */
static void settle(struct world *world) {
    uint32_t waits_max = scenario.expected ? scenario.nodes : 1; /* a lower rank may decide first */
    uint64_t last = remo__max(world->now, world->last_loss_at + waits_max * WAIT_NS);
    for (uint32_t step = 0; has_messages(world) || waits(world); step++) {
        assert_true(step < SETTLE_STEPS_MAX);
        assert_true(!scenario.is_prompt || world->now <= last);
        if (deliver_all(world))
            continue;
        if (!any_due(world))
            world->now++;
        for (uint32_t node = 0; node < scenario.nodes; node++)
            if (is_due(world, node))
                decide(world, node, false);
    }
}

/* The number of machines to which a node has lost connections. */
static uint32_t count_machines(const struct world *world, uint32_t node) {
    uint32_t machines = 0;
    for (uint32_t peer = 0; peer < scenario.nodes; peer++)
        if (world->lost[node] >> peer & 1)
            machines |= 1u << scenario.machines[peer];
    return (uint32_t)__builtin_popcount(machines);
}

/* The only node that has lost connections to two machines, or NODES_MAX. */
static uint32_t center_of(const struct world *world) {
    uint32_t center = NODES_MAX;
    for (uint32_t node = 0; node < scenario.nodes; node++)
        if (count_machines(world, node) > 1) {
            if (center != NODES_MAX)
                return NODES_MAX;
            center = node;
        }
    return center;
}

static bool none_left(const struct world *world) {
    for (uint32_t node = 0; node < scenario.nodes; node++)
        if (world->nodes[node].presence == LEFT)
            return false;
    return true;
}

/* No other pair has a node of this pair. */
static bool is_alone(const struct world *world, uint32_t node, uint32_t peer) {
    return world->lost[node] == 1u << peer && world->lost[peer] == 1u << node;
}

static void check_pair(const struct world *world, uint32_t low, uint32_t high) {
    uint8_t of_low = world->nodes[low].presence, of_high = world->nodes[high].presence;
    assert_false(of_low == UP && of_high == UP);
    if (!is_alone(world, low, high))
        return;
    assert_int_not_equal(of_low, ENDED);
    assert_true(of_high != UP || of_low == LEFT);
}

static void check(const struct world *world) {
    uint32_t center = center_of(world), ended = 0;
    bool is_orderly = scenario.is_prompt && !world->is_spread && none_left(world);
    for (uint32_t node = 0; node < scenario.nodes; node++) {
        assert_true(world->nodes[node].presence != ENDED || world->lost[node] != 0);
        for (uint32_t peer = node + 1; peer < scenario.nodes; peer++)
            if (world->lost[node] >> peer & 1)
                check_pair(world, node, peer);
        /* If the losses of one node are close in time, only this node ends. (With several nodes on a
         * machine, another pair may have lost its connection too.) */
        if (center < NODES_MAX && is_orderly && !scenario.expected)
            assert_int_equal(world->nodes[node].presence == ENDED, node == center);
        ended += world->nodes[node].presence == ENDED;
    }
    if (is_orderly && !world->is_long && scenario.expected && world->fired == (1u << scenario.faults) - 1)
        for (uint32_t node = 0; node < scenario.nodes; node++)
            assert_int_equal(world->nodes[node].presence == ENDED, scenario.expected >> node & 1);
    if (is_orderly) /* although each node may have lost each other one */
        assert_true(ended < scenario.nodes);
}

/* ---- exploration ---- */

static uint64_t seen[STATES_MAX]; /* hashes; 0: none */
static struct world stack[STACK_MAX];
static uint32_t states, stacked;

static uint64_t from_now(const struct world *world, uint64_t at) {
    return at == REMO_FOREVER ? at : at > world->now ? at - world->now : 0;
}

/* Make all times relative, so that equal situations are equal. A demand counts for much longer than a wait,
 * so the rest of that time is not part of a situation. */
static void normalize(struct world *world) {
    uint64_t since_loss = world->now - world->last_loss_at, since_first = world->now - world->first_loss_at;
    for (uint32_t i = 0; i < scenario.nodes; i++) {
        struct node *node = &world->nodes[i];
        node->decide_at = from_now(world, node->decide_at);
        for (uint32_t peer = 0; peer < scenario.nodes; peer++)
            node->of[peer].demand_counts_until = from_now(world, node->of[peer].demand_counts_until) > 0;
    }
    world->now = 0;
    if (world->last_loss_at != 0)
        world->last_loss_at = scenario.is_prompt ? 1 + remo__min(since_loss, WAIT_NS) : 1;
    if (world->first_loss_at != 0)
        world->first_loss_at = scenario.expected ? 1 + remo__min(since_first, WAIT_NS) : 1;
    world->is_spread = world->is_spread && scenario.is_prompt;
    world->is_long = world->is_long && scenario.expected;
}

static bool is_new(const struct world *world) {
    struct world normal;
    memcpy(&normal, world, sizeof normal); /* with the padding, which is 0 */
    normalize(&normal);
    uint64_t hash = XXH3_64bits(&normal, sizeof normal) | 1, at = hash >> 8;
    for (; seen[at % STATES_MAX] != 0; at++)
        if (seen[at % STATES_MAX] == hash)
            return false;
    assert_true(++states < STATES_MAX / 2);
    seen[at % STATES_MAX] = hash;
    return true;
}

/* Keep a state for its next events, and check its result. */
static void reach(const struct world *world) {
    struct world end;
    if (!is_new(world))
        return;
    assert_true(stacked < STACK_MAX);
    memcpy(&stack[stacked++], world, sizeof *world);
    memcpy(&end, world, sizeof end);
    settle(&end);
    check(&end);
}

static struct world next;

static struct world *copy_of(const struct world *world) {
    memcpy(&next, world, sizeof next);
    return &next;
}

static void events_of_node(const struct world *world, uint32_t node) {
    for (uint32_t from = 0; from < scenario.nodes; from++)
        if (world->nodes[node].count[from] > 0) {
            deliver(copy_of(world), node, from);
            reach(&next);
        }
    for (int was_away = 0; was_away < (scenario.is_prompt ? 1 : 2) && is_due(world, node); was_away++) {
        decide(copy_of(world), node, was_away);
        reach(&next);
    }
}

static void events(const struct world *world) {
    for (uint32_t i = 0; i < scenario.faults; i++)
        if (can_fire(world, i)) {
            fire(copy_of(world), i);
            reach(&next);
        }
    for (uint32_t node = 0; node < scenario.nodes; node++)
        events_of_node(world, node);
    if (scenario.is_prompt && (has_messages(world) || any_due(world)))
        return;
    copy_of(world)->now++;
    reach(&next);
    copy_of(world)->now += DEMAND_NS;
    if (!scenario.is_prompt || !waits(world))
        reach(&next);
}

/* Explore all orders of all subsets of the faults. */
static void explore_on(const uint8_t *machines, uint8_t expected, uint32_t nodes, const struct fault *faults,
                       uint32_t count, bool is_prompt) {
    struct world start, top;
    scenario = (struct scenario){
        .nodes = nodes, .faults = count, .is_prompt = is_prompt, .machines = machines, .expected = expected};
    memcpy(scenario.fault, faults, count * sizeof *faults);
    memset(seen, 0, sizeof seen);
    states = stacked = 0;
    memset(&start, 0, sizeof start);
    start.now = DEMAND_NS;
    for (uint32_t node = 0; node < nodes; node++) {
        start.nodes[node].is_connected = (uint8_t)(((1u << nodes) - 1) & ~(1u << node));
        start.nodes[node].decide_at = REMO_FOREVER;
    }
    for (uint32_t node = nodes; node < NODES_MAX; node++)
        start.nodes[node].decide_at = REMO_FOREVER;
    reach(&start);
    while (stacked > 0) {
        memcpy(&top, &stack[--stacked], sizeof top);
        events(&top);
    }
}

/* Each node has a machine of its own. */
static void explore(uint32_t nodes, const struct fault *faults, uint32_t count, bool is_prompt) {
    static const uint8_t own[NODES_MAX] = {0, 1, 2, 3};
    explore_on(own, 0, nodes, faults, count, is_prompt);
}

static void explore_both(uint32_t nodes, const struct fault *faults, uint32_t count) {
    explore(nodes, faults, count, true);
    explore(nodes, faults, count, false);
}

static void two_nodes(void **state) {
    (void)state;
    static const struct fault faults[] = {{0, 1}, {1, 0}, {0, 0}, {1, 1}};
    explore_both(2, faults, REMO__ARRAY_COUNT(faults));
}

/* All choices of up to three faults. (Four take half a minute, and find no more.) */
static void three_nodes(void **state) {
    (void)state;
    struct fault faults[FAULTS_MAX];
    for (uint32_t choice = 0; choice < 1u << 9; choice++) {
        uint32_t count = 0;
        if (__builtin_popcount(choice) != 3)
            continue;
        for (uint8_t fault = 0; fault < 9; fault++)
            if (choice >> fault & 1)
                faults[count++] = (struct fault){fault / 3, fault % 3};
        explore_both(3, faults, count);
    }
}

/* One node loses all its connections, as when its network fails. Each loss is detected at either end. */
static void one_of_four_nodes(void **state) {
    (void)state;
    struct fault faults[FAULTS_MAX];
    for (uint8_t center = 0; center < 4; center++)
        for (uint32_t ends = 0; ends < 8; ends++) {
            uint32_t count = 0;
            for (uint8_t leaf = 0; leaf < 4; leaf++)
                if (leaf != center) {
                    bool at_center = ends >> count & 1;
                    faults[count++] = (struct fault){at_center ? center : leaf, at_center ? leaf : center};
                }
            explore(4, faults, count, true);
        }
}

/* The network of a machine fails. Each loss is detected at either end. The nodes of this machine end, and no
 * others; of two machines, those of the higher ranks. */
static void machines(void **state) {
    static const struct {
        uint8_t machines[NODES_MAX], expected;
        struct fault faults[FAULTS_MAX];
    } rows[] = {{{0, 0, 1, 1}, 0xc, {{0, 2}, {0, 3}, {1, 2}, {1, 3}}},
                {{0, 1, 0, 1}, 0xa, {{0, 1}, {0, 3}, {1, 2}, {2, 3}}},
                {{0, 1, 0, 0}, 0x2, {{0, 1}, {1, 2}, {1, 3}, {1, 0}}},
                {{0, 1, 1, 2}, 0x6, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}},
                {{0, 1, 2, 2}, 0xc, {{0, 2}, {0, 3}, {1, 2}, {1, 3}}}};
    (void)state;
    for (size_t row = 0; row < REMO__ARRAY_COUNT(rows); row++)
        for (uint32_t ends = 0; ends < 1u << FAULTS_MAX; ends++) {
            struct fault faults[FAULTS_MAX];
            for (uint32_t i = 0; i < FAULTS_MAX; i++) {
                struct fault fault = rows[row].faults[i];
                faults[i] = ends >> i & 1 ? (struct fault){fault.peer, fault.node} : fault;
            }
            explore_on(rows[row].machines, rows[row].expected, 4, faults, FAULTS_MAX, true);
        }
}

/* ---- single rules ---- */

#define LONG_WAIT_NS 1000u

static struct remo__loss records[4];

static struct remo__losses losses_at(uint32_t rank) {
    struct remo__losses losses;
    memset(records, 0, sizeof records);
    remo__losses_init(&losses, rank, REMO__ARRAY_COUNT(records), LONG_WAIT_NS, records);
    assert_true(losses.decide_at == REMO_FOREVER);
    return losses;
}

/* Peer 1 has ended because of a demand at 2000. */
static struct remo__losses after_demand(void) {
    struct remo__losses losses = losses_at(0);
    assert_true(remo__losses_add(&losses, 1, 1000));
    assert_int_equal(remo__losses_decide(&losses, 1999), REMO__LOSS_WAIT);
    assert_int_equal(remo__losses_decide(&losses, 2000), REMO__LOSS_DEMAND);
    remo__losses_remove(&losses, 1);
    assert_true(losses.decide_at == REMO_FOREVER);
    return losses;
}

/* A demand counts as a loss of this node for a limited time. */
static void demand_counts(void **state) {
    (void)state;
    uint64_t until = 2000 + LONG_WAIT_NS * REMO__LOSS_DEMAND_WAITS;
    struct remo__losses losses = after_demand();
    assert_true(remo__losses_add(&losses, 2, until - LONG_WAIT_NS - 1));
    assert_int_equal(remo__losses_decide(&losses, until - 1), REMO__LOSS_END);
    losses = after_demand();
    assert_true(remo__losses_add(&losses, 2, until - LONG_WAIT_NS));
    assert_int_equal(remo__losses_decide(&losses, until), REMO__LOSS_DEMAND);
}

/* The loss of the next incarnation of the same peer does not count again. */
static void demand_repeats(void **state) {
    (void)state;
    struct remo__losses losses = after_demand();
    assert_true(remo__losses_add(&losses, 1, 2100));
    assert_int_equal(remo__losses_decide(&losses, 3100), REMO__LOSS_DEMAND);
    assert_int_equal(remo__losses_decide(&losses, 4099), REMO__LOSS_WAIT);
    assert_int_equal(remo__losses_decide(&losses, 4100), REMO__LOSS_DEMAND);
}

/* Only the first report of a loss postpones the decision, and a pause of this node. */
static void decision_is_postponed(void **state) {
    (void)state;
    struct remo__losses losses = losses_at(0);
    remo__losses_postpone(&losses, 500);
    assert_true(losses.decide_at == REMO_FOREVER);
    assert_true(remo__losses_add(&losses, 1, 1000));
    assert_false(remo__losses_add(&losses, 1, 1500));
    assert_true(losses.decide_at == 2000);
    remo__losses_postpone(&losses, 2500);
    assert_int_equal(remo__losses_decide(&losses, 2500), REMO__LOSS_WAIT);
    assert_true(remo__losses_add(&losses, 3, 3000));
    assert_int_equal(remo__losses_decide(&losses, 3999), REMO__LOSS_WAIT);
    assert_int_equal(remo__losses_decide(&losses, 4000), REMO__LOSS_END);
}

/* A node that is paused again and again decides nevertheless. */
static void postponements_end(void **state) {
    (void)state;
    struct remo__losses losses = losses_at(0);
    for (uint64_t now = 1000; now <= 5000; now += 4000) { /* the number starts anew after a decision */
        (void)remo__losses_add(&losses, 1, now);
        for (uint32_t i = 0; i < REMO__LOSS_POSTPONES_MAX; i++) {
            remo__losses_postpone(&losses, now + i);
            assert_int_equal(remo__losses_decide(&losses, now + 999), REMO__LOSS_WAIT);
        }
        uint64_t decide_at = losses.decide_at;
        assert_true(decide_at == now + 1000 + REMO__LOSS_POSTPONES_MAX - 1);
        remo__losses_postpone(&losses, decide_at);
        if (now == 1000) {
            assert_int_equal(remo__losses_decide(&losses, decide_at), REMO__LOSS_DEMAND);
        } else { /* or when no loss is open */
            remo__losses_remove(&losses, 1);
            (void)remo__losses_add(&losses, 2, decide_at);
            remo__losses_postpone(&losses, decide_at + 1);
            assert_int_equal(remo__losses_decide(&losses, decide_at + 1000), REMO__LOSS_WAIT);
        }
    }
}

/* The loss of a peer that leaves or fails does not count. */
static void leaver_does_not_count(void **state) {
    (void)state;
    struct remo__losses losses = losses_at(0);
    assert_true(remo__losses_add(&losses, 1, 1000));
    assert_true(remo__losses_add(&losses, 2, 1900));
    assert_int_equal(remo__losses_decide(&losses, 2000), REMO__LOSS_WAIT);
    remo__losses_remove(&losses, 2);
    assert_int_equal(remo__losses_decide(&losses, 2900), REMO__LOSS_DEMAND);
}

/* The peers of one machine count as one loss. */
static void machine_counts_once(void **state) {
    (void)state;
    struct remo__losses losses = losses_at(0);
    losses.of[2].machine = losses.of[3].machine = 9;
    assert_true(remo__losses_add(&losses, 2, 1000));
    assert_true(remo__losses_add(&losses, 3, 1000));
    assert_int_equal(remo__losses_decide(&losses, 2000), REMO__LOSS_DEMAND);
    remo__losses_remove(&losses, 2);
    remo__losses_remove(&losses, 3);
    assert_true(remo__losses_add(&losses, 1, 3000));
    assert_int_equal(remo__losses_decide(&losses, 4000), REMO__LOSS_END);
}

/* The peer has joined again, on the machine of peer 1, since the demand. */
static struct remo__losses after_move(void) {
    struct remo__losses losses = losses_at(0);
    losses.of[2].machine = losses.of[3].machine = 9;
    assert_true(remo__losses_add(&losses, 3, 1000));
    assert_int_equal(remo__losses_decide(&losses, 2000), REMO__LOSS_DEMAND);
    remo__losses_remove(&losses, 3);
    losses.of[3].machine = losses.of[1].machine;
    return losses;
}

/* The demand counts for the earlier machine, and not beside a loss of the peer itself. */
static void machine_of_demand(void **state) {
    (void)state;
    struct remo__losses losses = after_move();
    assert_true(remo__losses_add(&losses, 1, 3000));
    assert_int_equal(remo__losses_decide(&losses, 4000), REMO__LOSS_END);
    losses = after_move();
    assert_true(remo__losses_add(&losses, 2, 3000));
    assert_int_equal(remo__losses_decide(&losses, 4000), REMO__LOSS_DEMAND);
    losses = after_move();
    assert_true(remo__losses_add(&losses, 1, 3000));
    assert_true(remo__losses_add(&losses, 3, 3000));
    assert_int_equal(remo__losses_decide(&losses, 4000), REMO__LOSS_DEMAND);
}

static void lower_rank_decides(void **state) {
    (void)state;
    struct remo__losses losses = losses_at(2);
    assert_true(remo__losses_add(&losses, 0, 1000));
    assert_int_equal(remo__losses_decide(&losses, 2000), REMO__LOSS_WAIT);
    assert_true(remo__losses_add(&losses, 1, 2000));
    assert_int_equal(remo__losses_decide(&losses, 3000), REMO__LOSS_WAIT);
    assert_true(remo__losses_add(&losses, 3, 3000));
    assert_int_equal(remo__losses_decide(&losses, 4000), REMO__LOSS_END);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_nodes),
        cmocka_unit_test(three_nodes),
        cmocka_unit_test(one_of_four_nodes),
        cmocka_unit_test(machines),
        cmocka_unit_test(demand_counts),
        cmocka_unit_test(demand_repeats),
        cmocka_unit_test(decision_is_postponed),
        cmocka_unit_test(postponements_end),
        cmocka_unit_test(leaver_does_not_count),
        cmocka_unit_test(machine_counts_once),
        cmocka_unit_test(machine_of_demand),
        cmocka_unit_test(lower_rank_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
