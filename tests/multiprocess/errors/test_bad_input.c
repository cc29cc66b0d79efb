/* test_bad_input.c - bad input gets an error code and a sentence with the remedy, and the job continues.
 * Covered are names, types, sizes, ranges, fabrics, hosts files, credentials, ports, limits, counts of nodes,
 * and garbage on the control port. (Too little memory: test_little_memory.c.) */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../support/cluster.h"
#include "../../support/job.h"
#include "../../support/ports.h"

/* ---- one table of all objects ---- */

typedef int open_object(struct remo_channel *parent, const char *name, void **ret_object);

static int open_region(struct remo_channel *parent, const char *name, void **ret) {
    return remo_region_open(parent, name, 64, NULL, (struct remo_region **)ret);
}

static int open_owned_var(struct remo_channel *parent, const char *name, void **ret) {
    return remo_owned_var_open(parent, name, 64, NULL, (struct remo_owned_var **)ret);
}

static int open_atomic_var(struct remo_channel *parent, const char *name, void **ret) {
    return remo_atomic_var_open(parent, name, NULL, (struct remo_atomic_var **)ret);
}

static int open_sst(struct remo_channel *parent, const char *name, void **ret) {
    return remo_sst_open(parent, name, 64, NULL, (struct remo_sst **)ret);
}

static int open_barrier(struct remo_channel *parent, const char *name, void **ret) {
    return remo_barrier_open(parent, name, NULL, (struct remo_barrier **)ret);
}

static int open_lock(struct remo_channel *parent, const char *name, void **ret) {
    return remo_lock_open(parent, name, NULL, (struct remo_lock **)ret);
}

static int open_ringbuffer(struct remo_channel *parent, const char *name, void **ret) {
    return remo_ringbuffer_open(parent, name, NULL, (struct remo_ringbuffer **)ret);
}

static int open_queue(struct remo_channel *parent, const char *name, void **ret) {
    return remo_queue_open(parent, name, NULL, (struct remo_queue **)ret);
}

static int open_kv(struct remo_channel *parent, const char *name, void **ret) {
    return remo_kv_open(parent, name, NULL, (struct remo_kv **)ret);
}

static int open_heap(struct remo_channel *parent, const char *name, void **ret) {
    return remo_heap_open(parent, name, NULL, (struct remo_heap **)ret);
}

static int open_versioned(struct remo_channel *parent, const char *name, void **ret) {
    return remo_versioned_open(parent, name, NULL, (struct remo_versioned **)ret);
}

static void close_region(void *object) {
    remo_region_close(object);
}
static void close_owned_var(void *object) {
    remo_owned_var_close(object);
}
static void close_atomic_var(void *object) {
    remo_atomic_var_close(object);
}
static void close_sst(void *object) {
    remo_sst_close(object);
}
static void close_barrier(void *object) {
    remo_barrier_close(object);
}
static void close_lock(void *object) {
    remo_lock_close(object);
}
static void close_ringbuffer(void *object) {
    remo_ringbuffer_close(object);
}
static void close_queue(void *object) {
    remo_queue_close(object);
}
static void close_heap(void *object) {
    remo_heap_close(object);
}
static void close_kv(void *object) {
    remo_kv_close(object);
}
static void close_versioned(void *object) {
    remo_versioned_close(object);
}

static const struct kind {
    const char *name;
    open_object *open;
    void (*close)(void *object);
} kinds[] = {{"region", open_region, close_region},
             {"owned_var", open_owned_var, close_owned_var},
             {"atomic_var", open_atomic_var, close_atomic_var},
             {"sst", open_sst, close_sst},
             {"barrier", open_barrier, close_barrier},
             {"lock", open_lock, close_lock},
             {"ringbuffer", open_ringbuffer, close_ringbuffer},
             {"queue", open_queue, close_queue},
             {"heap", open_heap, close_heap},
             {"kv", open_kv, close_kv},
             {"versioned", open_versioned, close_versioned}};

#define KINDS (sizeof kinds / sizeof kinds[0])

