/* cycles.c - judges a history by a search for a cycle (cycles.h). The nodes of the graph are the operations,
 * auxiliary nodes for the presences of keys, and one node for each end of an operation. The latter are a
 * chain in the order of time, so that real time takes three edges for each operation. */
#include "cycles_judge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- operations ---- */

int cycles_index_of(const struct judge *judge, uint32_t id, uint32_t *ret_op) {
    uint32_t actor = (id - 1) / CYCLES_OPS_MAX, index = (id - 1) % CYCLES_OPS_MAX;
    if (id == CYCLES_ABSENT || actor >= judge->actor_count
        || index >= judge->base[actor + 1] - judge->base[actor])
        return -ENOENT;
    *ret_op = judge->base[actor] + index;
    return 0;
}

const struct cycles_access *cycles_access_of(const struct op *op, uint32_t key) {
    for (uint32_t i = 0; i < op->access_count; i++)
        if (op->accesses[i].key == key && op->accesses[i].kind != CYCLES_IGNORED)
            return &op->accesses[i];
    return NULL;
}

uint64_t cycles_writer_of(const struct judge *judge, uint32_t id, uint32_t key) {
    uint32_t index;
    if (cycles_index_of(judge, id, &index) != 0 || !judge->ops[index].counts)
        return NO_ACCESS;
    const struct op *op = &judge->ops[index];
    const struct cycles_access *access = cycles_access_of(op, key);
    if (!access || access->kind != CYCLES_WRITE)
        return NO_ACCESS;
    return op->first_access + (uint64_t)(access - op->accesses);
}

static int copy_ops(struct judge *judge, const struct cycles_history *actors) {
    for (uint32_t actor = 0; actor < judge->actor_count; actor++)
        judge->base[actor + 1] = judge->base[actor] + actors[actor].op_count;
    judge->op_count = judge->base[judge->actor_count];
    judge->ops = calloc((size_t)judge->op_count + 1, sizeof judge->ops[0]);
    if (!judge->ops)
        return -ENOMEM;
    for (uint32_t actor = 0; actor < judge->actor_count; actor++) {
        for (uint32_t i = 0; i < actors[actor].op_count; i++) {
            const struct cycles_op *from = &actors[actor].ops[i];
            struct op *op = &judge->ops[judge->base[actor] + i];
            *op = (struct op){.begin = from->begin,
                              .end = from->outcome == CYCLES_COMMITTED ? from->end : CYCLES_NEVER,
                              .accesses = &actors[actor].accesses[from->first_access],
                              .first_access = judge->access_count,
                              .access_count = from->access_count,
                              .actor = (uint8_t)actor,
                              .outcome = (uint8_t)from->outcome,
                              .counts = from->outcome == CYCLES_COMMITTED};
            judge->access_count += from->access_count;
            for (uint32_t j = 0; j < op->access_count; j++)
                if (op->accesses[j].key >= judge->key_count)
                    judge->key_count = op->accesses[j].key + 1;
        }
    }
    return judge->key_count <= CYCLES_KEYS_MAX ? 0 : -EINVAL;
}

/* Operations of unknown outcome count if others have seen their versions. They took effect before these
 * ended. */
static bool prove_by(struct judge *judge, const struct op *op) {
    bool proves = false;
    for (uint32_t i = 0; i < op->access_count; i++) {
        uint32_t index;
        if (op->accesses[i].kind == CYCLES_IGNORED
            || cycles_index_of(judge, op->accesses[i].seen, &index) != 0)
            continue;
        struct op *writer = &judge->ops[index];
        if (writer->outcome != CYCLES_UNKNOWN || (writer->counts && writer->end <= op->end))
            continue;
        writer->counts = true;
        writer->end = op->end < writer->end ? op->end : writer->end;
        proves = true;
    }
    return proves;
}

static void prove(struct judge *judge) {
    bool proves = true;
    while (proves) {
        proves = false;
        for (uint32_t i = 0; i < judge->op_count; i++)
            if (judge->ops[i].counts)
                proves |= prove_by(judge, &judge->ops[i]);
    }
}

/* ---- versions ---- */

