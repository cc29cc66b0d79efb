/* write.c - writes of any fabric and size. A large write is several operations. Its notification follows the
 * last one, so on fabrics that reorder writes a fence places the others first. */
#include <assert.h>

#include "remote/op.h"
#include "remote/start.h"

/* A write counts before it starts: a node that sees its effect may then read the counters of the writer. One
 * that does not start is taken back. */
static int start_counted(struct remo_stats *stats, struct remo__start *start) {
    uint64_t bytes = start->op.size_bytes, imms = (start->op.flags & (REMO__OP_IMM | REMO__OP_NOTIFY)) != 0;
    remo__count(&stats->writes, 1);
    remo__count(&stats->bytes, bytes);
    remo__count(&stats->imms, imms);
    int rc = remo__start(start);
    if (rc != 0) {
        remo__count(&stats->writes, -(uint64_t)1);
        remo__count(&stats->bytes, -bytes);
        remo__count(&stats->imms, -imms);
    }
    return rc;
}

int remo__op_write(struct remo__ref ref, const void *src, size_t bytes, uint32_t flags, uint32_t imm,
                   struct remo_ack *ack) {
    struct remo_node *node = ref.thread->node;
    const struct remo__fabric_caps *caps = &node->fabric->caps;
    bool direct = remo__is_direct(node, src);
    uint64_t piece_max = remo__piece_bytes_max(node, direct), at = 0;
    uint8_t last_flags = (flags & REMO__WRITE_IMM)      ? REMO__OP_IMM
                         : (flags & REMO__WRITE_NOTIFY) ? REMO__OP_NOTIFY
                                                        : 0;
    int rc = 0;
    assert(ack || !(flags & REMO__WRITE_EXEMPT)); /* only the ack reports its failure */
    do {
        uint64_t piece = remo__min(bytes - at, piece_max);
        bool last = at + piece == bytes, is_inline = piece <= caps->inline_bytes;
        const char *from = (const char *)src + at;
        struct remo__start start = {
            .slots = ref.thread->slots,
            .thread = ref.thread,
            .bounce = !direct && !is_inline,
            .exempt = (flags & REMO__WRITE_EXEMPT) != 0,
            .tracked = (flags & REMO__WRITE_TRACKED) != 0,
            .src = from,
            .ack = ack,
            .deadline_ns = (flags & REMO__WRITE_TRY) ? 0 : REMO__OP_DEADLINE,
            .op = {.kind = REMO__OP_WRITE,
                   .peer = (uint16_t)ref.node,
                   .remote = ref.at + at,
                   .flags = (uint8_t)((last ? last_flags : 0) | (is_inline ? REMO__OP_INLINE : 0)
                                      | (flags & REMO__WRITE_UNAWAITED ? REMO__OP_UNAWAITED : 0)),
                   .imm = imm,
                   .local = (void *)(uintptr_t)from,
                   .size_bytes = piece}};
        /* All pieces are placed before the notification. */
        if (last && last_flags && at > 0 && !caps->writes_ordered)
            rc = remo_fence(node, REMO_FENCE_PAIR, ref.node);
        if (rc == 0)
            rc = start_counted(ref.stats, &start);
        at += piece;
    } while (rc == 0 && at < bytes);
    if (rc == 0 && node->mapped)
        ref.thread->unfenced = true;
    remo__ensure_progress(ref.thread);
    return rc;
}
