/* failing.c - injects failures below the library (failing.h).
 * `ld --wrap=f` calls __wrap_f for f; __real_f is f. */
#include "failing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/error.h"
#include "fabric/fabric.h"

#define BLOCKS_MAX (1u << 16)

const char *const failing_names[FAILING_KINDS] = {"nothing", "allocation", "registration", "network",
                                                  "thread",  "memory",     "descriptor"};

/* ---- the armed failure ---- */

static _Thread_local struct {
    enum failing kind;
    uint32_t left; /* 1: the next one */
    bool hit;
} armed;

void failing_arm(enum failing kind, uint32_t n) {
    armed.kind = kind;
    armed.left = n;
    armed.hit = false;
}

bool failing_disarm(void) {
    armed.kind = FAILING_NOTHING;
    return armed.hit;
}

static bool fails(enum failing kind, int code) {
    if (armed.kind != kind || armed.left == 0 || --armed.left > 0)
        return false;
    armed.hit = true;
    errno = code;
    return true;
}

/* ---- held blocks, by address: some blocks are freed by another library than the one that
 * allocated them ---- */

static struct {
    pthread_mutex_t lock;
    const void *blocks[BLOCKS_MAX]; /* a hash table with linear probing */
    uint64_t count, mapped_bytes;
} held = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t home_of(const void *block) {
    return (uint32_t)(((uintptr_t)block >> 4) * 0x9e3779b1u >> 8) % BLOCKS_MAX;
}

/* Return the place of a block in the table, present or not. */
static uint32_t find(const void *block) {
    uint32_t at = home_of(block);
    while (held.blocks[at] && held.blocks[at] != block)
        at = (at + 1) % BLOCKS_MAX;
    return at;
}

static void *note(void *block) {
    if (!block)
        return NULL;
    pthread_mutex_lock(&held.lock);
    held.blocks[find(block)] = block;
    if (++held.count > BLOCKS_MAX / 2)
        abort(); /* the library has never held as many */
    pthread_mutex_unlock(&held.lock);
    return block;
}

/* Blocks behind it may have been displaced: insert them again. */
static void forget(const void *block) {
    pthread_mutex_lock(&held.lock);
    uint32_t at = find(block);
    const void *moved = held.blocks[at];
    held.count -= moved != NULL;
    held.blocks[at] = NULL;
    while (moved && (moved = held.blocks[at = (at + 1) % BLOCKS_MAX]) != NULL) {
        held.blocks[at] = NULL;
        held.blocks[find(moved)] = moved;
    }
    pthread_mutex_unlock(&held.lock);
}

static void note_mapped(int64_t bytes) {
    pthread_mutex_lock(&held.lock);
    held.mapped_bytes += (uint64_t)bytes;
    pthread_mutex_unlock(&held.lock);
}

struct failing_held failing_held(void) {
    DIR *folder = opendir("/proc/self/fd");
    uint32_t descriptors = 0;
    while (folder && readdir(folder))
        descriptors++;
    if (folder)
        closedir(folder);
    pthread_mutex_lock(&held.lock);
    struct failing_held now = {
        .blocks = held.count, .mapped_bytes = held.mapped_bytes, .descriptors = descriptors};
    pthread_mutex_unlock(&held.lock);
    return now;
}

/* ---- allocations ---- */

/* WRAP(TYPE, NAME, (PARAMETERS)): declare the real function, and begin the wrapper. */
#define WRAP(type, name, parameters) \
    type __real_##name parameters;   \
    type __wrap_##name parameters;   \
    type __wrap_##name parameters

WRAP(void *, malloc, (size_t bytes)) {
    return fails(FAILING_ALLOCATION, ENOMEM) ? NULL : note(__real_malloc(bytes));
}

WRAP(void *, calloc, (size_t count, size_t bytes)) {
    return fails(FAILING_ALLOCATION, ENOMEM) ? NULL : note(__real_calloc(count, bytes));
}

WRAP(void *, aligned_alloc, (size_t alignment, size_t bytes)) {
    return fails(FAILING_ALLOCATION, ENOMEM) ? NULL : note(__real_aligned_alloc(alignment, bytes));
}

WRAP(char *, strdup, (const char *text)) {
    return fails(FAILING_ALLOCATION, ENOMEM) ? NULL : __real_strdup(text);
}

WRAP(void *, realloc, (void *block, size_t bytes)) {
    if (fails(FAILING_ALLOCATION, ENOMEM))
        return NULL;
    if (block)
        forget(block);
    return note(__real_realloc(block, bytes));
}

