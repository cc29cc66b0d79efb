/* segment.h - shared memory: a file without a name, fully allocated on creation.
 *
 * Model:   a memfd, or an unlinked file in a tmpfs or hugetlbfs that the user chose. Its owner and each peer
 *          map it. It is sealed against shrinking, so no holder can cause a SIGBUS in another process.
 * Space:   all of it is allocated on creation, in steps. Before each step the free memory (machine and
 *          control groups) is checked. Memory allocated on first access could end in a SIGBUS or the
 *          out-of-memory killer.
 * Huge:    2 MiB pages, by the first method that works: reserved pages (a memfd, if enough are free);
 *          transparent pages, if madvise is enabled; collapsing, which the kernel does on request even if
 *          madvise is disabled. The order is essential: map at a multiple of 2 MiB, madvise, touch one page
 *          of each 2 MiB, collapse, and fallocate last. An earlier fallocate allocates small pages, which
 *          madvise does not change and collapsing must copy. If the kernel is slow, the rest uses small
 *          pages. Memory that the host of a virtual machine has not provided yet is always slow.
 * Threads: any. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Alignment of segments, arenas and windows, so that huge pages can map them. */
#define REMO__SEGMENT_ALIGN_BYTES (UINT64_C(2) << 20)

/* Up to this size a segment's page table is filled when it is added; that of a larger one on first access. */
#define REMO__SEGMENT_POPULATE_MAX_BYTES (UINT64_C(64) << 20)

/* Create a segment of `bytes`, a multiple of the page size, zeroed. `dir`: the folder of the file, or NULL.
 * `ret_huge`: all of it is in huge pages (except a last part of less than 2 MiB).
 * Errors: -EINVAL, -ENOSPC (too little memory, or too little room in the control group or in `dir`: the
 *         sentence gives the requested and the available size), and those of the kernel. */
int remo__segment_create(const char *dir, uint64_t bytes, int *ret_fd, bool *ret_huge);

/* Check that it is safe to map `bytes` of a peer's file at a multiple of 2 MiB plus `offset`: the file is
 * long enough and allocated, its pages fit, and only processes of this user could shrink it.
 * Errors: -EINVAL, -EACCES. */
int remo__segment_check(int fd, uint64_t offset, uint64_t bytes);

/* Map a segment for reading and writing, with huge pages if possible. `at`: the address, where the mapping
 * replaces an older one, or NULL for any address. NULL on failure, with the sentence set. */
void *remo__segment_map(void *at, uint64_t bytes, int fd);

/* Fill the page table of a new mapping of at most REMO__SEGMENT_POPULATE_MAX_BYTES. Never fails. */
void remo__segment_populate(void *at, uint64_t bytes);

/* Reserve address space for an arena or a window: aligned as above, without memory. Release it by
 * munmap(at, bytes). NULL on failure, with the sentence set. */
void *remo__segment_reserve(uint64_t bytes);
