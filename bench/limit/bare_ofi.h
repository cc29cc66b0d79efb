/* bare_ofi.h - libfabric alone: the cost of a read and a write between the processes of a benchmark.
 *
 * Model:   one endpoint in each of two processes, which exchange a blob by any means. One side measures; the
 *          other polls its completions meanwhile, which is the best that a target can do for the provider.
 * Threads: one at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BARE_OFI_BYTES (1u << 20) /* accessible at the other side */
#define BARE_OFI_BLOB_BYTES 256u

struct bare_ofi;

/* Open an endpoint; `provider` NULL selects Remo's default, tcp;ofi_rxm. Errors: -ENODEV -ENOMEM
 * -EIO. */
int bare_ofi_open(const char *provider, struct bare_ofi **ret_bare);
void bare_ofi_close(struct bare_ofi *bare);
/* Describe this side to the other; connect to the other side by its description. Errors: -EIO
 * -EINVAL. */
int bare_ofi_describe(struct bare_ofi *bare, char ret_blob[BARE_OFI_BLOB_BYTES]);
int bare_ofi_connect(struct bare_ofi *bare, const char blob[BARE_OFI_BLOB_BYTES]);

/* Return the median time of one operation, including its completion (for a write the local one),
 * measured for `seconds`; 0 if it could not be measured. */
double bare_ofi_read_ns(struct bare_ofi *bare, size_t size_bytes, double seconds);
double bare_ofi_write_ns(struct bare_ofi *bare, size_t size_bytes, double seconds);
/* Poll once, to drive the other side's operations. */
void bare_ofi_poll(struct bare_ofi *bare);
