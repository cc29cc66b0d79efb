/* symbols.h - the functions of libfabric that Remo uses. Its data path consists of inline functions. */
#pragma once

#define REMO__OFI_SYMBOLS(CALL, LOAD)                                                                \
    LOAD(int, fi_getinfo,                                                                            \
         (uint32_t version, const char *node, const char *service, uint64_t flags,                   \
          const struct fi_info *hints, struct fi_info **info),                                       \
         (version, node, service, flags, hints, info))                                               \
    LOAD(int, fi_fabric, (struct fi_fabric_attr * attr, struct fid_fabric * *fabric, void *context), \
         (attr, fabric, context))                                                                    \
    CALL(void, fi_freeinfo, (struct fi_info * info), (info))                                         \
    CALL(struct fi_info *, fi_dupinfo, (const struct fi_info *info), (info))                         \
    CALL(const char *, fi_strerror, (int number), (number))                                          \
    CALL(uint32_t, fi_version, (void), ())
