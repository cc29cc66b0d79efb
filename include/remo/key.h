/* key.h - keys of an ordered map (tree.h), made from numbers and byte strings, in the order of these values.
 *
 * Model:    a key is a sequence of components: integers, doubles and byte strings. The order of memcmp of two
 *           keys is the order of their first components; if these are equal, that of the second ones, and so
 *           on. A component is in ascending or descending order. Keys that are compared must have, at each
 *           position, components of the same type and order, and integers of the same size.
 * Use:      a key is appended to a buffer of the caller, and can be used in a call of tree.h:
 *               unsigned char room[32];
 *               struct remo_key key = {.data = room, .cap = sizeof room};
 *               remo_key_put_bytes(&key, name, strlen(name), REMO_KEY_ASCENDING);
 *               remo_key_put_unsigned(&key, number, 4, REMO_KEY_ASCENDING);
 *               int rc = key.error ? key.error : remo_tree_get(tree, key.data, key.bytes, ...);
 *           A key with the first components only is a prefix of all keys with these components, and precedes
 *           them. remo_key_prefix_end makes the end of their range. remo_key_get_... read the components of a
 *           key, in the order in which they were appended. See examples/sensors.c.
 * Encoding: an unsigned integer: big-endian, in 1 to 8 bytes. A signed integer: the same, with the sign bit
 *           inverted. A double: its 8 bytes, big-endian; all bits inverted if it is negative, otherwise the
 *           sign bit. A byte string: its bytes and a byte 0; a byte 0 of the string becomes 1, 1, and a byte
 *           1 becomes 1, 2. So the end of a string precedes each byte of a longer string. A descending
 *           component: the same bytes, all inverted. A key contains no types and no lengths. The encoding is
 *           the same on all machines, and each value has one encoding.
 * Order:    byte strings are in the order of memcmp; a prefix is before longer strings. Doubles are in the
 *           order totalOrder of IEEE 754: negative NaNs, -infinity, negative numbers, -0.0, 0.0, positive
 *           numbers, infinity, positive NaNs. So -0.0 and 0.0 are different keys, and NaNs are equal if their
 *           bits are.
 * Errors:   after an error of a call, the key or reader is unchanged except for `error`. Further calls with
 *           it return the same code without effect. So a program can check `error` once, after several calls.
 *           If the struct itself is NULL, calls return -EINVAL.
 * Cost:     no network operation and no allocation; linear in the number of bytes.
 * Threads:  any; a key or reader is used by one thread at a time.
 * Source:   the tuple layer of FoundationDB. Differs in: components have no type codes, so keys are shorter,
 *           and begin with bytes of a value, by which a tree divides its keys among its owners by default;
 *           integers have a fixed size; components can be descending.
 */
#pragma once

#include <remo/error.h>
#include <stddef.h>

REMO_BEGIN

enum remo_key_order { REMO_KEY_ASCENDING, REMO_KEY_DESCENDING };

/* A key that is being built. Set `data` and `cap`, and the other members to 0. */
struct remo_key {
    unsigned char *data; /* of the caller */
    size_t cap;          /* the size of `data` */
    size_t bytes;        /* used so far: the key */
    int error;           /* the code of the first call that failed; 0: none */
};

/* Append an integer of `value_bytes` bytes.
 * Errors:
 *   -ERANGE    the value needs more than `value_bytes` bytes
 *   -EMSGSIZE  the component does not fit into the rest of the buffer
 *   -EINVAL    `value_bytes` is not 1 to 8, `order` is unknown, or the key was not initialised */
REMO_API int remo_key_put_unsigned(struct remo_key *key, uint64_t value, uint32_t value_bytes,
                                   enum remo_key_order order);
REMO_API int remo_key_put_signed(struct remo_key *key, int64_t value, uint32_t value_bytes,
                                 enum remo_key_order order);
/* Append a double, in 8 bytes. Errors: -EMSGSIZE and -EINVAL, as above. */
REMO_API int remo_key_put_double(struct remo_key *key, double value, enum remo_key_order order);
/* Append a byte string. It takes `value_bytes` + 1 bytes, and 1 more for each of its bytes that is 0 or 1.
 * `value` may be NULL if `value_bytes` is 0, and must not be in the buffer of the key.
 * Errors: -EMSGSIZE and -EINVAL, as above. */
REMO_API int remo_key_put_bytes(struct remo_key *key, const void *value, size_t value_bytes,
                                enum remo_key_order order);
/* Replace the key by the first key after all keys that begin with it: the end of a range of a scan.
 * Errors:
 *   -ERANGE  there is no such key, because each byte of the key is 255, or it has no bytes
 *   -EINVAL  the key was not initialised */
REMO_API int remo_key_prefix_end(struct remo_key *key);

/* A key that is being read. Set `data` and `bytes`, and the other members to 0. */
struct remo_key_reader {
    const void *data;
    size_t bytes;
    size_t offset; /* of the next component */
    int error;     /* the code of the first call that failed; 0: none */
};

/* Read the next component. The arguments are those of the remo_key_put_... that appended it.
 * Errors:
 *   -EBADMSG  the key ends before the end of the component
 *   -EINVAL   an argument is NULL, `value_bytes` is not 1 to 8, `order` is unknown, or the reader was not
 *             initialised */
REMO_API int remo_key_get_unsigned(struct remo_key_reader *reader, uint32_t value_bytes,
                                   enum remo_key_order order, uint64_t *ret_value);
REMO_API int remo_key_get_signed(struct remo_key_reader *reader, uint32_t value_bytes,
                                 enum remo_key_order order, int64_t *ret_value);
REMO_API int remo_key_get_double(struct remo_key_reader *reader, enum remo_key_order order,
                                 double *ret_value);
/* Copy the byte string that is the next component to `value`. *ret_value_bytes is its size, also after
 * -EMSGSIZE. With `value` NULL, skip the component. -EMSGSIZE is not kept in `error`: the call can be
 * repeated with more space.
 * Errors:
 *   -EMSGSIZE  the string has more than `cap` bytes; `value` is unchanged
 *   -EBADMSG   the key ends before the end of the string, or a byte 1 in it is not followed by 1 or 2
 *   -EINVAL    `ret_value_bytes` is NULL, `order` is unknown, or the reader was not initialised */
REMO_API int remo_key_get_bytes(struct remo_key_reader *reader, enum remo_key_order order, void *value,
                                size_t cap, size_t *ret_value_bytes);
/* Check that all components have been read.
 * Errors:
 *   -EBADMSG  bytes are left
 *   -EINVAL   the reader was not initialised */
REMO_API int remo_key_get_end(struct remo_key_reader *reader);

REMO_END
