/* library.h - libibverbs and librdmacm, loaded on first use. Include this header in place of
 * <infiniband/verbs.h> and <rdma/rdma_cma.h>. */
#pragma once

#include "base/library.h"
#include "fabric/verbs/symbols.h"

REMO__VERBS_SYMBOLS(REMO__LIBRARY_RENAME, REMO__LIBRARY_RENAME)
REMO__RDMACM_SYMBOLS(REMO__LIBRARY_RENAME, REMO__LIBRARY_RENAME)

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* Load both libraries. Call it before any of their functions. Errors: -ENODEV. */
int remo__verbs_library_load(void);
