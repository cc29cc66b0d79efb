/* test_little_memory.c - tests of a full or small file system for memory: the result is -ENOSPC with a
 * sentence, never SIGBUS, and existing objects continue to work. The tests mount a tmpfs in a mount
 * namespace; without permission they are skipped. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "../../support/cluster.h"
#include "../../support/job.h"

#define MIB (1ull << 20)

/* Mount a new folder of the given size; 77 if it is not permitted. */
static int make_memory(char *folder, const char *size) {
    strcpy(folder, "/tmp/remo-memory-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0
        || mount("tmpfs", folder, "tmpfs", 0, size) != 0) {
        perror("skipped: mounting a tmpfs");
        rmdir(folder);
        return 77;
    }
    return 0;
}

static void drop_memory(const char *folder) {
    umount2(folder, MNT_DETACH);
    rmdir(folder);
}

/* The first segment does not fit. */
static int tiny(struct remo_node *node, void *ctx) {
    struct remo_node *none = NULL;
    struct job job;
    char folder[32];
    int rc = make_memory(folder, "size=1m");
    (void)ctx;
    if (rc != 0)
        return rc;
    CHECK_OK(job_make(&job, 1));
    setenv("REMO_MEMORY_DIR", folder, 1);
    CHECK_SENTENCE(job_open(&job, 0, remo_node_fabric(node), NULL, &none), -ENOSPC, folder);
    CHECK(strstr(remo_last_error(), "enlarge it"));
    unsetenv("REMO_MEMORY_DIR");
    CHECK_OK(job_open(&job, 0, remo_node_fabric(node), NULL, &none));
    remo_node_close(none);
    job_remove(&job);
    drop_memory(folder);
    return 0;
}

static int use_region(struct remo_node *node, struct remo_region *region, uint64_t bytes,
                      unsigned char value) {
    unsigned char *data = malloc(bytes);
    memset(data, value, bytes);
    CHECK_OK(remo_region_write(region, 1 - remo_node_rank(node), 0, data, bytes, 0, NULL));
    CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
    memset(data, 0, bytes);
    CHECK_OK(remo_region_read(region, 1 - remo_node_rank(node), 0, data, bytes, NULL));
    for (uint64_t i = 0; i < bytes; i++)
        CHECK(data[i] == value);
    free(data);
    return 0;
}

/* Open a region. Memory of a closed one is reused when the peer has reported that it closed it. */
static int open_when_possible(struct remo_node *node, const char *name, struct remo_region **ret_region) {
    int rc = -ENOSPC;
    for (uint32_t ms = 0; rc == -ENOSPC && ms < 100000; ms++) {
        rc = remo_region_open(remo_node_root(node), name, MIB, NULL, ret_region);
        if (rc == -ENOSPC)
            cluster_sleep_ms(1);
    }
    CHECK_OK(rc);
    return 0;
}

/* Two nodes share 24 MiB. They open regions until the memory is full, and a file takes the rest. They use all
 * regions, close them, and open new ones. */
static int fill(struct job_node *nodes, const char *folder) {
    struct remo_region *regions[2][32], *small[2];
    char name[16], path[64];
    uint32_t count[2] = {0};
    for (uint32_t i = 0; i < 2; i++) /* attaches this thread to each node */
        CHECK_OK(remo_fence(nodes[i].node, REMO_FENCE_THREAD, 0));
    for (uint32_t failed = 0, i = 0; failed < 2; i = 1 - i) {
        snprintf(name, sizeof name, "r%u", count[i]);
        int rc = remo_region_open(remo_node_root(nodes[i].node), name, MIB, NULL, &regions[i][count[i]]);
        failed = rc == 0 ? 0 : failed + 1;
        count[i] += rc == 0;
        if (rc == 0)
            continue;
        CHECK_CODE(rc, -ENOSPC);
        CHECK(strstr(remo_last_error(), folder) && strstr(remo_last_error(), name) && count[i] >= 1);
    }
    snprintf(path, sizeof path, "%s/filler", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    char block[4096] = {1};
    while (write(fd, block, sizeof block) > 0)
        continue;
    CHECK_EQUAL(errno, ENOSPC);
    for (uint32_t i = 0; i < 2; i++) /* small objects fit into existing segments */
        CHECK_OK(remo_region_open(remo_node_root(nodes[i].node), "small", 64, NULL, &small[i]));
    for (uint32_t i = 0; i < 2; i++)
        CHECK_OK(remo_channel_wait(remo_region_channel(small[i]), 100 * SECOND));
    CHECK_OK(remo_channel_wait(remo_region_channel(regions[0][0]), 100 * SECOND));
    CHECK_OK(remo_channel_wait(remo_region_channel(regions[1][0]), 100 * SECOND));
    for (uint32_t i = 0; i < 2; i++)
        if (use_region(nodes[i].node, regions[i][0], MIB, (unsigned char)(7 + i))
            || use_region(nodes[i].node, small[i], 64, 9))
            return 1;
    for (uint32_t i = 0; i < 2; i++)
        while (count[i] > 0)
            remo_region_close(regions[i][--count[i]]);
    for (uint32_t i = 0; i < 2; i++)
        if (open_when_possible(nodes[i].node, "again", &regions[i][0]))
            return 1;
    CHECK_OK(remo_channel_wait(remo_region_channel(regions[0][0]), 100 * SECOND));
    CHECK_OK(remo_channel_wait(remo_region_channel(regions[1][0]), 100 * SECOND));
    for (uint32_t i = 0; i < 2; i++)
        if (use_region(nodes[i].node, regions[i][0], MIB, 3))
            return 1;
    for (uint32_t i = 0; i < 2; i++) {
        remo_region_close(regions[i][0]);
        remo_region_close(small[i]);
    }
    close(fd);
    return 0;
}

static int full(struct remo_node *node, void *ctx) {
    struct remo_config options = {.segment_bytes = 2 * MIB};
    struct job_node nodes[2];
    struct job job;
    char folder[32];
    int rc = make_memory(folder, "size=24m");
    (void)ctx;
    if (rc != 0)
        return rc;
    CHECK_OK(job_make(&job, 2));
    options.memory_dir = folder;
    for (uint32_t i = 0; i < 2; i++)
        nodes[i] =
            (struct job_node){.job = &job, .rank = i, .fabric = remo_node_fabric(node), .options = &options};
    /* A mount namespace belongs to a thread and its children: open both nodes from this thread. */
    CHECK_OK(job_open_all(nodes, 2));
    rc = fill(nodes, folder);
    job_close_all(nodes, 2);
    job_remove(&job);
    drop_memory(folder);
    return rc;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {CLUSTER_TEST(tiny, 1), CLUSTER_TEST(full, 1), {0}};
    return cluster_main(argc, argv, tests, NULL);
}
