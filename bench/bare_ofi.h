/* bare_ofi.h - libfabric with nothing on top: what a read and a write cost between the very processes of a
 * benchmark.
 *
 * Model:   one endpoint in each of two processes, which tell each other a blob by whatever means they have.
 * One side measures; the other polls its completions meanwhile (the best a target can do for the provider).
 * Threads: one at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BARE_OFI_BYTES (1u << 20) /* that can be read or written at the other side */
#define BARE_OFI_BLOB_BYTES 256u

struct bare_ofi;

/* `provider`: NULL is that of Remo, tcp;ofi_rxm. Errors, with a sentence: -ENODEV, -ENOMEM, -EIO. */
int bare_ofi_open(const char *provider, struct bare_ofi **ret_bare);
void bare_ofi_close(struct bare_ofi *bare);
/* What the other side must know, and to know the other side. Errors: -EIO, -EINVAL. */
int bare_ofi_describe(struct bare_ofi *bare, char ret_blob[BARE_OFI_BLOB_BYTES]);
int bare_ofi_connect(struct bare_ofi *bare, const char blob[BARE_OFI_BLOB_BYTES]);

/* The median time of one operation, its completion included (of a write: the local one), over `seconds`; 0
 * when it could not be measured. */
double bare_ofi_read_ns(struct bare_ofi *bare, size_t size_bytes, double seconds);
double bare_ofi_write_ns(struct bare_ofi *bare, size_t size_bytes, double seconds);
/* Poll once, for the other side's sake. */
void bare_ofi_poll(struct bare_ofi *bare);
