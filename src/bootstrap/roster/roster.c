/* roster.c - builds the roster of roster.h from the first source that is present.
 *
 * The order is: the program's addresses or hosts file, the environment of `remo run`, PMIx, a job of one
 * node. A job whose addresses other machines can reach has a key or munge. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "bootstrap/address.h"
#include "bootstrap/roster/roster.h"
#include "bootstrap/roster/environment.h"
#include "bootstrap/roster/hosts.h"
#include "bootstrap/key.h"
#include "bootstrap/roster/pmix.h"

#define JOB_DEFAULT "remo"

/* ---- common to all sources ----------------------------------------------------------------------------- */

static int size_set(struct remo__roster *roster, uint32_t rank, uint32_t size) {
    if (size == 0 || size > REMO__NODES_MAX)
        return remo__fail(-EINVAL, "a job of %u nodes: from 1 to %u are possible", size, REMO__NODES_MAX);
    if (rank >= size)
        return remo__fail(-EINVAL, "rank %u in a job of %u nodes: ranks go from 0 to %u", rank, size,
                          size - 1);
    roster->addresses = calloc(size, sizeof *roster->addresses);
    if (!roster->addresses)
        return remo__fail(-ENOMEM, "no memory for the addresses of %u nodes", size);
    roster->rank = rank;
    roster->size = size;
    return 0;
}

/* The job name becomes part of file names, so its characters are restricted. */
static int job_set(struct remo__roster *roster, const char *job) {
    if (job[0] == '\0' || strlen(job) >= REMO__JOB_BYTES_MAX)
        return remo__fail(-EINVAL, "the job name \"%s\" has %zu bytes; from 1 to %u are possible", job,
                          strlen(job), REMO__JOB_BYTES_MAX - 1);
    for (const char *at = job; *at; at++) {
        if (!isalnum((unsigned char)*at) && !strchr("._-", *at))
            return remo__fail(-EINVAL,
                              "the job name \"%s\" may contain letters, digits, '.', '_' and '-' only", job);
    }
    memcpy(roster->job, job, strlen(job) + 1);
    return 0;
}

static int address_set(struct remo__roster *roster, uint32_t rank, const char *address) {
    int rc = remo__address_check(address);
    if (rc != 0)
        return remo__fail_more(rc, "the address of rank %u", rank);
    memcpy(roster->addresses[rank], address, strlen(address) + 1);
    return 0;
}

static int addresses_check_unique(const struct remo__roster *roster) {
    for (uint32_t i = 1; i < roster->size; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(roster->addresses[i], roster->addresses[j]) == 0)
                return remo__fail(-EINVAL,
                                  "ranks %u and %u have the same address %s; each needs its own port or path",
                                  j, i, roster->addresses[i]);
        }
    }
    return 0;
}

/* Two runs of one program may overlap, so the launcher's unique name is kept after the program's name. */
static int job_set_launched(struct remo__roster *roster, const char *program, const char *launcher) {
    char both[2 * REMO__JOB_BYTES_MAX];
    if (!program)
        return job_set(roster, launcher);
    snprintf(both, sizeof both, "%s.%s", program, launcher);
    return job_set(roster, both);
}

/* ---- from the program ---------------------------------------------------------------------------------- */

static int from_addresses(const struct remo__bootstrap_config *config, struct remo__roster *roster) {
    int rc = size_set(roster, config->rank, config->size);
    for (uint32_t i = 0; rc == 0 && i < config->size; i++) {
        if (config->addresses[i])
            rc = address_set(roster, i, config->addresses[i]);
        else
            rc = remo__fail(-EINVAL,
                            "the address of rank %u is missing: the list must have one for each of %u nodes",
                            i, config->size);
    }
    return rc == 0 ? job_set(roster, config->job ? config->job : JOB_DEFAULT) : rc;
}

static int from_hosts_file(const struct remo__bootstrap_config *config, struct remo__roster *roster) {
    struct remo__hosts hosts;
    int rc = remo__hosts_read(config->hosts_file, &hosts);
    if (rc != 0)
        return rc;
    if (config->size != 0 && config->size != hosts.count)
        rc = remo__fail(-EINVAL, "%s lists %u nodes, but the program gives %u", config->hosts_file,
                        hosts.count, config->size);
    else if (config->rank >= hosts.count)
        rc = remo__fail(-EINVAL, "%s lists %u nodes, but this is rank %u", config->hosts_file, hosts.count,
                        config->rank);
    else
        rc = size_set(roster, config->rank, hosts.count);
    for (uint32_t i = 0; rc == 0 && i < hosts.count; i++) {
        char address[REMO__ADDRESS_BYTES_MAX];
        remo__host_address(&hosts.entries[i], address);
        rc = address_set(roster, i, address);
    }
    free(hosts.entries);
    return rc == 0 ? job_set(roster, config->job ? config->job : JOB_DEFAULT) : rc;
}

