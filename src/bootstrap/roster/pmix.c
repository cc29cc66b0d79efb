/* pmix.c - implements pmix.h: exchanges addresses, job name and key through PMIx.
 *
 * A rank listens before it publishes its address, so every published address accepts connections. The fence
 * between publishing and reading has a timeout of its own. */
#include "bootstrap/roster/pmix.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/address.h"
#include "bootstrap/boot_id.h"
#include "bootstrap/key.h"
#include "bootstrap/roster/pmix_library.h"

#define KEY_ADDRESS "remo.address" /* "<boot id> <address>" of each rank */
#define KEY_JOB "remo.job"         /* "<name> <key in hex>", from rank 0 */
#define WAIT_DEFAULT_NS (30 * REMO__NS_PER_S)

struct remo__pmix {
    pmix_proc_t self;
};

/* ---- keys and values ----------------------------------------------------------------------------------- */

static int pmix_fail(pmix_status_t status, const char *what) {
    return remo__fail(status == PMIX_ERR_TIMEOUT ? -ETIMEDOUT : -EPROTO,
                      "PMIx: %s: %s; start the program with mpirun or "
                      "srun --mpi=pmix, or use remo run",
                      what, PMIx_Error_string(status));
}

static void value_free(pmix_value_t *value) {
    PMIx_Value_destruct(value);
    free(value);
}

static int job_number(const struct remo__pmix *pmix, const char *key, uint32_t *ret_number) {
    pmix_proc_t all = pmix->self;
    pmix_value_t *value = NULL;
    all.rank = PMIX_RANK_WILDCARD;
    pmix_status_t status = PMIx_Get(&all, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS)
        return pmix_fail(status, key);
    bool number = value->type == PMIX_UINT32;
    if (number)
        *ret_number = value->data.uint32;
    value_free(value);
    return number ? 0 : pmix_fail(PMIX_ERR_TYPE_MISMATCH, key);
}

static int text_put(const char *key, char *text) {
    pmix_value_t value = {.type = PMIX_STRING, .data.string = text};
    pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key, &value);
    return status == PMIX_SUCCESS ? 0 : pmix_fail(status, "put");
}

static int text_get(const struct remo__pmix *pmix, uint32_t rank, const char *key, char *ret_text,
                    size_t cap) {
    pmix_proc_t proc = pmix->self;
    pmix_value_t *value = NULL;
    proc.rank = rank;
    pmix_status_t status = PMIx_Get(&proc, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS)
        return pmix_fail(status, key);
    bool fits = value->type == PMIX_STRING && value->data.string && strlen(value->data.string) < cap;
    if (fits)
        memcpy(ret_text, value->data.string, strlen(value->data.string) + 1);
    value_free(value);
    return fits ? 0 : pmix_fail(PMIX_ERR_TYPE_MISMATCH, key);
}

/* ---- a fence with a timeout ---------------------------------------------------------------------------- */

/* Shared by the waiter and PMIx's thread. The waiter may time out first, so the last user frees it. */
struct fence {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int users;
    bool done;
    pmix_status_t status;
};

static void fence_leave(struct fence *fence) {
    bool last = --fence->users == 0;
    pthread_mutex_unlock(&fence->lock);
    if (!last)
        return;
    pthread_cond_destroy(&fence->changed);
    pthread_mutex_destroy(&fence->lock);
    free(fence);
}

static void fence_done(pmix_status_t status, void *ctx) {
    struct fence *fence = ctx;
    pthread_mutex_lock(&fence->lock);
    fence->status = status;
    fence->done = true;
    pthread_cond_signal(&fence->changed);
    fence_leave(fence);
}

static struct fence *fence_new(void) {
    struct fence *fence = calloc(1, sizeof *fence);
    pthread_condattr_t attr;
    if (!fence)
        return NULL;
    fence->users = 2;
    pthread_mutex_init(&fence->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&fence->changed, &attr);
    pthread_condattr_destroy(&attr);
    return fence;
}

static int fence_wait(struct fence *fence, uint64_t timeout_ns) {
    uint64_t deadline = remo__deadline(timeout_ns);
    struct timespec until = {.tv_sec = (time_t)(deadline / REMO__NS_PER_S),
                             .tv_nsec = (long)(deadline % REMO__NS_PER_S)};
    int rc = 0;
    pthread_mutex_lock(&fence->lock);
    while (!fence->done && rc == 0)
        rc = pthread_cond_timedwait(&fence->changed, &fence->lock, &until);
    if (!fence->done)
        rc = remo__fail(-ETIMEDOUT, "PMIx: not every rank of the job opened its node within %.1f s",
                        (double)timeout_ns / (double)REMO__NS_PER_S);
    else
        rc = fence->status == PMIX_SUCCESS ? 0 : pmix_fail(fence->status, "fence");
    fence_leave(fence);
    return rc;
}