WRAP(void, free, (void *block)) {
    if (block)
        forget(block);
    __real_free(block);
}

/* ---- memory of the kernel ---- */

WRAP(void *, mmap64, (void *at, size_t bytes, int protection, int flags, int fd, off_t offset)) {
    if (fails(FAILING_MEMORY, ENOMEM))
        return MAP_FAILED;
    void *mapped = __real_mmap64(at, bytes, protection, flags, fd, offset);
    if (mapped != MAP_FAILED && !(flags & MAP_FIXED))
        note_mapped((int64_t)bytes);
    return mapped;
}

WRAP(int, munmap, (void *at, size_t bytes)) {
    int rc = __real_munmap(at, bytes);
    if (rc == 0)
        note_mapped(-(int64_t)bytes);
    return rc;
}

WRAP(int, fallocate64, (int fd, int mode, off_t offset, off_t bytes)) {
    return fails(FAILING_MEMORY, ENOSPC) ? -1 : __real_fallocate64(fd, mode, offset, bytes);
}

WRAP(int, ftruncate64, (int fd, off_t bytes)) {
    return fails(FAILING_MEMORY, ENOSPC) ? -1 : __real_ftruncate64(fd, bytes);
}

/* ---- threads and descriptors ---- */

WRAP(int, pthread_create,
     (pthread_t * ret_thread, const pthread_attr_t *attributes, void *(*run)(void *ctx), void *ctx)) {
    return fails(FAILING_THREAD, EAGAIN) ? EAGAIN : __real_pthread_create(ret_thread, attributes, run, ctx);
}

WRAP(int, memfd_create, (const char *name, unsigned flags)) {
    return fails(FAILING_DESCRIPTOR, EMFILE) ? -1 : __real_memfd_create(name, flags);
}

WRAP(int, socket, (int domain, int type, int protocol)) {
    return fails(FAILING_DESCRIPTOR, EMFILE) ? -1 : __real_socket(domain, type, protocol);
}

WRAP(int, eventfd, (unsigned value, int flags)) {
    return fails(FAILING_DESCRIPTOR, EMFILE) ? -1 : __real_eventfd(value, flags);
}

WRAP(int, epoll_create1, (int flags)) {
    return fails(FAILING_DESCRIPTOR, EMFILE) ? -1 : __real_epoll_create1(flags);
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails(FAILING_DESCRIPTOR, EMFILE) ? -1 : __real_open64(path, flags, mode);
}

int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...) {
    va_list more;
    va_start(more, command);
    long value = command == F_GETFL || command == F_GETFD || command == F_GET_SEALS ? 0 : va_arg(more, int);
    va_end(more);
    return command == F_DUPFD_CLOEXEC && fails(FAILING_DESCRIPTOR, EMFILE)
               ? -1
               : __real_fcntl64(fd, command, value);
}

/* ---- the fabric: its table, with some of the operations replaced ---- */

static const struct remo__fabric_ops *fabric;
static struct remo__fabric_ops replaced;

static int registration_fails(void) {
    errno = ENOMEM;
    return remo__fail(-ENOMEM, "cannot register memory: the test injects a failure");
}

static int network_fails(void) {
    return remo__fail(-ENOMEM, "cannot set up the network: the test injects a failure");
}

static int add_segment(struct remo__fabric *of, uint32_t index, uint64_t offset, uint64_t bytes, int fd,
                       void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    return fails(FAILING_REGISTRATION, ENOMEM)
               ? registration_fails()
               : fabric->add_segment(of, index, offset, bytes, fd, blob, blob_cap, ret_blob_bytes);
}

static int map_segment(struct remo__fabric *of, uint32_t peer, uint32_t index, uint64_t offset,
                       uint64_t bytes, const void *blob, size_t blob_bytes, int fd) {
    return fails(FAILING_REGISTRATION, ENOMEM)
               ? registration_fails()
               : fabric->map_segment(of, peer, index, offset, bytes, blob, blob_bytes, fd);
}

static int describe(struct remo__fabric *of, void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    return fails(FAILING_NETWORK, ENOMEM) ? network_fails()
                                          : fabric->describe(of, blob, blob_cap, ret_blob_bytes);
}

static int connect_peer(struct remo__fabric *of, uint32_t peer, const void *blob, size_t blob_bytes) {
    return fails(FAILING_NETWORK, ENOMEM) ? network_fails() : fabric->connect(of, peer, blob, blob_bytes);
}