/* Use the region after each error: it still works. */
static int check_still_works(struct remo_node *node, struct remo_region *region, uint64_t turn) {
    uint32_t other = (remo_node_rank(node) + 1) % remo_node_size(node);
    uint64_t found = 0;
    CHECK_OK(remo_region_write(region, other, 8, &turn, 8, 0, NULL));
    CHECK_OK(remo_region_read(region, other, 8, &found, 8, NULL));
    CHECK_EQUAL(found, turn);
    CHECK_EQUAL(remo_node_peer(node, other), REMO_PEER_UP);
    return 0;
}

static int open_steady(struct remo_node *node, struct remo_region **ret_region) {
    CHECK_OK(remo_region_open(remo_node_root(node), "steady", 64, NULL, ret_region));
    CHECK_OK(remo_channel_wait(remo_region_channel(*ret_region), 100 * SECOND));
    return 0;
}

static int bad_names_of(struct remo_channel *root, const struct kind *kind) {
    char long_name[80];
    void *object = NULL, *again = NULL;
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    CHECK_SENTENCE(kind->open(root, "", &object), -EINVAL, "empty; give 1 to");
    CHECK_SENTENCE(kind->open(root, long_name, &object), -ENAMETOOLONG, "at most 63 are allowed");
    CHECK_SENTENCE(kind->open(root, "a/b", &object), -EINVAL, "[A-Za-z0-9_-]");
    CHECK_SENTENCE(kind->open(root, "a b", &object), -EINVAL, "\"a b\"");
    CHECK_SENTENCE(kind->open(root, NULL, &object), -EINVAL, "name");
    CHECK(object == NULL);
    CHECK_OK(kind->open(root, "good", &object));
    for (size_t i = 0; i < KINDS; i++) /* open as the same kind, and as each other kind */
        CHECK_SENTENCE(kinds[i].open(root, "good", &again), -EEXIST, "good is open on this node");
    CHECK(again == NULL);
    kind->close(object);
    return 0;
}

static int names(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    (void)ctx;
    if (open_steady(node, &region))
        return 1;
    for (size_t i = 0; i < KINDS; i++) {
        if (bad_names_of(remo_node_root(node), &kinds[i]) || check_still_works(node, region, i))
            return fprintf(stderr, "with a %s\n", kinds[i].name), 1;
        CHECK_OK(cluster_meet()); /* so that the next kind does not connect to this one */
    }
    remo_region_close(region);
    return 0;
}

/* Each kind against the next one: both ends get -EPROTO, and a sentence with the channel and both types. */
static int types(struct remo_node *node, void *ctx) {
    uint32_t rank = remo_node_rank(node);
    struct remo_region *region;
    (void)ctx;
    if (open_steady(node, &region))
        return 1;
    for (size_t i = 0; i < KINDS; i++) {
        const struct kind *kind = &kinds[(i + rank) % KINDS];
        void *object;
        CHECK_OK(kind->open(remo_node_root(node), "odd", &object));
        CHECK_SENTENCE(remo_channel_wait(remo_node_root(node), 100 * SECOND), -EPROTO, "channel odd");
        CHECK(strstr(remo_last_error(), "on node 0") && strstr(remo_last_error(), "on node 1"));
        CHECK_OK(cluster_meet());
        kind->close(object);
        if (check_still_works(node, region, i))
            return 1;
        CHECK_OK(cluster_meet());
    }
    remo_region_close(region);
    return 0;
}

static int sizes(struct remo_node *node, void *ctx) {
    struct remo_region *region, *odd;
    uint32_t rank = remo_node_rank(node);
    struct remo_queue_options queue_options = {.slot_bytes = 56 + rank};
    struct remo_kv_options kv_options = {.key_bytes_max = 16 + rank};
    struct remo_queue *queue;
    struct remo_sst *sst;
    struct remo_kv *kv;
    (void)ctx;
    if (open_steady(node, &region))
        return 1;
    CHECK_OK(remo_region_open(remo_node_root(node), "odd", 4096u << rank, NULL, &odd));
    CHECK_SENTENCE(remo_channel_wait(remo_node_root(node), 100 * SECOND), -EPROTO, "channel odd.data");
    CHECK(strstr(remo_last_error(), "4096") && strstr(remo_last_error(), "8192"));
    CHECK_OK(cluster_meet());
    remo_region_close(odd);
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_sst_open(remo_node_root(node), "odd", 8 + 8 * rank, NULL, &sst));
    CHECK_SENTENCE(remo_channel_wait(remo_node_root(node), 100 * SECOND), -EPROTO, "channel odd");
    CHECK_OK(cluster_meet());
    remo_sst_close(sst);
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_queue_open(remo_node_root(node), "odd", &queue_options, &queue));
    CHECK_SENTENCE(remo_channel_wait(remo_node_root(node), 100 * SECOND), -EPROTO, "channel odd");
    CHECK_OK(cluster_meet());
    remo_queue_close(queue);
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_kv_open(remo_node_root(node), "odd", &kv_options, &kv));
    CHECK_SENTENCE(remo_channel_wait(remo_node_root(node), 100 * SECOND), -EPROTO, "channel odd");
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    if (check_still_works(node, region, 9))
        return 1;
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