/* Exchange the published values of all ranks. Not every server honours a timeout of PMIx_Fence. */
static int fence_all(uint64_t timeout_ns) {
    struct fence *fence = fence_new();
    if (!fence)
        return remo__fail(-ENOMEM, "no memory for the PMIx fence");
    pmix_info_t collect;
    bool yes = true;
    PMIx_Info_load(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    pmix_status_t status = PMIx_Fence_nb(NULL, 0, &collect, 1, fence_done, fence);
    if (status == PMIX_OPERATION_SUCCEEDED)
        fence_done(PMIX_SUCCESS, fence);
    else if (status != PMIX_SUCCESS)
        fence_done(status, fence);
    int rc = fence_wait(fence, timeout_ns);
    PMIx_Value_destruct(&collect.value);
    return rc;
}

/* ---- this node's address ------------------------------------------------------------------------------- */

/* Append a form; omit it if it does not fit. */
static void form_add(char *address, const char *form) {
    size_t used = strlen(address), bytes = strlen(form) + (used > 0);
    if (used + bytes < REMO__ADDRESS_BYTES_MAX)
        sprintf(address + used, "%s%s", used > 0 ? "," : "", form);
}

/* An abstract name needs no folder, and the kernel removes it with the process. */
static int listen_unix(struct remo__roster *roster, char *address) {
    uint8_t name[16];
    char hex[2 * sizeof name + 1], form[64];
    struct remo__place places[REMO__PLACES_MAX];
    uint32_t count;
    randombytes_buf(name, sizeof name);
    snprintf(form, sizeof form, "unix:@remo-%s", sodium_bin2hex(hex, sizeof hex, name, sizeof name));
    int rc = remo__address_resolve(form, places, &count);
    if (rc == 0)
        rc = remo__place_listen(&places[0], false, &roster->listen_fd[0]);
    if (rc == 0)
        form_add(address, form);
    return rc;
}

/* Listen on any interface and any port, in both families if the kernel has them. */
static int listen_tcp_socket(int *ret_fd, uint16_t *ret_port) {
    struct sockaddr_in6 name6 = {.sin6_family = AF_INET6};
    struct sockaddr_in name4 = {.sin_family = AF_INET};
    int off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool bound = fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0
                 && bind(fd, (struct sockaddr *)&name6, sizeof name6) == 0;
    if (!bound) {
        if (fd >= 0)
            close(fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        bound = fd >= 0 && bind(fd, (struct sockaddr *)&name4, sizeof name4) == 0;
    }
    socklen_t bytes = sizeof name6;
    if (!bound || listen(fd, SOMAXCONN) != 0 || getsockname(fd, (struct sockaddr *)&name6, &bytes) != 0) {
        int rc = remo__fail(-errno, "cannot listen on TCP: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    *ret_fd = fd;
    *ret_port = ntohs(name6.sin6_port); /* at the same offset in both families */
    return 0;
}

static void interfaces_add(char *address, uint16_t port, int family) {
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0)
        return;
    for (struct ifaddrs *at = list; at; at = at->ifa_next) {
        char host[INET6_ADDRSTRLEN], form[INET6_ADDRSTRLEN + 16];
        if (!at->ifa_addr || at->ifa_addr->sa_family != family || !(at->ifa_flags & IFF_UP)
            || (at->ifa_flags & IFF_LOOPBACK))
            continue;
        const struct in6_addr *in6 = &((struct sockaddr_in6 *)at->ifa_addr)->sin6_addr;
        const void *in =
            family == AF_INET6 ? (const void *)in6 : &((struct sockaddr_in *)at->ifa_addr)->sin_addr;
        if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(in6))
            continue; /* valid on its own link only */
        inet_ntop(family, in, host, sizeof host);
        snprintf(form, sizeof form, family == AF_INET6 ? "tcp:[%s]:%u" : "tcp:%s:%u", host, port);
        form_add(address, form);
    }
    freeifaddrs(list);
}

static int listen_everywhere(const struct remo__pmix *pmix, struct remo__roster *roster, char *address) {
    uint32_t here = 0;
    int rc = listen_unix(roster, address);
    if (rc == 0)
        rc = job_number(pmix, PMIX_LOCAL_SIZE, &here);
    if (rc != 0 || here == roster->size)
        return rc; /* all ranks are on this machine: no TCP needed */
    uint16_t port = 0;
    rc = listen_tcp_socket(&roster->listen_fd[1], &port);
    if (rc == 0) {
        interfaces_add(address, port, AF_INET);
        interfaces_add(address, port, AF_INET6);
    }
    return rc;
}

/* ---- publishing and reading ---------------------------------------------------------------------------- */

static int publish(const struct remo__roster *roster, const char *address) {
    char text[REMO__BOOT_ID_TEXT_BYTES + 1 + REMO__ADDRESS_BYTES_MAX];
    char boot[REMO__BOOT_ID_TEXT_BYTES];
    remo__boot_id_text(boot);
    snprintf(text, sizeof text, "%s %s", boot, address);
    int rc = text_put(KEY_ADDRESS, text);
    if (rc == 0 && roster->rank == 0) {
        uint8_t key[REMO__KEY_BYTES];
        char hex[2 * REMO__KEY_BYTES + 1], job[REMO__JOB_BYTES_MAX + sizeof hex];
        randombytes_buf(key, sizeof key);
        remo__key_format(key, hex);
        snprintf(job, sizeof job, "mpi-%08x%08x %s", randombytes_random(), randombytes_random(), hex);
        rc = text_put(KEY_JOB, job);
        sodium_memzero(key, sizeof key);
        sodium_memzero(hex, sizeof hex);
        sodium_memzero(job, sizeof job);
    }
    pmix_status_t status = rc == 0 ? PMIx_Commit() : PMIX_SUCCESS;
    return status == PMIX_SUCCESS ? rc : pmix_fail(status, "commit");
}

static int job_read(const struct remo__pmix *pmix, struct remo__roster *roster) {
    char text[REMO__JOB_BYTES_MAX + 2 * REMO__KEY_BYTES + 2];
    int rc = text_get(pmix, 0, KEY_JOB, text, sizeof text);
    if (rc != 0)
        return rc;
    char *hex = strchr(text, ' ');
    if (!hex || hex - text >= REMO__JOB_BYTES_MAX
        || remo__key_parse(hex + 1, strlen(hex + 1), roster->key) != 0)
        return remo__fail(-EPROTO, "PMIx: rank 0 published no usable job name and key; run one version of "
                                   "Remo on all ranks");
    memcpy(roster->job, text, (size_t)(hex - text));
    roster->has_key = 1;
    sodium_memzero(text, sizeof text);
    return 0;
}

/* Omit the Unix socket of another machine: an attempt to connect would always fail. */
static int address_read(const struct remo__pmix *pmix, struct remo__roster *roster, uint32_t rank) {
    char text[REMO__BOOT_ID_TEXT_BYTES + 1 + REMO__ADDRESS_BYTES_MAX], boot[REMO__BOOT_ID_TEXT_BYTES];
    int rc = text_get(pmix, rank, KEY_ADDRESS, text, sizeof text);
    if (rc != 0)
        return rc;
    remo__boot_id_text(boot);
    char *address = strchr(text, ' ');
    if (!address)
        return remo__fail(-EPROTO,
                          "PMIx: rank %u published no usable address; run one version of Remo on "
                          "all ranks",
                          rank);
    *address++ = '\0';
    char *tcp = strstr(address, "tcp:");
    if (strcmp(text, boot) != 0 && tcp)
        address = tcp;
    rc = remo__address_check(address);
    if (rc != 0)
        return remo__fail_more(rc, "PMIx: the address of rank %u", rank);
    memcpy(roster->addresses[rank], address, strlen(address) + 1);
    return 0;
}

/* ---- joining ------------------------------------------------------------------------------------------- */

int remo__pmix_open(struct remo__pmix **ret_pmix, uint32_t *ret_rank, uint32_t *ret_size) {
    uint32_t size = 0;
    int rc = remo__pmix_library_load();
    if (rc != 0)
        return rc;
    struct remo__pmix *pmix = calloc(1, sizeof *pmix);
    if (!pmix)
        return remo__fail(-ENOMEM, "no memory for PMIx");
    pmix_status_t status = PMIx_Init(&pmix->self, NULL, 0);
    if (status != PMIX_SUCCESS) {
        free(pmix);
        return pmix_fail(status, "init");
    }
    rc = job_number(pmix, PMIX_JOB_SIZE, &size);
    if (rc != 0) {
        remo__pmix_close(pmix);
        return rc;
    }
    *ret_pmix = pmix;
    *ret_rank = pmix->self.rank;
    *ret_size = size;
    return 0;
}

int remo__pmix_exchange(struct remo__pmix *pmix, struct remo__roster *roster, uint64_t timeout_ns) {
    char address[REMO__ADDRESS_BYTES_MAX] = "";
    int rc = listen_everywhere(pmix, roster, address);
    if (rc == 0)
        rc = publish(roster, address);
    if (rc == 0)
        rc = fence_all(timeout_ns ? timeout_ns : WAIT_DEFAULT_NS);
    if (rc == 0)
        rc = job_read(pmix, roster);
    for (uint32_t i = 0; rc == 0 && i < roster->size; i++)
        rc = address_read(pmix, roster, i);
    return rc;
}

void remo__pmix_close(struct remo__pmix *pmix) {
    PMIx_Finalize(NULL, 0);
    free(pmix);
}