static int endpoint_open(struct remo__fabric *of, struct remo__endpoint **ret_endpoint) {
    return fails(FAILING_NETWORK, ENOMEM) ? network_fails() : fabric->endpoint_open(of, ret_endpoint);
}

static pthread_mutex_t replace_lock = PTHREAD_MUTEX_INITIALIZER;

static int fabric_open(const struct remo__fabric_config *config, struct remo__fabric **ret_fabric) {
    int rc = fabric->open(config, ret_fabric);
    if (rc == 0)
        (*ret_fabric)->ops = &replaced;
    return rc;
}

static void replace(const struct remo__fabric_ops *found) {
    fabric = found;
    replaced = *found;
    replaced.open = fabric_open;
    replaced.add_segment = add_segment;
    replaced.map_segment = map_segment;
    replaced.describe = describe;
    replaced.connect = connect_peer;
    replaced.endpoint_open = endpoint_open;
}

/* A program has one fabric. */
WRAP(const struct remo__fabric_ops *, remo__fabric_find, (const char *name)) {
    const struct remo__fabric_ops *found = __real_remo__fabric_find(name);
    if (!found)
        return NULL;
    pthread_mutex_lock(&replace_lock);
    if (!fabric)
        replace(found);
    pthread_mutex_unlock(&replace_lock);
    return &replaced;
}

/* ---- libfabric: inline functions over tables; its own are replaced as they are made. A program
 * has one provider, whose tables are copied when the first node, the only one then, opens. ---- */

static struct fi_ops_fabric *fabric_ops, fabric_replaced;
static struct fi_ops_domain *domain_ops, domain_replaced;
static struct fi_ops_mr *mr_ops, mr_replaced;

static int mr_reg(struct fid *fid, const void *buffer, size_t bytes, uint64_t access, uint64_t offset,
                  uint64_t key, uint64_t flags, struct fid_mr **ret_mr, void *ctx) {
    return fails(FAILING_REGISTRATION, ENOMEM)
               ? -FI_ENOMEM
               : mr_ops->reg(fid, buffer, bytes, access, offset, key, flags, ret_mr, ctx);
}

static int endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ret_endpoint,
                    void *ctx) {
    return fails(FAILING_NETWORK, ENOMEM) ? -FI_ENOMEM
                                          : domain_ops->endpoint(domain, info, ret_endpoint, ctx);
}

static int cq_open(struct fid_domain *domain, struct fi_cq_attr *attributes, struct fid_cq **ret_cq,
                   void *ctx) {
    return fails(FAILING_NETWORK, ENOMEM) ? -FI_ENOMEM : domain_ops->cq_open(domain, attributes, ret_cq, ctx);
}

static int av_open(struct fid_domain *domain, struct fi_av_attr *attributes, struct fid_av **ret_av,
                   void *ctx) {
    return fails(FAILING_NETWORK, ENOMEM) ? -FI_ENOMEM : domain_ops->av_open(domain, attributes, ret_av, ctx);
}

static int domain_open(struct fid_fabric *of, struct fi_info *info, struct fid_domain **ret_domain,
                       void *ctx) {
    int rc = fails(FAILING_NETWORK, ENOMEM) ? -FI_ENOMEM : fabric_ops->domain(of, info, ret_domain, ctx);
    if (rc != 0)
        return rc;
    if (!mr_ops) {
        mr_ops = (*ret_domain)->mr;
        mr_replaced = *mr_ops;
        mr_replaced.reg = mr_reg;
        domain_ops = (*ret_domain)->ops;
        domain_replaced = *domain_ops;
        domain_replaced.endpoint = endpoint;
        domain_replaced.cq_open = cq_open;
        domain_replaced.av_open = av_open;
    }
    (*ret_domain)->mr = &mr_replaced;
    (*ret_domain)->ops = &domain_replaced;
    return 0;
}

WRAP(int, remo__fi_fabric, (struct fi_fabric_attr * attributes, struct fid_fabric **ret_fabric, void *ctx)) {
    int rc =
        fails(FAILING_NETWORK, ENOMEM) ? -FI_ENOMEM : __real_remo__fi_fabric(attributes, ret_fabric, ctx);
    if (rc != 0)
        return rc;
    if (!fabric_ops) {
        fabric_ops = (*ret_fabric)->ops;
        fabric_replaced = *fabric_ops;
        fabric_replaced.domain = domain_open;
    }
    (*ret_fabric)->ops = &fabric_replaced;
    return 0;
}
