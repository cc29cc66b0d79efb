/* job.h - the common state of the nodes of a job: name, folder, key, addresses,
 * environment. */
#pragma once

#include <limits.h>

#include "bootstrap/roster/hosts.h"
#include "cli/launch/launch.h"

struct launch_place { /* the place of one node */
    bool remote;
    const struct remo__host *host; /* NULL: here, without a hosts file */
};

struct launch_job {
    uint32_t nodes;
    bool spread; /* over several hosts */
    char name[32];
    char folder[PATH_MAX]; /* the same path on every host */
    bool folder_made;
    int lock_fd; /* held while the folder is in use; -1: none */
    uint8_t key[REMO__KEY_BYTES];
    struct remo__hosts hosts;
    struct launch_place *places; /* [nodes] */
    char *addresses;             /* REMO_ADDRESSES; NULL: sockets in the folder */
};

/* Make the folder and the key file. Errors: those of launch_nodes. */
int launch_job_open(const struct launch_options *options, struct launch_job *ret_job);
/* Remove them. Also for a zeroed or half-opened job. */
void launch_job_close(struct launch_job *job);

/* Return the variables of one node as "NAME=value", ended by NULL; free with
 * launch_environment_free. On another host: only Remo's variables, without the key file. NULL: no
 * memory. */
char **launch_environment(const struct launch_job *job, const struct launch_options *options, uint32_t rank);
void launch_environment_free(char **environment);
/* Return whether the launcher sets this variable ("NAME" or "NAME=value") itself; an outer job's
 * value is dropped. */
bool launch_environment_is_ours(const char *variable);

/* Return the words of the ssh command for a node on another host (free with launch_words_free), and
 * the text for its standard input. */
char **launch_ssh_words(const struct launch_job *job, const struct launch_options *options, uint32_t rank);
char *launch_ssh_input(const struct launch_job *job, const struct launch_options *options, uint32_t rank);
void launch_words_free(char **words);
