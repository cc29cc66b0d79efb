/* cycles_report.c - prints what a history contradicts (cycles.h): results that no order explains, and a cycle
 * of operations with the keys and times that put them in this order. */
#include <string.h>

#include "cycles_judge.h"

#define ERRORS_PRINTED 8u
#define ACCESSES_PRINTED 12u /* of one operation */
#define CYCLE_PRINTED 24u    /* operations */

/* ---- names ---- */

static void print_id(const struct judge *judge, uint32_t id) {
    if (id == CYCLES_ABSENT)
        fprintf(judge->out, "absent");
    else
        fprintf(judge->out, "%u.%u", (id - 1) / CYCLES_OPS_MAX, (id - 1) % CYCLES_OPS_MAX);
}

static void print_name(const struct judge *judge, uint32_t index) {
    const struct op *op = &judge->ops[index];
    fprintf(judge->out, "%u.%u", op->actor, index - judge->base[op->actor]);
}

static void print_access(const struct judge *judge, const struct cycles_access *access) {
    static const char *const words[] = {"read", "wrote", "deleted", "ignored"};
    fprintf(judge->out, " %s %u (", words[access->kind], access->key);
    print_id(judge, access->seen);
    fprintf(judge->out, ");");
}

/* Print an operation, with the keys that it shares with one of two others. */
static void print_op(const struct judge *judge, uint32_t index, uint32_t before, uint32_t after) {
    const struct op *op = &judge->ops[index];
    uint32_t printed = 0;
    fprintf(judge->out, "    ");
    print_name(judge, index);
    fprintf(judge->out, ", from %llu", (unsigned long long)op->begin);
    if (op->end == CYCLES_NEVER)
        fprintf(judge->out, ", outcome unknown:");
    else
        fprintf(judge->out, " to %llu%s:", (unsigned long long)op->end,
                op->outcome == CYCLES_UNKNOWN ? ", outcome unknown" : "");
    for (uint32_t i = 0; i < op->access_count && printed < ACCESSES_PRINTED; i++) {
        const struct cycles_access *access = &op->accesses[i];
        if (!cycles_access_of(&judge->ops[before], access->key)
            && !cycles_access_of(&judge->ops[after], access->key))
            continue;
        print_access(judge, access);
        printed++;
    }
    if (printed < op->access_count)
        fprintf(judge->out, " %u more keys", op->access_count - printed);
    fprintf(judge->out, "\n");
}

/* ---- results that no order explains ---- */

static bool counts_error(struct judge *judge) {
    return judge->report.errors++ < ERRORS_PRINTED;
}

static void check_version(struct judge *judge, uint32_t index, const struct cycles_access *access) {
    uint32_t writer;
    if (access->kind == CYCLES_IGNORED || (access->seen == CYCLES_ABSENT && access->kind != CYCLES_DELETE)
        || cycles_writer_of(judge, access->seen, access->key) != NO_ACCESS || !counts_error(judge))
        return;
    fprintf(judge->out, "  key %u: ", access->key);
    print_name(judge, index);
    fprintf(judge->out, " has seen the version ");
    print_id(judge, access->seen);
    if (access->seen == CYCLES_ABSENT)
        fprintf(judge->out, ", and deleted it\n");
    else if (cycles_index_of(judge, access->seen, &writer) == 0
             && judge->ops[writer].outcome == CYCLES_NOT_COMMITTED)
        fprintf(judge->out, ", whose writer did not commit\n");
    else
        fprintf(judge->out, ", which was never written\n");
}

/* A group that ends without a delete must be the last one of its key. */
static void check_groups(struct judge *judge, uint32_t key) {
    for (uint32_t i = judge->key_groups[key]; i + 1 < judge->key_groups[key + 1]; i++) {
        const struct group *group = &judge->groups[i];
        if (group->after != NONE || !counts_error(judge))
            continue;
        fprintf(judge->out, "  key %u: ", key);
        print_name(judge, judge->presences[group->presence].insert);
        fprintf(judge->out, " inserted it, and ");
        print_name(judge, judge->presences[group[1].presence].insert);
        fprintf(judge->out, " inserted it again, but it was not deleted in between\n");
    }
}

