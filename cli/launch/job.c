/* job.c - the common state of a job's nodes: hosts, addresses, environment, ssh command lines.
 * The key reaches other hosts only through ssh's standard input (launch.h). */
#include "cli/launch/job.h"

#include <errno.h>
#include <netdb.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "bootstrap/roster/environment.h"
#include "bootstrap/key.h"
#include "cli/launch/folder.h"

#define PORT_FIRST 20000u /* below the ports that kernels assign automatically */
#define PORTS 10000u

/* ---- hosts ---- */

/* Return whether the host is this machine: its address can be bound. */
static bool host_is_here(const char *host) {
    struct addrinfo *list, hints = {.ai_socktype = SOCK_DGRAM};
    if (getaddrinfo(host, NULL, &hints, &list) != 0)
        return false;
    bool here = false;
    for (struct addrinfo *at = list; at && !here; at = at->ai_next) {
        int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        here = fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0;
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(list);
    return here;
}

/* Return whether the host is a loopback address, without a resolver. */
static bool host_is_loopback(const char *host) {
    char address[REMO__ADDRESS_BYTES_MAX];
    struct remo__form form;
    snprintf(address, sizeof address, strchr(host, ':') ? "tcp:[%s]:1" : "tcp:%s:1", host);
    bool numeric = host[strspn(host, "0123456789.:")] == '\0' || strcmp(host, "localhost") == 0;
    return numeric && remo__form_parse(address, strlen(address), &form) == 0
           && remo__address_is_local(address);
}

static int places_set(const struct launch_options *options, struct launch_job *job) {
    for (uint32_t i = 0; i < job->nodes; i++) {
        const struct remo__host *host = &job->hosts.entries[i];
        if (host->host[0] == '\0')
            return remo__fail(-EINVAL, "%s:%u: to start nodes a host is needed: write host or host:port",
                              options->hosts_file, host->line);
        bool same = i > 0 && strcmp(host->host, job->hosts.entries[i - 1].host) == 0;
        job->places[i].host = host;
        job->places[i].remote =
            same ? job->places[i - 1].remote : !host_is_loopback(host->host) && !host_is_here(host->host);
        job->spread |= job->places[i].remote;
    }
    for (uint32_t i = 0; i < job->nodes && job->spread; i++) {
        if (host_is_loopback(job->hosts.entries[i].host))
            return remo__fail(-EINVAL, "%s:%u: the other hosts cannot reach %s; write this machine's name",
                              options->hosts_file, job->hosts.entries[i].line, job->hosts.entries[i].host);
    }
    return 0;
}

static int hosts_read(const struct launch_options *options, struct launch_job *job) {
    job->nodes = options->nodes ? options->nodes : 1;
    if (options->hosts_file) {
        int rc = remo__hosts_read(options->hosts_file, &job->hosts);
        if (rc != 0)
            return rc;
        job->nodes = options->nodes ? options->nodes : job->hosts.count;
        if (job->nodes > job->hosts.count)
            return remo__fail(-EINVAL, "cannot start %u nodes: %s has slots for %u; add hosts or slots=N",
                              job->nodes, options->hosts_file, job->hosts.count);
    }
    if (job->nodes > REMO__NODES_MAX)
        return remo__fail(-EINVAL, "cannot start %u nodes: a job has 1 to %u nodes; change -n", job->nodes,
                          REMO__NODES_MAX);
    job->places = calloc(job->nodes, sizeof *job->places);
    if (!job->places)
        return remo__fail(-ENOMEM, "no memory for %u nodes", job->nodes);
    return options->hosts_file ? places_set(options, job) : 0;
}

/* Local nodes of a spread job connect by Unix sockets, all others by TCP. */
static int addresses_make(struct launch_job *job) {
    size_t cap = job->nodes * (size_t)REMO__ADDRESS_BYTES_MAX, at = 0;
    uint32_t base = PORT_FIRST + randombytes_uniform(PORTS);
    if (!job->spread)
        return 0;
    job->addresses = malloc(cap);
    if (!job->addresses)
        return remo__fail(-ENOMEM, "no memory for %u addresses", job->nodes);
    for (uint32_t i = 0; i < job->nodes; i++) {
        const struct remo__host *host = job->places[i].host;
        bool bracketed = strchr(host->host, ':');
        at += (size_t)snprintf(job->addresses + at, cap - at,
                               bracketed ? "%sunix:%s/%u.sock,tcp:[%s]:%u" : "%sunix:%s/%u.sock,tcp:%s:%u",
                               i > 0 ? ";" : "", job->folder, i, host->host,
                               host->port ? host->port : base + i);
    }
    return 0;
}

/* ---- opening and closing ---- */

int launch_job_open(const struct launch_options *options, struct launch_job *ret_job) {
    struct launch_job job = {.lock_fd = -1};
    if (sodium_init() < 0)
        return remo__fail(-ENOSYS, "libsodium finds no source of random numbers on this system");
    int rc = hosts_read(options, &job);
    if (rc == 0)
        rc = launch_folder_open(&job);
    if (rc == 0)
        rc = addresses_make(&job);
    if (rc != 0) {
        launch_job_close(&job);
        return rc;
    }
    *ret_job = job;
    return 0;
}

void launch_job_close(struct launch_job *job) {
    launch_folder_close(job);
    sodium_memzero(job->key, sizeof job->key);
    free(job->hosts.entries);
    free(job->places);
    free(job->addresses);
    *job = (struct launch_job){.lock_fd = -1};
}

/* ---- environment ---- */

struct words {
    char **list;
    size_t count, cap;
    bool failed;
};

/* Takes `text`. */
static void words_take(struct words *words, char *text) {
    if (words->count + 2 > words->cap) {
        size_t cap = words->cap ? 2 * words->cap : 64;
        char **list = reallocarray(words->list, cap, sizeof *list);
        if (!list) {
            words->failed = true;
            free(text);
            return;
        }
        words->list = list;
        words->cap = cap;
    }
    words->failed |= !text;
    words->list[words->count++] = text;
    words->list[words->count] = NULL;
}

__attribute__((format(printf, 2, 3))) static void words_add(struct words *words, const char *format, ...) {
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    words_take(words, text);
}

void launch_words_free(char **words) {
    for (size_t i = 0; words && words[i]; i++)
        free(words[i]);
    free(words);
}

void launch_environment_free(char **environment) {
    launch_words_free(environment);
}

static char **words_finish(struct words *words) {
    if (!words->failed)
        return words->list;
    launch_words_free(words->list);
    return NULL;
}

bool launch_environment_is_ours(const char *variable) {
    static const char *const names[] = {REMO__ENV_RANK,       REMO__ENV_SIZE,      REMO__ENV_JOB,
                                        REMO__ENV_JOB_DIR,    REMO__ENV_ADDRESSES, REMO__ENV_KEY_FILE,
                                        REMO__ENV_INCARNATION};
    size_t bytes = strcspn(variable, "=");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) == bytes && strncmp(variable, names[i], bytes) == 0)
            return true;
    }
    return false;
}

