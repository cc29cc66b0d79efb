/* sst.h - functions of an SST for objects that contain one, in addition to those of remo/sst.h. */
#pragma once

#include <remo/sst.h>

/* Read the row of `node`, of 8 bytes, from the memory of that node: the value that it has stored last. A
 * failed read does not change *ret_row. Cost: 1 read. Errors: those of remo_region_read. */
int remo__sst_read(struct remo_sst *sst, uint32_t node, uint64_t *ret_row);