/* `next` of each version. If several operations replace it, one of them: add_version_edges finds the rest. */
static void order_versions(struct judge *judge) {
    memset(judge->next, 0xff, judge->access_count * sizeof judge->next[0]);
    for (uint32_t i = 0; i < judge->op_count; i++) {
        const struct op *op = &judge->ops[i];
        for (uint32_t j = 0; op->counts && j < op->access_count; j++) {
            const struct cycles_access *access = &op->accesses[j];
            if (access->kind != CYCLES_WRITE && access->kind != CYCLES_DELETE)
                continue;
            uint64_t writer = cycles_writer_of(judge, access->seen, access->key);
            if (writer != NO_ACCESS && judge->next[writer] == NONE)
                judge->next[writer] = i;
        }
    }
}

static bool begins_presence(const struct op *op, const struct cycles_access *access) {
    return op->counts && access->kind == CYCLES_WRITE && access->seen == CYCLES_ABSENT;
}

/* Follow the versions from the insert to the last one or the delete. */
static struct presence follow(const struct judge *judge, uint32_t index, uint32_t key, uint64_t access) {
    struct presence presence = {.key = key,
                                .insert = index,
                                .remove = NONE,
                                .last = access,
                                .insert_end = judge->ops[index].end,
                                .remove_begin = CYCLES_NEVER};
    for (uint32_t next = judge->next[access]; next != NONE; next = judge->next[presence.last]) {
        const struct op *op = &judge->ops[next];
        const struct cycles_access *found = cycles_access_of(op, key);
        if (found->kind == CYCLES_DELETE) {
            presence.remove = next;
            presence.remove_begin = op->begin;
            break;
        }
        presence.last = op->first_access + (uint64_t)(found - op->accesses);
    }
    return presence;
}

/* The delete of a presence may be one whose outcome is unknown. A node without times stands for it. */
static void add_possible_deletes(struct judge *judge) {
    for (uint32_t i = 0; i < judge->op_count; i++) {
        const struct op *op = &judge->ops[i];
        for (uint32_t j = 0; op->outcome == CYCLES_UNKNOWN && !op->counts && j < op->access_count; j++) {
            if (op->accesses[j].kind != CYCLES_DELETE)
                continue;
            uint64_t writer = cycles_writer_of(judge, op->accesses[j].seen, op->accesses[j].key);
            for (uint32_t k = 0; writer != NO_ACCESS && k < judge->presence_count; k++) {
                struct presence *presence = &judge->presences[k];
                if (presence->last != writer || (presence->remove != NONE && presence->possible == 0))
                    continue;
                if (presence->possible++ == 0)
                    presence->remove = judge->op_count + judge->auxiliary_count++;
                judge->next[writer] = presence->remove;
                presence->possible_op = i;
                presence->remove_begin =
                    op->begin < presence->remove_begin ? op->begin : presence->remove_begin;
            }
        }
    }
}

static int by_key_and_time(const void *a, const void *b) {
    const struct presence *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->insert_end > y->insert_end) - (x->insert_end < y->insert_end);
}

static int find_presences(struct judge *judge) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < judge->op_count; i++)
        for (uint32_t j = 0; j < judge->ops[i].access_count; j++)
            count += begins_presence(&judge->ops[i], &judge->ops[i].accesses[j]);
    free(judge->presences);
    free(judge->groups);
    judge->presences = calloc((size_t)count + 1, sizeof judge->presences[0]);
    judge->groups = calloc((size_t)count + 1, sizeof judge->groups[0]);
    judge->presence_count = 0;
    judge->auxiliary_count = 0;
    if (!judge->presences || !judge->groups)
        return -ENOMEM;
    for (uint32_t i = 0; i < judge->op_count; i++) {
        const struct op *op = &judge->ops[i];
        for (uint32_t j = 0; j < op->access_count; j++)
            if (begins_presence(op, &op->accesses[j]))
                judge->presences[judge->presence_count++] =
                    follow(judge, i, op->accesses[j].key, op->first_access + j);
    }
    add_possible_deletes(judge);
    qsort(judge->presences, judge->presence_count, sizeof judge->presences[0], by_key_and_time);
    return 0;
}