void cycles_print_errors(struct judge *judge) {
    for (uint32_t i = 0; i < judge->op_count; i++)
        for (uint32_t j = 0; judge->ops[i].counts && j < judge->ops[i].access_count; j++)
            check_version(judge, i, &judge->ops[i].accesses[j]);
    for (uint32_t key = 0; key < judge->key_count; key++)
        check_groups(judge, key);
    if (judge->report.errors > ERRORS_PRINTED)
        fprintf(judge->out, "  and %u more\n", judge->report.errors - ERRORS_PRINTED);
}

/* ---- a cycle ---- */

/* Print why the keys that both use put one before the other. Returns false if they do not. */
static bool print_reason(const struct judge *judge, uint32_t from, uint32_t to) {
    const struct op *a = &judge->ops[from], *b = &judge->ops[to];
    uint32_t actor = a->actor, id = cycles_id(actor, from - judge->base[actor]);
    for (uint32_t i = 0; i < a->access_count; i++) {
        const struct cycles_access *x = &a->accesses[i], *y = cycles_access_of(b, x->key);
        const char *reason = NULL;
        if (!y || x->kind == CYCLES_IGNORED)
            continue;
        if (x->kind == CYCLES_WRITE && y->seen == id)
            reason = y->kind == CYCLES_READ ? "wrote the version that the next one read"
                                            : "wrote the version that the next one replaced";
        else if (x->kind == CYCLES_READ && y->kind != CYCLES_READ && x->seen == y->seen)
            reason = "read the version that the next one replaced";
        else if (x->kind != CYCLES_READ && y->kind != CYCLES_READ && x->seen == y->seen)
            reason = "replaced the same version as the next one";
        else if (x->kind == CYCLES_DELETE && y->seen == CYCLES_ABSENT)
            reason = "made the key absent, as the next one found it";
        else if (x->seen == CYCLES_ABSENT && y->seen == CYCLES_ABSENT && y->kind == CYCLES_WRITE)
            reason = "found the key absent, which the next one inserted";
        if (!reason)
            continue;
        fprintf(judge->out, "      which %s (key %u); so before\n", reason, x->key);
        return true;
    }
    return false;
}

/* Print why one operation of the cycle precedes the next one: `between` is the node after it. */
static void print_step(const struct judge *judge, uint32_t from, uint32_t between, uint32_t to) {
    if (between >= judge->op_count + judge->auxiliary_count)
        fprintf(judge->out, "      which ended before the next one began; so before\n");
    else if (!print_reason(judge, from, to))
        fprintf(judge->out,
                "      which saw or made a key absent at another time than the next one; so before\n");
}

void cycles_print_cycle(struct judge *judge, const uint32_t *nodes, uint32_t count) {
    uint32_t places[CYCLE_PRINTED + 1], printed = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (nodes[i] >= judge->op_count)
            continue;
        if (printed < CYCLE_PRINTED)
            places[printed++] = i;
        judge->report.cycle++;
    }
    fprintf(judge->out,
            "  no order explains these operations (actor.number, times in ns, keys, and the version "
            "that was seen):\n");
    for (uint32_t i = 0; i < printed; i++) {
        uint32_t at = places[i], before = nodes[places[(i + printed - 1) % printed]],
                 after = nodes[places[(i + 1) % printed]];
        print_op(judge, nodes[at], before, after);
        print_step(judge, nodes[at], nodes[(at + 1) % count], after);
    }
    fprintf(judge->out, "    the first one\n");
    if (judge->report.cycle > printed)
        fprintf(judge->out, "  (%u operations of the cycle are not printed)\n",
                judge->report.cycle - printed);
}
