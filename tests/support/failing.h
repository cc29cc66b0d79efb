/* failing.h - what the library gets from below, made to fail: the n-th allocation, mapping, descriptor,
 * thread, registration or step of the network's set-up that one thread asks for. A program of this is linked
 * with failing_link_args (tests/meson.build), which lead the library's calls here.
 *
 * Scope:   calls of the library itself, not of the libraries that it uses.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum failing {
    FAILING_NOTHING,
    FAILING_ALLOCATION,   /* malloc and its like: -ENOMEM */
    FAILING_REGISTRATION, /* of memory: a segment with the fabric, ours and as our own peer; fi_mr_reg */
    FAILING_NETWORK, /* the rest of a fabric's set-up: describe, connect, endpoints, libfabric's objects */
    FAILING_THREAD,
    FAILING_MEMORY,     /* mmap, fallocate, ftruncate */
    FAILING_DESCRIPTOR, /* files, sockets, eventfd and so on: -EMFILE */
    FAILING_KINDS
};
extern const char *const failing_names[FAILING_KINDS];

/* From now on, of this thread: the n-th (from 1) of the kind fails, once. */
void failing_arm(enum failing kind, uint32_t n);
/* False: there were fewer. */
bool failing_disarm(void);

/* What is held now: memory that the library allocated and maps that it made, in all threads; descriptors of
 * the process. */
struct failing_held {
    uint64_t blocks, mapped_bytes;
    uint32_t descriptors;
};
struct failing_held failing_held(void);