/* ---- groups of presences ---- */

/* Make the group of the presences from `first` to `end`, the next one of its key. */
static struct group make_group(struct judge *judge, uint32_t first, uint32_t end,
                               const struct group *before) {
    const struct presence *presences = judge->presences;
    struct group group = {.before = presences[first].insert,
                          .after = presences[first].remove,
                          .presence = first,
                          .count = end - first,
                          .first_insert_end = presences[first].insert_end,
                          .last_insert_end = presences[end - 1].insert_end,
                          .first_remove = CYCLES_NEVER,
                          .last_remove = before ? before->last_remove : 0};
    for (uint32_t i = first; i < end; i++) {
        uint64_t begin = presences[i].remove_begin;
        group.first_remove = begin < group.first_remove ? begin : group.first_remove;
        group.last_remove = begin > group.last_remove ? begin : group.last_remove;
    }
    if (group.count > 1) {
        group.before = judge->op_count + judge->auxiliary_count++;
        group.after = judge->op_count + judge->auxiliary_count++;
        judge->report.unordered += group.count;
    }
    return group;
}

/* Two neighbours are in order if each presence up to the first one began before any later one ended. */
static void group_key(struct judge *judge, uint32_t key, uint32_t *count) {
    uint32_t first = judge->key_presences[key], end = judge->key_presences[key + 1];
    uint64_t earliest = CYCLES_NEVER;
    for (uint32_t i = end; i-- > first;) {
        earliest = judge->presences[i].remove_begin < earliest ? judge->presences[i].remove_begin : earliest;
        judge->presences[i].later_removes = earliest;
    }
    judge->key_groups[key] = *count;
    for (uint32_t i = first; i < end; i++) {
        if (i + 1 < end && judge->presences[i].insert_end >= judge->presences[i + 1].later_removes)
            continue;
        const struct group *before = *count > judge->key_groups[key] ? &judge->groups[*count - 1] : NULL;
        judge->groups[*count] = make_group(judge, first, i + 1, before);
        (*count)++;
        first = i + 1;
    }
}

static void find_groups(struct judge *judge) {
    uint32_t presence = 0, count = 0;
    judge->report.unordered = 0;
    for (uint32_t key = 0; key <= judge->key_count; key++) {
        while (presence < judge->presence_count && judge->presences[presence].key < key)
            presence++;
        judge->key_presences[key] = presence;
    }
    for (uint32_t key = 0; key < judge->key_count; key++)
        group_key(judge, key, &count);
    judge->key_groups[judge->key_count] = count;
}

/* ---- deletes of unknown outcome that must have taken effect ---- */

static bool prove_delete(struct judge *judge, const struct presence *presence) {
    if (presence->possible != 1)
        return false;
    judge->ops[presence->possible_op].counts = true;
    return true;
}

/* A later presence proves the delete. So does an operation that found the key absent after the insert. */
static bool prove_deletes(struct judge *judge) {
    bool proves = false, any = false;
    for (uint32_t i = 0; i < judge->presence_count; i++) {
        const struct presence *presence = &judge->presences[i];
        any |= presence->possible == 1;
        const struct group *last = &judge->groups[judge->key_groups[presence->key + 1] - 1];
        if (presence->possible > 0 && i < last->presence)
            proves |= prove_delete(judge, presence);
    }
    for (uint32_t i = 0; any && i < judge->op_count; i++) {
        const struct op *op = &judge->ops[i];
        for (uint32_t j = 0; op->counts && j < op->access_count; j++) {
            const struct cycles_access *access = &op->accesses[j];
            if (access->kind != CYCLES_READ || access->seen != CYCLES_ABSENT)
                continue;
            uint32_t end = judge->key_presences[access->key + 1];
            if (end > judge->key_presences[access->key] && judge->presences[end - 1].insert_end < op->begin)
                proves |= prove_delete(judge, &judge->presences[end - 1]);
        }
    }
    return proves;
}

