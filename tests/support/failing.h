/* failing.h - failures of the layers below the library: the n-th allocation, mapping, descriptor,
 * thread, registration or network set-up step of one thread fails. A program is linked with
 * failing_link_args (tests/meson.build), which redirect calls of the library, but not of other
 * libraries. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum failing {
    FAILING_NOTHING,
    FAILING_ALLOCATION, /* malloc and its like: -ENOMEM */
    /* of memory: a segment with the fabric, local or as the node's own peer; fi_mr_reg */
    FAILING_REGISTRATION,
    FAILING_NETWORK, /* the rest of a fabric's set-up: describe, connect, endpoints, libfabric's objects */
    FAILING_THREAD,
    FAILING_MEMORY,     /* mmap, fallocate, ftruncate */
    FAILING_DESCRIPTOR, /* files, sockets, eventfd and so on: -EMFILE */
    FAILING_KINDS
};
extern const char *const failing_names[FAILING_KINDS];

/* Make the n-th call (from 1) of the kind fail once, in this thread. */
void failing_arm(enum failing kind, uint32_t n);
/* Return whether the armed call has failed; false: there were fewer calls. */
bool failing_disarm(void);

/* The resources held now: memory allocated and mapped by the library, in all threads, and
 * descriptors of the process. */
struct failing_held {
    uint64_t blocks, mapped_bytes;
    uint32_t descriptors;
};
struct failing_held failing_held(void);
