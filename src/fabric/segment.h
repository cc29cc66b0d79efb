/* segment.h - memory that can be shared: a file without a name, its space allocated when it is made.
 *
 * Model:   memfd, or an unlinked file in a tmpfs or hugetlbfs that the user chose. Sealed against shrinking,
 *          so that nobody who maps it can be given a SIGBUS by whoever else holds it. Mapped by its owner and
 *          by each peer.
 * Space:   all of it is allocated at once and in steps, each after a look at what is free (machine and
 *          control groups), since memory that was only promised ends in a SIGBUS, or in the kernel killing
 *          something.
 * Huge:    2 MiB pages, by the first way that works: reserved ones (a memfd, when enough are free);
 *          transparent ones, where the administrator lets them be advised; and collapsing, which the kernel
 *          does on request even where advice is off. It works well in this order only: map at a multiple of 2
 *          MiB, madvise, touch one page of each 2 MiB, collapse, and fallocate last. fallocate first makes
 *          small pages, which advice does not change, and which collapsing must copy. The kernel is not
 *          waited for when it takes long. Memory of a virtual machine that its host has not yet provided
 *          takes long anyway.
 * Threads: any. */
#ifndef REMO_FABRIC_SEGMENT_H
#define REMO_FABRIC_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

/* Segments, arenas and windows onto them are aligned to this, so that huge pages can map them. */
#define REMO__SEGMENT_ALIGN_BYTES (UINT64_C(2) << 20)

/* Up to this size a segment is given its page table when it is added; a larger one as it is touched. */
#define REMO__SEGMENT_POPULATE_MAX_BYTES (UINT64_C(64) << 20)

/* Make a segment of `bytes`, a multiple of the page size, zeroed. `dir`: NULL, or where the file shall lie.
 * `ret_huge`: all of it is in huge pages (but for a last part of less than 2 MiB).
 * Errors: -EINVAL, -ENOSPC (no memory, no room in the control group or in `dir`: the sentence says how much
 *         was asked for, how much there is, and what to do), and what the kernel says about making the
 * file. */
int remo__segment_create(const char *dir, uint64_t bytes, int *ret_fd, bool *ret_huge);

/* Is it safe to map `bytes` of a file that a peer sent at a multiple of 2 MiB plus `offset`: is it long
 * enough and allocated, do its pages fit, and can nobody outside this user's processes shrink it? Errors:
 * -EINVAL, -EACCES. */
int remo__segment_check(int fd, uint64_t offset, uint64_t bytes);

/* Map a segment for reading and writing: at `at`, replacing what is there, or anywhere (NULL). Asks for huge
 * pages. NULL on failure, with the sentence set. */
void *remo__segment_map(void *at, uint64_t bytes, int fd);

/* Fill the page table of what was just mapped, if it is small enough for that to be quick. Never fails. */
void remo__segment_populate(void *at, uint64_t bytes);

/* Reserve address space for an arena, or for a window onto one: aligned as above, no memory behind it yet.
 * NULL on failure, with the sentence set. Released by munmap(at, bytes). */
void *remo__segment_reserve(uint64_t bytes);

#endif