/* ---- from the environment of `remo run`, and from PMIx ------------------------------------------------- */

static int env_number(const char *name, uint32_t max, uint32_t *ret_number) {
    const char *text = getenv(name);
    char *end;
    if (!text)
        return remo__fail(-EINVAL, "%s is missing: set both %s and %s, or start the program with: remo run",
                          name, REMO__ENV_RANK, REMO__ENV_SIZE);
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || number > max)
        return remo__fail(-EINVAL, "%s=\"%s\" must be a number up to %u", name, text, max);
    *ret_number = (uint32_t)number;
    return 0;
}

static int env_address_list(struct remo__roster *roster, const char *list) {
    uint32_t rank = 0;
    for (const char *at = list; at; rank++) {
        char address[REMO__ADDRESS_BYTES_MAX + 1];
        size_t bytes = strcspn(at, ";");
        if (rank >= roster->size)
            return remo__fail(-EINVAL, "%s has more than %u addresses, the value of %s", REMO__ENV_ADDRESSES,
                              roster->size, REMO__ENV_SIZE);
        snprintf(address, sizeof address, "%.*s", bytes < sizeof address ? (int)bytes : (int)sizeof address,
                 at);
        int rc = address_set(roster, rank, address);
        if (rc != 0)
            return remo__fail_more(rc, "%s", REMO__ENV_ADDRESSES);
        at = at[bytes] ? at + bytes + 1 : NULL;
    }
    if (rank != roster->size)
        return remo__fail(-EINVAL, "%s has %u addresses, but %s is %u", REMO__ENV_ADDRESSES, rank,
                          REMO__ENV_SIZE, roster->size);
    return 0;
}

static int env_addresses(struct remo__roster *roster) {
    const char *list = getenv(REMO__ENV_ADDRESSES), *folder = getenv(REMO__ENV_JOB_DIR);
    if (folder && !(roster->job_dir = strdup(folder)))
        return remo__fail(-ENOMEM, "no memory for the name of the job's folder");
    if (list)
        return env_address_list(roster, list);
    if (!folder && roster->size == 1)
        return 0;
    if (!folder)
        return remo__fail(-EINVAL, "%s is %u, but neither %s nor %s is set; start the program with: remo run",
                          REMO__ENV_SIZE, roster->size, REMO__ENV_JOB_DIR, REMO__ENV_ADDRESSES);
    for (uint32_t i = 0; i < roster->size; i++) {
        char address[PATH_MAX];
        snprintf(address, sizeof address, "unix:%s/%u.sock", folder, i);
        int rc = address_set(roster, i, address);
        if (rc != 0)
            return remo__fail_more(rc, "%s", REMO__ENV_JOB_DIR);
    }
    return 0;
}

/* Values from the program must agree with those of the launcher, whose name in sentences is `launcher`. */
static int launched_set(struct remo__roster *roster, const struct remo__bootstrap_config *config,
                        uint32_t rank, uint32_t size, const char *launcher) {
    if (config->size != 0 && config->size != size)
        return remo__fail(-EINVAL, "the program gives %u nodes, but %s gives %u", config->size, launcher,
                          size);
    if (config->rank != 0 && config->rank != rank)
        return remo__fail(-EINVAL, "the program gives rank %u, but %s gives %u", config->rank, launcher,
                          rank);
    return size_set(roster, rank, size);
}

static int from_environment(const struct remo__bootstrap_config *config, struct remo__roster *roster) {
    uint32_t rank = 0, size = 0;
    const char *job = getenv(REMO__ENV_JOB);
    int rc = env_number(REMO__ENV_SIZE, REMO__NODES_MAX, &size);
    if (rc == 0)
        rc = env_number(REMO__ENV_RANK, REMO__NODES_MAX - 1, &rank);
    if (rc == 0)
        rc = launched_set(roster, config, rank, size, "its environment (remo run)");
    if (rc == 0)
        rc = env_addresses(roster);
    return rc == 0 ? job_set_launched(roster, config->job, job ? job : JOB_DEFAULT) : rc;
}