static int ranges(struct remo_node *node, void *ctx) {
    struct remo_region *region;
    uint64_t word = 1;
    (void)ctx;
    if (open_steady(node, &region))
        return 1;
    static const struct {
        uint64_t offset;
        size_t size;
    } outside[] = {
        {64, 1},       {65, 0},        {57, 8}, {0, 65}, {1, 64}, {UINT64_MAX, 1}, {UINT64_MAX - 7, 8},
        {8, SIZE_MAX}, {1ull << 44, 8}};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        CHECK_SENTENCE(remo_region_read(region, 0, outside[i].offset, &word, outside[i].size, NULL), -EINVAL,
                       "64 bytes");
        CHECK_SENTENCE(remo_region_write(region, 1, outside[i].offset, &word, outside[i].size, 0, NULL),
                       -EINVAL, "64 bytes");
    }
    CHECK_SENTENCE(remo_region_read(region, 2, 0, &word, 8, NULL), -EINVAL, "node 2");
    CHECK_SENTENCE(remo_region_read(region, UINT32_MAX, 0, &word, 8, NULL), -EINVAL, "node 4294967295");
    CHECK_SENTENCE(remo_region_open(remo_node_root(node), "none", 0, NULL, &region), -EINVAL, "0 bytes");
    CHECK_SENTENCE(remo_region_open(remo_node_root(node), "huge", 1ull << 45, NULL, &region), -ENOSPC,
                   "arena_bytes");
    if (check_still_works(node, region, 3))
        return 1;
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- opening a node ---- */

/* Check that the configuration is refused with this code and these words, and that a good one is accepted. */
#define CHECK_OPEN(node, job, config, code, words)                                             \
    do {                                                                                       \
        struct remo_node *none_ = NULL;                                                        \
        CHECK_SENTENCE(job_open(job, 0, remo_node_fabric(node), config, &none_), code, words); \
        CHECK(none_ == NULL);                                                                  \
    } while (0)

static int opens_well(struct remo_node *node, const struct job *job) {
    struct remo_node *good;
    CHECK_OK(job_open(job, 0, remo_node_fabric(node), NULL, &good));
    remo_node_close(good);
    return 0;
}

