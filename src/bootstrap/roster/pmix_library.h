/* pmix_library.h - libpmix, loaded if the environment names a PMIx server. Include this header in place of
 * <pmix.h>. Use no macro of PMIx that calls a function: the called function differs between versions. */
#pragma once

#include "base/library.h"

#define REMO__PMIX_SYMBOLS(CALL, LOAD)                                                                   \
    LOAD(pmix_status_t, PMIx_Init, (pmix_proc_t * proc, pmix_info_t * info, size_t info_count),          \
         (proc, info, info_count))                                                                       \
    CALL(pmix_status_t, PMIx_Finalize, (const pmix_info_t *info, size_t info_count), (info, info_count)) \
    CALL(pmix_status_t, PMIx_Get,                                                                        \
         (const pmix_proc_t *proc, const char *key, const pmix_info_t *info, size_t info_count,          \
          pmix_value_t **ret_value),                                                                     \
         (proc, key, info, info_count, ret_value))                                                       \
    CALL(pmix_status_t, PMIx_Put, (pmix_scope_t scope, const char *key, pmix_value_t *value),            \
         (scope, key, value))                                                                            \
    CALL(pmix_status_t, PMIx_Commit, (void), ())                                                         \
    CALL(pmix_status_t, PMIx_Fence_nb,                                                                   \
         (const pmix_proc_t *procs, size_t proc_count, const pmix_info_t *info, size_t info_count,       \
          pmix_op_cbfunc_t done, void *ctx),                                                             \
         (procs, proc_count, info, info_count, done, ctx))                                               \
    CALL(pmix_status_t, PMIx_Info_load,                                                                  \
         (pmix_info_t * info, const char *key, const void *data, pmix_data_type_t type),                 \
         (info, key, data, type))                                                                        \
    CALL(void, PMIx_Value_destruct, (pmix_value_t * value), (value))                                     \
    CALL(const char *, PMIx_Error_string, (pmix_status_t status), (status))

REMO__PMIX_SYMBOLS(REMO__LIBRARY_RENAME, REMO__LIBRARY_RENAME)

#include <pmix.h>

/* Load libpmix. Call it before any function of PMIx. Errors: -ENODEV. */
int remo__pmix_library_load(void);
