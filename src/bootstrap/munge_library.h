/* munge_library.h - libmunge, loaded if a job needs a credential and has no key. */
#pragma once

#include <munge.h>

#include "base/library.h"

#define REMO__MUNGE_SYMBOLS(CALL, LOAD)                                                              \
    CALL(munge_ctx_t, munge_ctx_create, (void), ())                                                  \
    CALL(void, munge_ctx_destroy, (munge_ctx_t ctx), (ctx))                                          \
    CALL(munge_err_t, munge_ctx_get, (munge_ctx_t ctx, int option, ...), (ctx, option))              \
    CALL(munge_err_t, munge_ctx_set, (munge_ctx_t ctx, int option, ...), (ctx, option))              \
    CALL(munge_err_t, munge_encode, (char **ret_text, munge_ctx_t ctx, const void *data, int bytes), \
         (ret_text, ctx, data, bytes))                                                               \
    CALL(munge_err_t, munge_decode,                                                                  \
         (const char *text, munge_ctx_t ctx, void **ret_data, int *ret_bytes, uid_t *ret_uid,        \
          gid_t *ret_gid),                                                                           \
         (text, ctx, ret_data, ret_bytes, ret_uid, ret_gid))                                         \
    CALL(const char *, munge_strerror, (munge_err_t error), (error))

/* The table itself, without stubs: a stub cannot forward a variable number of arguments. */
struct remo__munge {
    REMO__MUNGE_SYMBOLS(REMO__LIBRARY_MEMBER, REMO__LIBRARY_MEMBER)
};

/* Load libmunge. Errors: -ENODEV. */
int remo__munge_library_load(const struct remo__munge **ret_munge);