static int configurations(struct remo_node *node, void *ctx) {
    const char *twice[] = {"unix:/tmp/a", "unix:/tmp/a"}, *nonsense[] = {"carrier pigeon"},
               *no_folder[] = {"unix:/no/such/folder/0", "unix:/tmp/b"},
               *far[] = {"tcp:192.0.2.1:7470", "tcp:192.0.2.2:7470"}, *missing[] = {"unix:/tmp/a", NULL};
    struct job job;
    (void)ctx;
    CHECK_OK(job_make(&job, 1));
    CHECK_OPEN(node, &job, (&(struct remo_config){.fabric = "pigeons"}), -EINVAL,
               "no fabric called \"pigeons\"");
    CHECK_OPEN(node, &job, (&(struct remo_config){.threads_max = 100000}), -EINVAL, "at most 256");
    CHECK_OPEN(node, &job, (&(struct remo_config){.arena_bytes = 1ull << 50}), -EINVAL, "arena_bytes");
    CHECK_OPEN(node, &job, (&(struct remo_config){.size = 300}), -EINVAL, "from 1 to 256");
    CHECK_OPEN(node, &job, (&(struct remo_config){.size = 2, .addresses = twice}), -EINVAL,
               "each needs its own");
    CHECK_OPEN(node, &job, (&(struct remo_config){.addresses = nonsense}), -EINVAL,
               "write unix:/path or tcp:host:port");
    CHECK_OPEN(node, &job, (&(struct remo_config){.size = 2, .addresses = missing}), -EINVAL,
               "rank 1 is missing");
    CHECK_OPEN(node, &job, (&(struct remo_config){.size = 2, .addresses = no_folder}), -ENOENT,
               "its folder does not exist; create it");
    CHECK_OPEN(node, &job, (&(struct remo_config){.size = 2, .addresses = far}), -EACCES, "key file");
    CHECK_OPEN(node, &job, (&(struct remo_config){.job = "a/b"}), -EINVAL, "job name");
    CHECK_OPEN(node, &job, (&(struct remo_config){.job = ""}), -EINVAL, "job name");
    CHECK_OPEN(node, &job, (&(struct remo_config){.hosts_file = "/etc/hosts"}), -EINVAL, "give one of them");
    CHECK_OPEN(node, &job, (&(struct remo_config){.memory_dir = "/no/such/folder"}), -ENOENT,
               "/no/such/folder");
    CHECK_OPEN(node, &job, (&(struct remo_config){.memory_dir = "/proc"}), -EINVAL, "choose /dev/shm");
    if (strcmp(remo_node_fabric(node), "ofi") == 0) {
        CHECK_OPEN(node, &job, (&(struct remo_config){.provider = "pigeons"}), -ENODEV, "pigeons");
        CHECK_OPEN(node, &job, (&(struct remo_config){.provider = "shm"}), -ENODEV, "use fabric shm");
        CHECK_OPEN(node, &job, (&(struct remo_config){.provider = "net;ofi_rxm"}), -ENODEV, "use tcp");
    }
    CHECK_SENTENCE(remo_node_open(NULL, NULL), -EINVAL, "ret_node");
    remo_node_close(NULL);
    setenv("REMO_FABRIC", "doves", 1);
    struct remo_node *none = NULL;
    CHECK_SENTENCE(remo_node_open(NULL, &none), -EINVAL, "doves");
    unsetenv("REMO_FABRIC");
    setenv("REMO_SIZE", "many", 1);
    CHECK_SENTENCE(remo_node_open(NULL, &none), -EINVAL, "REMO_SIZE=\"many\"");
    unsetenv("REMO_SIZE");
    if (opens_well(node, &job))
        return 1;
    job_remove(&job);
    return 0;
}

static int write_file(const char *folder, const char *name, const char *text, mode_t mode, char *ret_path) {
    snprintf(ret_path, JOB_FOLDER_BYTES + 16, "%s/%s", folder, name);
    int fd = open(ret_path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(fchmod(fd, mode) == 0);
    close(fd);
    return 0;
}

static int hosts_files(struct remo_node *node, void *ctx) {
    static const struct {
        const char *text, *words;
    } malformed[] = {{"", "lists no hosts"},
                     {"# a comment only\n", "lists no hosts"},
                     {"a:1\nb:2 slots=many\n", ":2: "},
                     {"a:1\nb:2\nc:0\n", ":3: "},
                     {"a:99999\n", "port"},
                     {"a:1 b:2\n", "slots=N"},
                     {"a:1 slots=0\n", "from 1 to 256"},
                     {"a:1 slots=300\n", "from 1 to 256"},
                     {"a:65535 slots=2\n", "beyond port"},
                     {"[::1\n", "']' is missing"},
                     {"unix:relative\n", "unix:/absolute/path"},
                     {"\x01\x02\x03\n", "host name"},
                     {"127.0.0.1:7001\n127.0.0.1:7001\n", "its own port"}};
    char path[JOB_FOLDER_BYTES + 16];
    struct remo_node *none = NULL;
    struct job job;
    (void)ctx;
    CHECK_OK(job_make(&job, 1));
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        if (write_file(job.folder, "hosts", malformed[i].text, 0600, path))
            return 1;
        struct remo_config config = {.fabric = remo_node_fabric(node), .hosts_file = path};
        CHECK_SENTENCE(remo_node_open(&config, &none), -EINVAL, malformed[i].words);
    }
    if (write_file(job.folder, "hosts", "localhost:7001\nlocalhost:7002\n", 0600, path))
        return 1;
    struct remo_config wrong_size = {.hosts_file = path, .size = 3},
                       wrong_rank = {.hosts_file = path, .rank = 2};
    CHECK_SENTENCE(remo_node_open(&wrong_size, &none), -EINVAL, "lists 2 nodes, but the program gives 3");
    CHECK_SENTENCE(remo_node_open(&wrong_rank, &none), -EINVAL, "this is rank 2");
    unlink(path);
    CHECK_SENTENCE(remo_node_open(&wrong_rank, &none), -ENOENT, "cannot read the hosts file");
    if (opens_well(node, &job))
        return 1;
    job_remove(&job);
    return 0;
}