static int order_keys(struct judge *judge) {
    do {
        prove(judge);
        order_versions(judge);
        int rc = find_presences(judge);
        if (rc != 0)
            return rc;
        find_groups(judge);
    } while (prove_deletes(judge));
    judge->report.presences = judge->presence_count;
    return 0;
}

/* ---- edges ---- */

static void edge(struct judge *judge, uint32_t from, uint32_t to) {
    graph_edge(&judge->graph, from, to);
}

static void add_version_edges(struct judge *judge, uint32_t index, const struct cycles_access *access) {
    uint64_t writer = cycles_writer_of(judge, access->seen, access->key);
    uint32_t seen;
    if (writer == NO_ACCESS || cycles_index_of(judge, access->seen, &seen) != 0)
        return;
    edge(judge, seen, index);
    if (judge->next[writer] != NONE)
        edge(judge, index, judge->next[writer]);
    if (access->kind != CYCLES_READ && judge->next[writer] != NONE)
        edge(judge, judge->next[writer], index); /* another operation replaces the same version */
}

/* The operation found the key absent: it is after the group before `low`, and before the group `high`. */
static void add_absent_edges(struct judge *judge, uint32_t index, uint32_t key) {
    const struct op *op = &judge->ops[index];
    uint32_t begin = judge->key_groups[key], end = judge->key_groups[key + 1], low = begin, high = begin;
    for (uint32_t width = end - begin; width > 0;) { /* the first group that may begin after it */
        uint32_t half = width / 2;
        bool is_before = judge->groups[low + half].last_insert_end < op->begin;
        low = is_before ? low + half + 1 : low;
        width = is_before ? width - half - 1 : half;
    }
    for (uint32_t width = end - begin; width > 0;) { /* the last group before which it may be */
        uint32_t half = width / 2;
        bool may_follow = judge->groups[high + half].last_remove <= op->end
                          && judge->groups[high + half].last_remove != CYCLES_NEVER;
        high = may_follow ? high + half + 1 : high;
        width = may_follow ? width - half - 1 : half;
    }
    if (low > begin && judge->groups[low - 1].after != NONE)
        edge(judge, judge->groups[low - 1].after, index);
    if (high < end && judge->groups[high].count > 1 && judge->groups[high].first_remove <= op->end)
        high++; /* it may be between presences of this group */
    if (high < end)
        edge(judge, index, judge->groups[high].before);
}

static void add_group_edges(struct judge *judge) {
    for (uint32_t key = 0; key < judge->key_count; key++) {
        for (uint32_t i = judge->key_groups[key]; i < judge->key_groups[key + 1]; i++) {
            const struct group *group = &judge->groups[i];
            for (uint32_t j = group->presence; group->count > 1 && j < group->presence + group->count; j++) {
                edge(judge, group->before, judge->presences[j].insert);
                if (judge->presences[j].remove != NONE)
                    edge(judge, judge->presences[j].remove, group->after);
            }
            if (i + 1 < judge->key_groups[key + 1] && group->after != NONE)
                edge(judge, group->after, judge->groups[i + 1].before);
        }
    }
}

/* An operation precedes the node of its end, that node the next one, and the last node before the begin of an
 * operation precedes the operation. */
static void add_time_edges(struct judge *judge) {
    uint32_t first = judge->op_count + judge->auxiliary_count, ended = 0;
    for (uint32_t i = 0; i < judge->ended_count; i++) {
        edge(judge, judge->by_end[i], first + i);
        if (i > 0)
            edge(judge, first + i - 1, first + i);
    }
    for (uint32_t i = 0; i < judge->counted; i++) {
        while (ended < judge->ended_count
               && judge->ops[judge->by_end[ended]].end < judge->ops[judge->by_begin[i]].begin)
            ended++;
        if (ended > 0)
            edge(judge, first + ended - 1, judge->by_begin[i]);
    }
}

static void emit(void *ctx) {
    struct judge *judge = ctx;
    for (uint32_t i = 0; i < judge->op_count; i++) {
        const struct op *op = &judge->ops[i];
        for (uint32_t j = 0; op->counts && j < op->access_count; j++) {
            const struct cycles_access *access = &op->accesses[j];
            if (access->kind == CYCLES_IGNORED)
                continue;
            if (access->seen != CYCLES_ABSENT)
                add_version_edges(judge, i, access);
            else if (access->kind == CYCLES_READ)
                add_absent_edges(judge, i, access->key);
        }
    }
    add_group_edges(judge);
    add_time_edges(judge);
}