static int from_pmix(const struct remo__bootstrap_config *config, struct remo__roster *roster) {
    uint32_t rank = 0, size = 0;
    char job[REMO__JOB_BYTES_MAX];
    int rc = remo__pmix_open(&roster->pmix, &rank, &size);
    if (rc == 0)
        rc = launched_set(roster, config, rank, size, "PMIx (mpirun, srun)");
    if (rc == 0)
        rc = remo__pmix_exchange(roster->pmix, roster, config->timeout_ns);
    memcpy(job, roster->job, sizeof job);
    return rc == 0 ? job_set_launched(roster, config->job, job) : rc;
}

/* ---- a job of one node --------------------------------------------------------------------------------- */

static unsigned long tasks_in(const char *name) {
    const char *text = getenv(name);
    return text && isdigit((unsigned char)text[0]) ? strtoul(text, NULL, 10) : 0;
}

/* Fail if a launcher without PMIx started several tasks. Each task would otherwise become a job of one node,
 * and print plausible but wrong results. */
static int launcher_refuse(void) {
    static const char pmi[] = "a launcher that offers PMIx: mpirun of Open MPI, srun --mpi=pmix";
    static const char slurm[] = "srun --mpi=pmix";
    const struct {
        const char *variable, *remedy;
    } launchers[] = {{REMO__ENV_SLURM_STEP_TASKS, slurm},
                     {REMO__ENV_SLURM_TASKS, slurm},
                     {REMO__ENV_PMI_TASKS, pmi},
                     {REMO__ENV_OMPI_TASKS, pmi}};
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        bool is_step = launchers[i].remedy != slurm || getenv(REMO__ENV_SLURM_STEP);
        unsigned long tasks = is_step ? tasks_in(launchers[i].variable) : 0;
        if (tasks > 1)
            return remo__fail(-EINVAL,
                              "cannot join a job: %s shows %lu tasks, but their launcher offers no PMIx; "
                              "use %s, or remo run -n %lu; for a job of this node alone set %s=1 and %s=0",
                              launchers[i].variable, tasks, launchers[i].remedy, tasks, REMO__ENV_SIZE,
                              REMO__ENV_RANK);
    }
    return 0;
}

static int from_nothing(const struct remo__bootstrap_config *config, struct remo__roster *roster) {
    char job[REMO__JOB_BYTES_MAX];
    int rc = config->size == 0 && config->rank == 0 ? launcher_refuse() : 0;
    if (rc != 0)
        return rc;
    if (config->size > 1 || config->rank > 0)
        return remo__fail(-EINVAL,
                          "rank %u of %u nodes: the addresses of the nodes are missing; give addresses or a "
                          "hosts file, or start the program with: remo run -n %u -- PROGRAM",
                          config->rank, config->size, config->size > 1 ? config->size : config->rank + 1);
    snprintf(job, sizeof job, "alone-%x-%08x%08x", (unsigned)getpid(), randombytes_random(),
             randombytes_random());
    rc = size_set(roster, 0, 1);
    return rc == 0 ? job_set(roster, job) : rc;
}

/* ---- on one machine ------------------------------------------------------------------------------------ */

/* Only Unix sockets identify the user, report a failure at once and carry descriptors of shared memory. So
 * each address without a Unix socket gets an abstract one, whose name every node derives from job and
 * address. */
static void companion_add(struct remo__roster *roster, uint32_t rank) {
    crypto_generichash_state state;
    uint8_t name[16];
    char hex[2 * sizeof name + 1], tcp[REMO__ADDRESS_BYTES_MAX];
    memcpy(tcp, roster->addresses[rank], sizeof tcp);
    if (tcp[0] == '\0' || strstr(tcp, "unix:"))
        return;
    crypto_generichash_init(&state, NULL, 0, sizeof name);
    crypto_generichash_update(&state, (const uint8_t *)roster->job, strlen(roster->job) + 1);
    crypto_generichash_update(&state, (const uint8_t *)tcp, strlen(tcp));
    crypto_generichash_final(&state, name, sizeof name);
    sodium_bin2hex(hex, sizeof hex, name, sizeof name);
    char both[REMO__ADDRESS_BYTES_MAX + sizeof hex + 16];
    int bytes = snprintf(both, sizeof both, "unix:@remo-%s,%s", hex, tcp);
    if (bytes < (int)REMO__ADDRESS_BYTES_MAX)
        memcpy(roster->addresses[rank], both, (size_t)bytes + 1);
}

