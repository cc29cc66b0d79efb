/* launch_job.h - what the nodes of one launched job share: a name, a folder, a key, addresses and an
 * environment. */
#pragma once

#include <limits.h>

#include "bootstrap/hosts.h"
#include "cli/launch.h"

struct launch_place { /* where one node runs */
    bool remote;
    const struct remo__host *host; /* NULL: here, without a hosts file */
};

struct launch_job {
    uint32_t nodes;
    bool spread; /* over several hosts */
    char name[32];
    char folder[PATH_MAX]; /* the same path on every host */
    bool folder_made;
    uint8_t key[REMO__KEY_BYTES];
    struct remo__hosts hosts;
    struct launch_place *places; /* [nodes] */
    char *addresses;             /* REMO_ADDRESSES, or NULL: sockets in the folder */
};

/* Make folder and key file. Errors: those of launch_nodes. */
int launch_job_open(const struct launch_options *options, struct launch_job *ret_job);
/* Remove them. Also for a job that was zeroed, and half made. */
void launch_job_close(struct launch_job *job);

/* Variables for one node as "NAME=value", ended by NULL; launch_environment_free. On another host: only those
 * that Remo needs, and none that names the key file. NULL: no memory. */
char **launch_environment(const struct launch_job *job, const struct launch_options *options, uint32_t rank);
void launch_environment_free(char **environment);

/* For a node on another host: the words of the ssh command (free with launch_words_free), and what goes to
 * its standard input. */
char **launch_ssh_words(const struct launch_job *job, const struct launch_options *options, uint32_t rank);
char *launch_ssh_input(const struct launch_job *job, const struct launch_options *options, uint32_t rank);
void launch_words_free(char **words);