/* ---- joining ---- */

/* Open two nodes by TCP, with these options each. Returns the number of nodes that failed to open. */
static int open_two(struct remo_node *node, struct job *job, struct job_node *nodes,
                    struct remo_config *options, uint32_t *ret_failed) {
    static char text[2][64];
    static const char *addresses[2] = {text[0], text[1]};
    for (uint32_t i = 0; i < 2; i++) {
        uint16_t port = port_reserve();
        CHECK(port != 0);
        snprintf(text[i], sizeof text[i], "tcp:127.0.0.1:%u", port);
        options[i].addresses = addresses;
        nodes[i] = (struct job_node){
            .job = job, .rank = i, .fabric = remo_node_fabric(node), .options = &options[i]};
    }
    *ret_failed = job_open_quietly(nodes, 2);
    return 0;
}

static int credentials(struct remo_node *node, void *ctx) {
    char good[JOB_FOLDER_BYTES + 16], other[sizeof good], open_to_all[sizeof good], short_one[sizeof good];
    struct job_node nodes[2];
    struct job job;
    uint32_t failed;
    (void)ctx;
    CHECK_OK(job_make(&job, 2));
    if (write_file(job.folder, "good", "0123456789abcdef0123456789abcdef", 0600, good)
        || write_file(job.folder, "other", "0123456789abcdef0123456789abcdeF", 0600, other)
        || write_file(job.folder, "open", "0123456789abcdef0123456789abcdef", 0644, open_to_all)
        || write_file(job.folder, "short", "too short", 0600, short_one))
        return 1;
    CHECK_OPEN(node, &job, (&(struct remo_config){.key_file = open_to_all}), -EACCES, "chmod 600");
    CHECK_OPEN(node, &job, (&(struct remo_config){.key_file = short_one}), -EINVAL, "key file");
    CHECK_OPEN(node, &job, (&(struct remo_config){.key_file = "/no/such/key"}), -ENOENT, "/no/such/key");
    const char *keys[][2] = {{good, other}, {good, NULL}};
    const char *words[] = {"credential is wrong", "give all nodes the same credential"};
    for (uint32_t i = 0; i < 2; i++) {
        struct remo_config options[2] = {{.key_file = keys[i][0]}, {.key_file = keys[i][1]}};
        if (open_two(node, &job, nodes, options, &failed))
            return 1;
        CHECK_EQUAL(failed, 2);
        for (uint32_t rank = 0; rank < 2; rank++) {
            CHECK_EQUAL(-nodes[rank].rc, EACCES);
            CHECK(strstr(nodes[rank].sentence, words[i]));
            CHECK(in_time(nodes[rank].took_ns, SECOND)); /* the timeout to join is 100 s */
        }
    }
    struct remo_config options[2] = {{.key_file = good}, {.key_file = good}};
    if (open_two(node, &job, nodes, options, &failed))
        return 1;
    CHECK_EQUAL(failed, 0);
    job_close_all(nodes, 2);
    unlink(good), unlink(other), unlink(open_to_all), unlink(short_one);
    job_remove(&job);
    return 0;
}

