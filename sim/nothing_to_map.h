/* nothing_to_map.h - the segment operations of both simulated fabrics, which describe and map
 * nothing: all nodes share one process, so every arena is already mapped. */
#pragma once

#include "fabric/fabric.h"

static inline int sim_no_add_segment(struct remo__fabric *fabric, uint32_t index, uint64_t offset,
                                     uint64_t bytes, int fd, void *blob, size_t blob_cap,
                                     size_t *ret_blob_bytes) {
    (void)fabric, (void)index, (void)offset, (void)bytes, (void)fd, (void)blob, (void)blob_cap;
    *ret_blob_bytes = 0;
    return 0;
}

static inline int sim_no_map_segment(struct remo__fabric *fabric, uint32_t peer, uint32_t index,
                                     uint64_t offset, uint64_t bytes, const void *blob, size_t blob_bytes,
                                     int fd) {
    (void)fabric, (void)peer, (void)index, (void)offset, (void)bytes, (void)blob, (void)blob_bytes, (void)fd;
    return 0;
}

static inline int sim_no_describe(struct remo__fabric *fabric, void *blob, size_t blob_cap,
                                  size_t *ret_blob_bytes) {
    (void)fabric, (void)blob, (void)blob_cap;
    *ret_blob_bytes = 0;
    return 0;
}