struct moment {
    uint64_t time;
    uint32_t op;
};

static int by_time(const void *a, const void *b) {
    const struct moment *x = a, *y = b;
    return (x->time > y->time) - (x->time < y->time);
}

/* List the operations that count in the order of their ends or begins. */
static int sort_ops(struct judge *judge, bool ends, uint32_t **ret_ops, uint32_t *ret_count) {
    struct moment *moments = malloc(((size_t)judge->op_count + 1) * sizeof *moments);
    uint32_t count = 0;
    *ret_ops = malloc(((size_t)judge->op_count + 1) * sizeof(uint32_t));
    if (!moments || !*ret_ops) {
        free(moments);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < judge->op_count; i++) {
        uint64_t time = ends ? judge->ops[i].end : judge->ops[i].begin;
        if (judge->ops[i].counts && time != CYCLES_NEVER)
            moments[count++] = (struct moment){time, i};
    }
    qsort(moments, count, sizeof *moments, by_time);
    for (uint32_t i = 0; i < count; i++)
        (*ret_ops)[i] = moments[i].op;
    *ret_count = count;
    free(moments);
    return 0;
}

/* ---- the judgement ---- */

static int allocate(struct judge *judge) {
    judge->next = malloc((judge->access_count + 1) * sizeof judge->next[0]);
    judge->key_presences = calloc((size_t)judge->key_count + 1, sizeof judge->key_presences[0]);
    judge->key_groups = calloc((size_t)judge->key_count + 1, sizeof judge->key_groups[0]);
    return judge->next && judge->key_presences && judge->key_groups ? 0 : -ENOMEM;
}

static void release(struct judge *judge) {
    graph_free(&judge->graph);
    free(judge->ops);
    free(judge->next);
    free(judge->presences);
    free(judge->groups);
    free(judge->key_presences);
    free(judge->key_groups);
    free(judge->by_end);
    free(judge->by_begin);
}

static void count_ops(struct judge *judge) {
    for (uint32_t i = 0; i < judge->op_count; i++) {
        const struct op *op = &judge->ops[i];
        judge->report.ops += op->counts;
        judge->report.accesses += op->counts ? op->access_count : 0;
        judge->report.unknown += op->outcome == CYCLES_UNKNOWN;
        judge->report.proven += op->outcome == CYCLES_UNKNOWN && op->counts;
    }
}

static int judge_all(struct judge *judge, const struct cycles_history *actors) {
    uint32_t *cycle = NULL, count = 0;
    int rc = copy_ops(judge, actors);
    if (rc == 0)
        rc = allocate(judge);
    if (rc == 0)
        rc = order_keys(judge);
    if (rc == 0)
        rc = sort_ops(judge, true, &judge->by_end, &judge->ended_count);
    if (rc == 0)
        rc = sort_ops(judge, false, &judge->by_begin, &judge->counted);
    if (rc == 0)
        rc = graph_build(&judge->graph, judge->op_count + judge->auxiliary_count + judge->ended_count,
                         judge->op_count, emit, judge);
    if (rc == 0)
        rc = graph_find_cycle(&judge->graph, &cycle, &count);
    if (rc != 0)
        return rc;
    count_ops(judge);
    cycles_print_errors(judge);
    if (cycle)
        cycles_print_cycle(judge, cycle, count);
    free(cycle);
    return judge->report.errors + judge->report.cycle > 0;
}

int cycles_judge(const struct cycles_history *actors, uint32_t actor_count, FILE *out,
                 struct cycles_report *ret_report) {
    struct judge judge = {.out = out, .actor_count = actor_count};
    if (actor_count > CYCLES_ACTORS_MAX)
        return -EINVAL;
    int rc = judge_all(&judge, actors);
    *ret_report = judge.report;
    release(&judge);
    return rc;
}