/* ---- the credential ------------------------------------------------------------------------------------ */

static bool leaves_machine(const struct remo__roster *roster, const char **ret_address) {
    for (uint32_t i = 0; i < roster->size; i++) {
        if (roster->addresses[i][0] != '\0' && !remo__address_is_local(roster->addresses[i])) {
            *ret_address = roster->addresses[i];
            return true;
        }
    }
    return false;
}

static bool has_tcp(const struct remo__roster *roster) {
    for (uint32_t i = 0; i < roster->size; i++) {
        if (remo__address_has_tcp(roster->addresses[i]))
            return true;
    }
    return false;
}

/* Use the key from PMIx, else the key file, else munge. Munge is slow, so a job without TCP does not use
 * it. */
static int credential_choose(const struct remo__bootstrap_config *config, struct remo__roster *roster) {
    const char *path = config->key_file ? config->key_file : getenv(REMO__ENV_KEY_FILE), *outside;
    if (path && !roster->has_key) {
        int rc = remo__key_read(path, roster->key);
        if (rc != 0)
            return rc;
        roster->has_key = 1;
    }
    if (roster->has_key || !has_tcp(roster))
        return 0;
    roster->use_munge = remo__munge_present();
    if (!roster->use_munge && leaves_machine(roster, &outside))
        return remo__fail(
            -EACCES,
            "%s can be reached from other machines, so the job needs a secret: give every node the same "
            "key file (%s), made with (umask 077; head -c 32 /dev/urandom > FILE), or run munge",
            outside, REMO__ENV_KEY_FILE);
    return 0;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static int roster_fill(const struct remo__bootstrap_config *config, struct remo__roster *roster) {
    int rc;
    if (config->addresses && config->hosts_file)
        return remo__fail(-EINVAL, "addresses and the hosts file %s are both given; give one of them",
                          config->hosts_file);
    if (config->addresses)
        rc = from_addresses(config, roster);
    else if (config->hosts_file)
        rc = from_hosts_file(config, roster);
    else if (getenv(REMO__ENV_SIZE) || getenv(REMO__ENV_RANK))
        rc = from_environment(config, roster);
    else if (getenv(REMO__ENV_PMIX_NAMESPACE) && getenv(REMO__ENV_PMIX_RANK))
        rc = from_pmix(config, roster);
    else
        rc = from_nothing(config, roster);
    if (rc == 0 && getenv(REMO__ENV_INCARNATION))
        rc = env_number(REMO__ENV_INCARNATION, UINT32_MAX, &roster->incarnation);
    if (rc == 0 && roster->size > 1)
        rc = addresses_check_unique(roster);
    if (rc == 0)
        rc = credential_choose(config, roster);
    for (uint32_t i = 0; rc == 0 && i < roster->size; i++)
        companion_add(roster, i);
    return rc;
}

int remo__roster_open(const struct remo__bootstrap_config *config, struct remo__roster **ret_roster) {
    if (sodium_init() < 0)
        return remo__fail(-ENOSYS, "cannot initialize libsodium: no source of random numbers on this system");
    struct remo__roster *roster = calloc(1, sizeof *roster);
    if (!roster)
        return remo__fail(-ENOMEM, "no memory for the roster");
    roster->listen_fd[0] = roster->listen_fd[1] = -1;
    int rc = roster_fill(config, roster);
    if (rc != 0) {
        remo__roster_close(roster);
        return rc;
    }
    remo__log(&config->log, REMO_LOG_INFO, "rank %u of %u in job %s, %s", roster->rank, roster->size,
              roster->job,
              roster->has_key     ? "with a key"
              : roster->use_munge ? "with munge"
                                  : "without a key");
    *ret_roster = roster;
    return 0;
}

void remo__roster_close(struct remo__roster *roster) {
    if (!roster)
        return;
    if (roster->pmix)
        remo__pmix_close(roster->pmix);
    for (int i = 0; i < 2; i++) {
        if (roster->listen_fd[i] >= 0)
            close(roster->listen_fd[i]);
    }
    sodium_memzero(roster->key, sizeof roster->key);
    free(roster->addresses);
    free(roster->job_dir);
    free(roster);
}
