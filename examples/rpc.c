/* rpc.c - remote procedure calls: node 0 sends a sentence to every node, and adds up the letters they count.
 *     remo run -n 3 -- ./rpc [CALLS]        A window of calls is in flight; node 0 calls itself too.
 * Each node serves the calls of node 0 until node 0 calls END. A post could be lost:
 * requests of a node that has left are not executed. */
#include <errno.h>
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW 8u

enum handler { COUNT_LETTERS, END };

/* Runs at the node that is called. The status of the reply is the number of letters. */
static int count_letters(void *ctx, const struct remo_rpc_request *request) {
    const char *text = request->data;
    int letters = 0;
    (void)ctx;
    for (size_t i = 0; i < request->bytes; i++)
        letters += (text[i] >= 'a' && text[i] <= 'z');
    return letters;
}

static int end(void *ctx, const struct remo_rpc_request *request) {
    (void)request;
    __atomic_store_n((int *)ctx, 1, __ATOMIC_RELEASE);
    return 0;
}

/* Keep WINDOW calls in flight, to all nodes in turn. */
static int call_all(struct remo_rpc *rpc, uint32_t nodes, uint64_t calls, uint64_t *ret_letters) {
    static const char text[] = "the quick brown fox jumps over the lazy dog";
    static struct remo_rpc_op window[WINDOW];
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < calls + WINDOW; i++) {
        struct remo_rpc_op *op = &window[i % WINDOW];
        if (i >= WINDOW && i - WINDOW < calls) {
            rc = remo_rpc_wait(op);
            *ret_letters += rc > 0 ? (uint64_t)rc : 0;
            rc = rc > 0 ? 0 : rc;
        }
        if (rc != 0 || i >= calls)
            continue;
        *op = (struct remo_rpc_op){.node = (uint32_t)(i % nodes),
                                   .number = COUNT_LETTERS,
                                   .request = text,
                                   .request_bytes = strlen(text),
                                   .timeout_ns = REMO_SECONDS(30)};
        rc = remo_rpc_start(rpc, op);
    }
    for (uint32_t i = 0; i < WINDOW; i++)
        remo_rpc_cancel(&window[i]); /* no effect on calls that have ended */
    return rc;
}

static int deal(struct remo_rpc *rpc, uint32_t nodes, uint64_t calls) {
    uint64_t letters = 0;
    int rc = call_all(rpc, nodes, calls, &letters);
    for (uint32_t node = 0; rc == 0 && node < nodes; node++)
        rc = remo_rpc_call(rpc, node, END, NULL, 0, NULL, 0, NULL, REMO_SECONDS(30));
    if (rc == 0)
        printf("%u nodes counted %llu letters in %llu calls\n", nodes, (unsigned long long)letters,
               (unsigned long long)calls);
    return rc;
}

int main(int argc, char **argv) {
    struct remo_node *node;
    struct remo_rpc *rpc = NULL;
    int has_ended = 0;
    const struct remo_rpc_handler handlers[] = {{COUNT_LETTERS, count_letters, NULL, REMO_RPC_SHORT},
                                                {END, end, &has_ended, REMO_RPC_SHORT}};
    const struct remo_rpc_options options = {.handlers = handlers, .handler_count = 2};
    uint64_t calls = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    int rc = remo_node_open(NULL, &node);
    if (rc == 0) {
        rc = remo_rpc_open(remo_node_root(node), "letters", &options, &rpc);
        rc = rc ? rc : remo_channel_wait(remo_rpc_channel(rpc), REMO_SECONDS(60));
        if (rc == 0 && remo_node_rank(node) == 0)
            rc = deal(rpc, remo_node_size(node), calls);
        while (rc == 0 && !__atomic_load_n(&has_ended, __ATOMIC_ACQUIRE)) {
            rc = remo_rpc_serve(rpc, REMO_SECONDS(0.01));
            if (rc == 0 && remo_node_peer(node, 0) == REMO_PEER_DEAD)
                rc = -EHOSTDOWN; /* node 0 has failed before it could call END */
        }
        remo_rpc_close(rpc);
        remo_node_close(node);
    }
    if (rc != 0)
        fprintf(stderr, "rpc: %s: %s\n", remo_error_name(rc), remo_last_error());
    return rc != 0;
}