static int ports(struct remo_node *node, void *ctx) {
    char text[64], path[JOB_FOLDER_BYTES + 16], by_path[sizeof path + 8];
    const char *addresses[2] = {text, "unix:/tmp/nobody"}, *files[2] = {by_path, "unix:/tmp/nobody"};
    struct job job;
    (void)ctx;
    CHECK_OK(job_make(&job, 2));
    uint16_t port = port_reserve();
    struct sockaddr_in name = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(port != 0 && fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(bind(fd, (struct sockaddr *)&name, sizeof name) == 0 && listen(fd, 8) == 0);
    snprintf(text, sizeof text, "tcp:127.0.0.1:%u", port);
    CHECK_OPEN(node, &job, (&(struct remo_config){.addresses = addresses}), -EADDRINUSE,
               "another process uses it; stop that process, or choose");
    CHECK(strstr(remo_last_error(), text));
    close(fd);
    if (write_file(job.folder, "taken", "a file, no socket", 0600, path))
        return 1;
    snprintf(by_path, sizeof by_path, "unix:%s", path);
    CHECK_OPEN(node, &job, (&(struct remo_config){.addresses = files}), -EADDRINUSE, path);
    CHECK(access(path, F_OK) == 0); /* the file of another program is not removed */
    unlink(path);
    job_remove(&job);
    return 0;
}

/* Both nodes time out, and `count` of them with a sentence that contains `words`. A node reports what it has
 * detected before its timeout, so a busy machine gets more time. */
static int mismatch(struct job_node *nodes, struct remo_config *options, uint32_t count, const char *words) {
    bool found = false;
    for (uint64_t seconds = 1; seconds <= 64 && !found; seconds *= 2) {
        for (uint32_t i = 0; i < 2; i++)
            options[i].join_timeout_ns = seconds * SECOND;
        CHECK_EQUAL(job_open_quietly(nodes, 2), 2);
        found = true;
        for (uint32_t i = 2 - count; i < 2; i++)
            found = found && strstr(nodes[i].sentence, words);
        CHECK_EQUAL(-nodes[0].rc, ETIMEDOUT);
        CHECK_EQUAL(-nodes[1].rc, ETIMEDOUT);
    }
    CHECK(found);
    return 0;
}

/* Two nodes with different numbers of nodes, and two of different jobs. */
static int counts(struct remo_node *node, void *ctx) {
    struct remo_config options[2] = {{0}, {0}};
    struct job_node nodes[3];
    struct job two, three;
    (void)ctx;
    CHECK_OK(job_make(&two, 2));
    three = two;
    three.size = 3;
    nodes[0] =
        (struct job_node){.job = &two, .rank = 0, .fabric = remo_node_fabric(node), .options = &options[0]};
    nodes[1] =
        (struct job_node){.job = &three, .rank = 1, .fabric = remo_node_fabric(node), .options = &options[1]};
    options[0].job = options[1].job = strrchr(two.folder, '/') + 1;
    if (mismatch(nodes, options, 2, "disagree about the number of nodes; start all with the same list"))
        return 1;
    nodes[1].job = &two;
    options[1].job = "other";
    if (mismatch(nodes, options, 1, "different jobs"))
        return 1;
    options[1] = options[0] = (struct remo_config){.job = options[0].job};
    CHECK_OK(job_open_all(nodes, 2));
    job_close_all(nodes, 2);
    job_remove(&two);
    return 0;
}

/* ---- strangers ---- */

/* Connect and send garbage. Every second connection stays open: *ret_fd, otherwise -1. */
static int send_garbage(const char *address, uint32_t turn, int *ret_fd) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    unsigned char noise[5000];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)(i * turn * 31 + i / 7 + turn);
    name.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&name, sizeof name) == 0);
    if (turn % 3 == 0)
        (void)!send(fd, http, sizeof http - 1, MSG_NOSIGNAL);
    else if (turn % 3 == 1)
        (void)!send(fd, noise, sizeof noise, MSG_NOSIGNAL);
    *ret_fd = turn % 2 ? -1 : fd;
    if (turn % 2)
        close(fd);
    return 0;
}