static bool is_set(const struct words *words, const char *name) {
    size_t bytes = strlen(name);
    for (size_t i = 0; i < words->count; i++) {
        if (words->list[i] && strncmp(words->list[i], name, bytes) == 0 && words->list[i][bytes] == '=')
            return true;
    }
    return false;
}

static void words_drop(struct words *words, const char *variable) {
    size_t bytes = strcspn(variable, "="), kept = 0;
    for (size_t i = 0; i < words->count; i++) {
        bool same =
            words->list[i] && strncmp(words->list[i], variable, bytes) == 0 && words->list[i][bytes] == '=';
        if (same)
            free(words->list[i]);
        else
            words->list[kept++] = words->list[i];
    }
    words->count = kept;
}

static void words_set(struct words *words, const char *variable) {
    words_drop(words, variable);
    words_add(words, "%s", variable);
}

char **launch_environment(const struct launch_job *job, const struct launch_options *options, uint32_t rank) {
    extern char **environ;
    struct words words = {0};
    bool remote = job->places[rank].remote;
    for (char **at = environ; *at; at++) {
        if (!launch_environment_is_ours(*at) && (!remote || strncmp(*at, "REMO_", 5) == 0))
            words_add(&words, "%s", *at);
    }
    for (const char *const *at = options->environment; at && *at; at++)
        words_set(&words, *at);
    if (options->fabric) {
        words_drop(&words, "REMO_FABRIC=");
        words_add(&words, "REMO_FABRIC=%s", options->fabric);
    }
    words_add(&words, REMO__ENV_RANK "=%u", rank);
    words_add(&words, REMO__ENV_SIZE "=%u", job->nodes);
    words_add(&words, REMO__ENV_JOB "=%s", job->name);
    words_add(&words, REMO__ENV_JOB_DIR "=%s", job->folder);
    if (job->addresses)
        words_add(&words, REMO__ENV_ADDRESSES "=%s", job->addresses);
    if (job->spread && !is_set(&words, "REMO_BIND"))
        words_add(&words, "REMO_BIND=%s", job->places[rank].host->host);
    if (!remote)
        words_add(&words, REMO__ENV_KEY_FILE "=%s/key", job->folder);
    return words_finish(&words);
}

