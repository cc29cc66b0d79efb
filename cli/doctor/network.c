/* network.c - checks of fabrics, devices, launchers and credentials.
 * A fabric is checked by opening a node and moving a word. */
#include <dirent.h>
#include <errno.h>
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/roster/environment.h"
#include "bootstrap/key.h"
#include "cli/doctor/doctor.h"
#include "cli/programs.h"
#include "fabric/fabric.h"
#include "fabric/ofi/library.h"

#define PROBE_NS (5 * REMO__NS_PER_S)
#define PROBE_ARENA_BYTES (UINT64_C(1) << 30)

/* ---- fabrics: open each, and move a word ---- */

static int move_word(struct remo_node *node) {
    struct remo_region *region;
    uint64_t word = 42, back = 0;
    int rc = remo_region_open(remo_node_root(node), "doctor", sizeof word, NULL, &region);
    if (rc != 0)
        return rc;
    rc = remo_channel_wait(remo_region_channel(region), PROBE_NS);
    if (rc == 0)
        rc = remo_region_write(region, 0, 0, &word, sizeof word, 0, NULL);
    if (rc == 0)
        rc = remo_fence(node, REMO_FENCE_PAIR, 0);
    if (rc == 0)
        rc = remo_region_read(region, 0, 0, &back, sizeof back, NULL);
    if (rc == 0 && back != word)
        rc = remo__fail(-EIO, "a word that was written came back as another");
    remo_region_close(region);
    return rc;
}

/* Leave the job's environment: doctor is no member, even if a launcher started it. */
static void leave_job(void) {
    static const char *const names[] = {REMO__ENV_RANK, REMO__ENV_SIZE, REMO__ENV_PMIX_NAMESPACE,
                                        REMO__ENV_PMIX_RANK};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

int doctor_probe(const char *fabric, remo_log_fn log, void *log_ctx) {
    struct remo_config config = {.fabric = fabric,
                                 .join_timeout_ns = PROBE_NS,
                                 .op_timeout_ns = PROBE_NS,
                                 .arena_bytes = PROBE_ARENA_BYTES,
                                 .log = log,
                                 .log_ctx = log_ctx,
                                 .log_level = REMO_LOG_INFO};
    struct remo_node *node;
    leave_job();
    int rc = remo_node_open(&config, &node);
    if (rc != 0)
        return rc;
    rc = move_word(node);
    remo_node_close(node);
    return rc;
}

static void check_fabrics(struct doctor *doctor) {
    for (uint32_t i = 0; remo__fabric_at(i); i++) {
        const char *name = remo__fabric_at(i)->name;
        char subject[32];
        snprintf(subject, sizeof subject, "fabric %s", name);
        uint64_t start_ns = remo__now_ns();
        int rc = doctor_probe(name, NULL, NULL);
        double ms = (double)(remo__now_ns() - start_ns) / 1e6;
        if (rc == 0)
            doctor_say(doctor, DOCTOR_OK, subject, "",
                       "works: a node of one came up, wrote and read in %.0f ms", ms);
        else /* shm is needed by every job on this machine, the other fabrics only by some */
            doctor_say(doctor,
                       strcmp(name, "shm") == 0     ? DOCTOR_BAD
                       : strcmp(name, "verbs") == 0 ? DOCTOR_NOTE /* few machines have such a device */
                                                    : DOCTOR_CHANGE,
                       subject, "", "%s", remo_last_error());
    }
}

/* ---- libfabric and RDMA ---- */

static bool lists(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = strstr(list, name); at; at = strstr(at + 1, name))
        if ((at == list || at[-1] == ' ') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

static void check_providers(struct doctor *doctor) {
    struct fi_info *info = NULL;
    char list[256] = "";
    if (remo__ofi_library_load() != 0) {
        doctor_say(doctor, DOCTOR_CHANGE, "libfabric", "", "%s", remo_last_error());
        return;
    }
    uint32_t version = fi_version();
    int rc = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info);
    for (const struct fi_info *at = info; at; at = at->next) {
        const char *name = at->fabric_attr && at->fabric_attr->prov_name ? at->fabric_attr->prov_name : "";
        size_t used = strlen(list);
        if (name[0] && !lists(list, name))
            snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", name);
    }
    if (info)
        fi_freeinfo(info);
    if (rc != 0)
        doctor_say(doctor, DOCTOR_CHANGE, "libfabric", "apt-get install libfabric1",
                   "%u.%u finds no provider: %s", FI_MAJOR(version), FI_MINOR(version), fi_strerror(-rc));
    else
        doctor_say(doctor, DOCTOR_OK, "libfabric", "Another than tcp;ofi_rxm is chosen with REMO_PROVIDER",
                   "%u.%u: %s", FI_MAJOR(version), FI_MINOR(version), list);
}

static void check_rdma(struct doctor *doctor) {
    DIR *folder = opendir("/sys/class/infiniband");
    char list[256] = "";
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        size_t used = strlen(list);
        if (entry->d_name[0] != '.')
            snprintf(list + used, sizeof list - used, "%s%.60s", used ? ", " : "", entry->d_name);
    }
    if (folder)
        closedir(folder);
    if (list[0])
        doctor_say(doctor, DOCTOR_OK, "RDMA devices", "", "%s", list);
    else
        doctor_say(doctor, DOCTOR_NOTE, "RDMA devices", "",
                   "none: nodes of one machine use shared memory, those of several use TCP");
}

/* ---- launchers and credentials ---- */

static void check_launchers(struct doctor *doctor) {
    static const char *const commands[] = {"mpirun", "srun", "prterun"};
    char list[128] = "";
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        size_t used = strlen(list);
        if (cli_is_in_path(commands[i]))
            snprintf(list + used, sizeof list - used, ", %s", commands[i]);
    }
    doctor_say(doctor, DOCTOR_OK, "launchers", "", "remo run%s%s", list,
               list[0] ? " (with PMIx)" : "; mpirun and srun would work too");
    doctor_say(doctor, cli_is_in_path("ssh") ? DOCTOR_OK : DOCTOR_NOTE, "ssh",
               cli_is_in_path("ssh") ? "" : "apt-get install openssh-client", "%s",
               cli_is_in_path("ssh") ? "there, for remo run --hosts"
                                     : "not there: remo run --hosts needs it");
}

static void check_credentials(struct doctor *doctor) {
    uint8_t key[REMO__KEY_BYTES];
    const char *file = getenv("REMO_KEY_FILE");
    bool munge = remo__munge_present();
    doctor_say(
        doctor, munge ? DOCTOR_OK : DOCTOR_NOTE, "munge", "",
        munge ? "its daemon answers for the users of a cluster"
              : "no daemon: nodes on several machines need a key file (REMO_KEY_FILE), those of one need "
                "nothing");
    if (!file || !file[0])
        return;
    if (remo__key_read(file, key) == 0)
        doctor_say(doctor, DOCTOR_OK, "key file", "", "%s", file);
    else
        doctor_say(doctor, DOCTOR_BAD, "key file", "", "%s", remo_last_error());
    memset(key, 0, sizeof key);
}

void doctor_check_network(struct doctor *doctor) {
    check_fabrics(doctor);
    check_providers(doctor);
    check_rdma(doctor);
    check_launchers(doctor);
    check_credentials(doctor);
}