static int garbage(struct remo_node *node, void *ctx) {
    enum { STRANGERS = 200 };
    struct remo_config options[2] = {{0}, {0}};
    struct remo_region *regions[2];
    struct job_node nodes[2];
    struct job job;
    uint32_t failed;
    int fds[STRANGERS];
    (void)ctx;
    CHECK_OK(job_make(&job, 2));
    if (open_two(node, &job, nodes, options, &failed))
        return 1;
    CHECK_EQUAL(failed, 0);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_OK(remo_region_open(remo_node_root(nodes[i].node), "steady", 64, NULL, &regions[i]));
    for (uint32_t i = 0; i < 2; i++)
        CHECK_OK(remo_channel_wait(remo_region_channel(regions[i]), 100 * SECOND));
    for (uint32_t i = 0; i < STRANGERS; i++) {
        if (send_garbage(options[0].addresses[i % 2], i, &fds[i])
            || check_still_works(nodes[i / 2 % 2].node, regions[i / 2 % 2], i))
            return 1;
    }
    struct remo_region *after[2]; /* the control streams still work */
    for (uint32_t i = 0; i < 2; i++)
        CHECK_OK(remo_region_open(remo_node_root(nodes[i].node), "after", 64, NULL, &after[i]));
    for (uint32_t i = 0; i < 2; i++)
        CHECK_OK(remo_channel_wait(remo_region_channel(after[i]), 100 * SECOND));
    for (uint32_t i = 0; i < STRANGERS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (uint32_t i = 0; i < 2; i++) {
        remo_region_close(after[i]);
        remo_region_close(regions[i]);
    }
    job_close_all(nodes, 2);
    job_remove(&job);
    return 0;
}

/* ---- limits ---- */

static int with_limit(struct remo_node *node, struct job *job, const struct remo_config *options,
                      int resource, rlim_t limit, int *ret_rc) {
    struct rlimit before, now;
    struct remo_node *limited = NULL;
    CHECK(getrlimit(resource, &before) == 0);
    now = (struct rlimit){.rlim_cur = limit, .rlim_max = before.rlim_max};
    CHECK(setrlimit(resource, &now) == 0);
    *ret_rc = job_open(job, 0, remo_node_fabric(node), options, &limited);
    CHECK(setrlimit(resource, &before) == 0);
    CHECK((*ret_rc == 0) == (limited != NULL));
    remo_node_close(limited);
    return 0;
}

/* Open the node with more and more descriptors, until it opens. */
static int limit_descriptors(struct remo_node *node, struct job *job, const struct remo_config *options) {
    int rc = 0, free_fd = dup(0), failures = 0;
    close(free_fd);
    for (int more = 0; more < 40; more++) {
        if (with_limit(node, job, options, RLIMIT_NOFILE, (rlim_t)(free_fd + more), &rc))
            return 1;
        if (rc == 0)
            break;
        failures++;
        CHECK(rc == -EMFILE
              || (rc == -EIO && strcmp(remo_node_fabric(node), "ofi") == 0)); /* from libfabric */
        CHECK(strstr(remo_last_error(), "ulimit -n"));
    }
    CHECK(failures >= 3);
    CHECK_OK(rc);
    return 0;
}

/* At a limit of descriptors, address space or locked memory, the error names the limit to raise, whichever
 * call fails, or the node opens. */
static int limits(struct remo_node *node, void *ctx) {
    const struct remo_config in_directory = {.memory_dir = "/dev/shm"};
    struct job job;
    int rc = 0;
    (void)ctx;
    CHECK_OK(job_make(&job, 1));
    CHECK(limit_descriptors(node, &job, NULL) == 0);
    CHECK(limit_descriptors(node, &job, &in_directory) == 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* the sanitizers need address space */
    if (with_limit(node, &job, NULL, RLIMIT_AS, 512u << 20, &rc))
        return 1;
    CHECK_CODE(rc, -ENOMEM);
    CHECK(strstr(remo_last_error(), "ulimit -v"));
#endif
    if (with_limit(node, &job, NULL, RLIMIT_MEMLOCK, 0, &rc))
        return 1;
    CHECK(rc == 0 || ((rc == -ENOMEM || rc == -EPERM) && strstr(remo_last_error(), "ulimit -l")));
    if (opens_well(node, &job))
        return 1;
    job_remove(&job);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(names, 2),       CLUSTER_TEST(types, 2),          CLUSTER_TEST(sizes, 2),
        CLUSTER_TEST(ranges, 2),      CLUSTER_TEST(configurations, 1), CLUSTER_TEST(hosts_files, 1),
        CLUSTER_TEST(credentials, 1), CLUSTER_TEST(ports, 1),          CLUSTER_TEST(counts, 1),
        CLUSTER_TEST(garbage, 1),     CLUSTER_TEST(limits, 1),         {0}};
    return cluster_main(argc, argv, tests, NULL);
}
