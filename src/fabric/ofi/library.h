/* library.h - libfabric, loaded on first use. Include this header in place of <rdma/fabric.h>, and before
 * every other header of libfabric. */
#pragma once

#include "base/library.h"
#include "fabric/ofi/symbols.h"

REMO__OFI_SYMBOLS(REMO__LIBRARY_RENAME, REMO__LIBRARY_RENAME)

#include <rdma/fabric.h>

/* Load libfabric. Call it before any of its functions. Errors: -ENODEV. */
int remo__ofi_library_load(void);