/* ---- other hosts ---- */

/* The script of a node on another host, for any POSIX shell. $1 is the job's folder, $2 the working folder;
 * then follow program and arguments. Standard input carries the key, the environment and an empty line, then
 * the records of ended nodes. It stays open while the launcher runs; its end ends the node with its process
 * group (setsid): SIGTERM, then SIGKILL after 2 s. The loop that sends both ignores SIGTERM from then on: the
 * shell stops the loop when the node has ended, but children of the node may still run. A builtin of the
 * shell writes the key, so no other process sees it. */
static const char remote_script[] =
    "umask 077; folder=$1; cd \"$2\" || exit 126; shift 2; "
    "mkdir -m 700 \"$folder\" 2>/dev/null || { [ -O \"$folder\" ] && [ ! -L \"$folder\" ]; } || "
    "{ echo \"remo run: $folder is not ours\" >&2; exit 126; }; "
    "IFS= read -r key; printf '%s\\n' \"$key\" > \"$folder/key.$$\"; key=; "
    "while IFS= read -r line && [ -n \"$line\" ]; do export \"$line\"; done; "
    "REMO_KEY_FILE=$folder/key.$$; export REMO_KEY_FILE; "
    "group=; if command -v setsid >/dev/null; then set -- setsid \"$@\"; group=-; fi; "
    "exec 3<&0; \"$@\" </dev/null 3<&- & node=$!; "
    "{ while IFS= read -r line <&3; do printf '%s\\n' \"$line\" >> \"$folder/$REMO_RANK.ended\"; done; "
    "trap '' TERM; kill -s TERM -- $group$node; sleep 2; kill -s KILL -- $group$node; } >/dev/null 2>&1 & "
    "watch=$!; wait $node; status=$?; kill $watch 2>/dev/null; "
    "rm -f \"$folder/key.$$\" \"$folder/$REMO_RANK.sock\" \"$folder/$REMO_RANK.ended\"; "
    "rmdir \"$folder\" 2>/dev/null; exit $status";

/* Quote a text for a shell: 'text', with ' written as '\''. */
static char *quote(const char *text) {
    size_t quotes = 0;
    for (const char *at = text; *at; at++)
        quotes += *at == '\'';
    char *quoted = malloc(strlen(text) + 3 * quotes + 3), *to = quoted;
    if (!quoted)
        return NULL;
    *to++ = '\'';
    for (const char *at = text; *at; at++) {
        if (*at == '\'')
            to = stpcpy(to, "'\\''");
        else
            *to++ = *at;
    }
    strcpy(to, "'");
    return quoted;
}

static void words_add_quoted(struct words *words, const char *text) {
    words_take(words, quote(text));
}

char **launch_ssh_words(const struct launch_job *job, const struct launch_options *options, uint32_t rank) {
    const char *ssh = getenv("REMO_SSH");
    char folder[PATH_MAX];
    struct words words = {0};
    words_add(&words, "%s", ssh && ssh[0] ? ssh : "ssh");
    words_add(&words, "-oBatchMode=yes");
    words_add(&words, "-T");
    words_add(&words, "%s", job->places[rank].host->host);
    words_add(&words, "exec sh -c");
    words_add_quoted(&words, remote_script);
    words_add(&words, "remo");
    words_add_quoted(&words, job->folder);
    words_add_quoted(&words, getcwd(folder, sizeof folder) ? folder : "/");
    for (char *const *at = options->argv; *at; at++)
        words_add_quoted(&words, *at);
    return words_finish(&words);
}

char *launch_ssh_input(const struct launch_job *job, const struct launch_options *options, uint32_t rank) {
    char hex[2 * REMO__KEY_BYTES + 1], *text = NULL;
    size_t bytes = 0;
    char **environment = launch_environment(job, options, rank);
    FILE *stream = environment ? open_memstream(&text, &bytes) : NULL;
    if (!stream) {
        launch_environment_free(environment);
        return NULL;
    }
    remo__key_format(job->key, hex);
    fprintf(stream, "%s\n", hex);
    for (char **at = environment; *at; at++) {
        if (!strchr(*at, '\n'))
            fprintf(stream, "%s\n", *at);
    }
    fprintf(stream, "\n");
    sodium_memzero(hex, sizeof hex);
    launch_environment_free(environment);
    if (fclose(stream) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
