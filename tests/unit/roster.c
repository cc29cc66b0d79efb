/* roster.c - unit tests of the roster: hosts files, addresses, key files, the environment.
 * Each malformed input must yield -EINVAL, and a sentence that names the fault. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "bootstrap/address.h"
#include "bootstrap/roster/roster.h"
#include "bootstrap/roster/ended.h"
#include "bootstrap/roster/environment.h"
#include "bootstrap/roster/hosts.h"
#include "bootstrap/key.h"

#define assert_sentence(text) assert_non_null(strstr(remo_last_error(), text))

static char folder[] = "/tmp/remo-roster-XXXXXX";

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *file_of(const char *name, const void *data, size_t bytes, mode_t mode) {
    const char *path = path_of(name);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), bytes);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    return path;
}

static void environment_clear(void) {
    static const char *const names[] = {REMO__ENV_RANK,
                                        REMO__ENV_SIZE,
                                        REMO__ENV_JOB,
                                        REMO__ENV_JOB_DIR,
                                        REMO__ENV_ADDRESSES,
                                        REMO__ENV_KEY_FILE,
                                        REMO__ENV_INCARNATION,
                                        REMO__ENV_PMIX_NAMESPACE,
                                        REMO__ENV_PMIX_RANK,
                                        REMO__ENV_SLURM_STEP,
                                        REMO__ENV_SLURM_STEP_TASKS,
                                        REMO__ENV_SLURM_TASKS,
                                        REMO__ENV_PMI_TASKS,
                                        REMO__ENV_OMPI_TASKS};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

static int set_up(void **state) {
    (void)state;
    environment_clear();
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    static const char *const names[] = {"hosts", "key", "link"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(path_of(names[i]));
    return rmdir(folder);
}

static int open_with(const struct remo__bootstrap_config *config, struct remo__roster **ret_roster) {
    *ret_roster = NULL;
    return remo__roster_open(config, ret_roster);
}

static int fails(const struct remo__bootstrap_config *config) {
    struct remo__roster *roster;
    int rc = open_with(config, &roster);
    assert_null(roster);
    assert_true(rc < 0);
    return rc;
}

/* ---- hosts files --------------------------------------------------------------------------------------- */

static int hosts(const char *text, struct remo__hosts *ret_hosts) {
    return remo__hosts_parse("hosts", text, strlen(text), ret_hosts);
}

static void hosts_are_read(void **state) {
    (void)state;
    struct remo__hosts list;
    char address[REMO__ADDRESS_BYTES_MAX];
    assert_int_equal(hosts("# all\n\nn1:7000   # first\n\tn2:7100 "
                           "slots=3\r\ntcp:[fe80::1%eth0]:9\nunix:/a/b,tcp:n3:1\nn4",
                           &list),
                     0);
    assert_int_equal(list.count, 7);
    static const char *const expected[] = {"tcp:n1:7000", "tcp:n2:7100",          "tcp:n2:7101",
                                           "tcp:n2:7102", "tcp:[fe80::1%eth0]:9", "unix:/a/b,tcp:n3:1",
                                           "tcp:n4:7470"};
    for (uint32_t i = 0; i < list.count; i++) {
        remo__host_address(&list.entries[i], address);
        assert_string_equal(address, expected[i]);
        assert_int_equal(remo__address_check(address), 0);
    }
    assert_int_equal(list.entries[3].line, 4);
    assert_int_equal(list.entries[3].slot, 2);
    free(list.entries);
}

static void hosts_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"", "no hosts"},
        {"# nothing\n", "no hosts"},
        {"n1:7000\nn2:port\n", "hosts:2: "},
        {"n1:0", "hosts:1: "},
        {"n1:65536", "hosts:1: "},
        {"n1:7000 slots=0", "hosts:1: "},
        {"n1:7000 slots=257", "hosts:1: "},
        {"n1:7000 slots=2x", "hosts:1: "},
        {"n1:7000 slots=-1", "hosts:1: "},
        {"n1:7000 slot=2", "only slots=N"},
        {"n1:7000 slots=2 more", "unexpected"},
        {"n1:65535 slots=2", "beyond port"},
        {"\n\n-oProxyCommand=x\n", "hosts:3: "},
        {"n1;rm:7000", "hosts:1: "},
        {"[::1:7000", "hosts:1: "},
        {"unix:relative", "hosts:1: "},
        {"unix:/a slots=2", "needs host or host:port"},
        {"n1:1,n2:2", "hosts:1: "},
        {"n1 slots=200\nn2 slots=200", "more than 256"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct remo__hosts list;
        assert_int_equal(hosts(cases[i].text, &list), -EINVAL);
        assert_sentence(cases[i].sentence);
    }
    struct remo__hosts list;
    assert_int_equal(remo__hosts_parse("hosts", "n1\0n2", 5, &list), -EINVAL);
    assert_sentence("zero byte");
    char long_line[2000];
    memset(long_line, 'a', sizeof long_line);
    assert_int_equal(remo__hosts_parse("hosts", long_line, sizeof long_line, &list), -EINVAL);
    assert_sentence("hosts:1: ");
}

static void hosts_file_makes_a_roster(void **state) {
    (void)state;
    static const char text[] = "localhost:7001\n127.0.0.1:7002\n";
    const char *path = file_of("hosts", text, sizeof text - 1, 0644);
    struct remo__bootstrap_config config = {.rank = 1, .hosts_file = path};
    struct remo__roster *roster;
    assert_int_equal(open_with(&config, &roster), 0);
    assert_int_equal(roster->size, 2);
    assert_int_equal(roster->rank, 1);
    assert_non_null(strstr(roster->addresses[1], ",tcp:127.0.0.1:7002"));
    assert_int_equal(strncmp(roster->addresses[1], "unix:@", 6), 0); /* added automatically */
    assert_string_equal(roster->job, "remo");
    remo__roster_close(roster);
    config.size = 3;
    assert_int_equal(fails(&config), -EINVAL);
    assert_sentence("lists 2 nodes");
    config = (struct remo__bootstrap_config){.rank = 2, .hosts_file = path};
    assert_int_equal(fails(&config), -EINVAL);
    config.hosts_file = "/nonexistent/hosts";
    assert_int_equal(fails(&config), -ENOENT);
    assert_sentence("/nonexistent/hosts");
    config.hosts_file = "/dev/zero";
    assert_int_equal(fails(&config), -EINVAL);
}

/* ---- values from the program --------------------------------------------------------------------------- */

static void addresses_make_a_roster(void **state) {
    (void)state;
    const char *list[] = {"unix:/tmp/a", "unix:@b,tcp:localhost:80"};
    struct remo__bootstrap_config config = {.rank = 1, .size = 2, .addresses = list, .job = "db-1.x_y"};
    struct remo__roster *roster;
    assert_int_equal(open_with(&config, &roster), 0);
    assert_string_equal(roster->addresses[0], list[0]);
    assert_string_equal(roster->addresses[1], list[1]);
    assert_string_equal(roster->job, "db-1.x_y");
    assert_false(roster->has_key);
    remo__roster_close(roster);
}

static void contradictions_are_refused(void **state) {
    (void)state;
    const char *good[] = {"unix:/tmp/a", "unix:/tmp/b"}, *same[] = {"unix:/tmp/a", "unix:/tmp/a"};
    const char *hole[] = {"unix:/tmp/a", NULL}, *bad[] = {"unix:/tmp/a", "b:80"};
    char path[300];
    memset(path, 'x', sizeof path);
    memcpy(path, "unix:/", 6);
    path[200] = '\0';
    const char *deep[] = {"unix:/tmp/a", path};
    const struct {
        struct remo__bootstrap_config config;
        const char *sentence;
    } cases[] = {
        {{.rank = 2, .size = 2, .addresses = good}, "ranks go from 0 to 1"},
        {{.size = 0, .addresses = good}, "a job of 0 nodes"},
        {{.size = 257, .addresses = good}, "a job of 257 nodes"},
        {{.size = 2, .addresses = same}, "the same address"},
        {{.size = 2, .addresses = hole}, "rank 1 is missing"},
        {{.size = 2, .addresses = bad}, "rank 1: \"b:80\" is not an address"},
        {{.size = 2, .addresses = deep}, "Unix allows"},
        {{.size = 2, .addresses = good, .hosts_file = "h"}, "both given"},
        {{.size = 2, .addresses = good, .job = ""}, "job name"},
        {{.size = 2, .addresses = good, .job = "a/b"}, "job name"},
        {{.size = 2, .addresses = good, .job = path}, "job name"},
        {{.size = 4}, "remo run -n 4"},
        {{.rank = 1}, "the addresses of the nodes are missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(fails(&cases[i].config), -EINVAL);
        assert_sentence(cases[i].sentence);
    }
}

static void alone(void **state) {
    (void)state;
    struct remo__bootstrap_config config = {0};
    struct remo__roster *a, *b;
    assert_int_equal(open_with(&config, &a), 0);
    assert_int_equal(open_with(&config, &b), 0);
    assert_int_equal(a->size, 1);
    assert_string_not_equal(a->job, b->job);
    remo__roster_close(a);
    remo__roster_close(b);
    remo__roster_close(NULL);
}

/* ---- the environment ----------------------------------------------------------------------------------- */

static void is_alone(const struct remo__bootstrap_config *config) {
    struct remo__roster *roster;
    assert_int_equal(open_with(config, &roster), 0);
    assert_int_equal(roster->size, 1);
    remo__roster_close(roster);
}

/* Several tasks without PMIx must not become jobs of one node. A shell of salloc or sbatch is not a task. */
static void tasks_without_pmix_are_refused(void **state) {
    (void)state;
    const struct remo__bootstrap_config nothing = {0}, one = {.size = 1};
    static const char *const counts[] = {REMO__ENV_PMI_TASKS, REMO__ENV_OMPI_TASKS, REMO__ENV_SLURM_TASKS,
                                         REMO__ENV_SLURM_STEP_TASKS};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        environment_clear();
        setenv(REMO__ENV_SLURM_STEP, "0", 1);
        setenv(counts[i], "4", 1);
        assert_int_equal(fails(&nothing), -EINVAL);
        assert_sentence(counts[i]);
        assert_sentence(i < 2 ? "remo run -n 4" : "srun --mpi=pmix");
        is_alone(&one);
        setenv(counts[i], "1", 1);
        is_alone(&nothing);
        setenv(counts[i], "4", 1);
        setenv(REMO__ENV_RANK, "0", 1);
        setenv(REMO__ENV_SIZE, "1", 1);
        is_alone(&nothing);
    }
    environment_clear();
    setenv(REMO__ENV_SLURM_TASKS, "4", 1);
    is_alone(&nothing);
    environment_clear();
}

static void environment_makes_a_roster(void **state) {
    (void)state;
    struct remo__bootstrap_config config = {.job = "mine"};
    struct remo__roster *roster;
    setenv(REMO__ENV_RANK, "2", 1);
    setenv(REMO__ENV_SIZE, "3", 1);
    setenv(REMO__ENV_JOB, "r12", 1);
    setenv(REMO__ENV_JOB_DIR, "/run/x", 1);
    setenv(REMO__ENV_INCARNATION, "5", 1);
    assert_int_equal(open_with(&config, &roster), 0);
    assert_int_equal(roster->rank, 2);
    assert_int_equal(roster->size, 3);
    assert_int_equal(roster->incarnation, 5);
    assert_string_equal(roster->job, "mine.r12");
    assert_string_equal(roster->addresses[1], "unix:/run/x/1.sock");
    remo__roster_close(roster);
    setenv(REMO__ENV_ADDRESSES, "unix:/a;unix:/b,tcp:127.0.0.1:5;unix:/c,tcp:localhost:6", 1);
    config.job = NULL;
    assert_int_equal(open_with(&config, &roster), 0);
    assert_string_equal(roster->addresses[1], "unix:/b,tcp:127.0.0.1:5");
    assert_string_equal(roster->job, "r12");
    remo__roster_close(roster);
    environment_clear();
}

static void environment_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *rank, *size, *addresses, *incarnation;
        uint32_t config_rank, config_size;
        const char *sentence;
    } cases[] = {
        {"0", NULL, NULL, NULL, 0, 0, "REMO_SIZE is missing"},
        {NULL, "2", NULL, NULL, 0, 0, "REMO_RANK is missing"},
        {"0", "two", NULL, NULL, 0, 0, "REMO_SIZE=\"two\""},
        {"-1", "2", NULL, NULL, 0, 0, "REMO_RANK=\"-1\""},
        {"0", "257", NULL, NULL, 0, 0, "REMO_SIZE=\"257\""},
        {"2", "2", NULL, NULL, 0, 0, "ranks go from 0 to 1"},
        {"0", "2", NULL, NULL, 0, 0, "REMO_JOB_DIR"},
        {"0", "2", "unix:/a", NULL, 0, 0, "has 1 addresses"},
        {"0", "2", "unix:/a;unix:/b;unix:/c", NULL, 0, 0, "more than 2 addresses"},
        {"0", "2", "unix:/a;b", NULL, 0, 0, "REMO_ADDRESSES"},
        {"0", "2", "unix:/a;unix:/b", "x", 0, 0, "REMO_INCARNATION"},
        {"0", "2", "unix:/a;unix:/b", NULL, 0, 3, "the program gives 3 nodes"},
        {"0", "2", "unix:/a;unix:/b", NULL, 1, 0, "the program gives rank 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct remo__bootstrap_config config = {.rank = cases[i].config_rank, .size = cases[i].config_size};
        const char *values[] = {cases[i].rank, cases[i].size, cases[i].addresses, cases[i].incarnation};
        static const char *const names[] = {REMO__ENV_RANK, REMO__ENV_SIZE, REMO__ENV_ADDRESSES,
                                            REMO__ENV_INCARNATION};
        for (size_t k = 0; k < 4; k++) {
            if (values[k])
                setenv(names[k], values[k], 1);
        }
        assert_int_equal(fails(&config), -EINVAL);
        assert_sentence(cases[i].sentence);
        environment_clear();
    }
}

/* ---- credentials --------------------------------------------------------------------------------------- */

static int key_read(const void *data, size_t bytes, mode_t mode) {
    uint8_t key[REMO__KEY_BYTES];
    return remo__key_read(file_of("key", data, bytes, mode), key);
}

/* Records are found in order. An incomplete line, and a line that is not a record, do not count. */
static void ended_records(void **state) {
    (void)state;
    static const char text[] = "2 137\n\n0 7 \nx 1\n3 256\n256 3\n1 0\n4 5";
    const char *at = text, *end = text + sizeof text - 1;
    uint32_t rank, status;
    assert_true(remo__ended_next(&at, end, &rank, &status));
    assert_int_equal(rank, 2);
    assert_int_equal(status, 137);
    assert_true(remo__ended_next(&at, end, &rank, &status));
    assert_int_equal(rank, 1);
    assert_int_equal(status, 0);
    assert_false(remo__ended_next(&at, end, &rank, &status));
}

static void key_files(void **state) {
    (void)state;
    uint8_t raw[33], key[REMO__KEY_BYTES], zeros[32] = {0};
    char hex[2 * REMO__KEY_BYTES + 1];
    for (size_t i = 0; i < sizeof raw; i++)
        raw[i] = (uint8_t)(i * 37 + 1);
    assert_int_equal(key_read(raw, 32, 0600), 0);
    assert_int_equal(key_read(raw, 32, 0400), 0);
    assert_int_equal(key_read(raw, 32, 0640), -EACCES);
    assert_sentence("chmod 600");
    assert_int_equal(key_read(raw, 32, 0604), -EACCES);
    assert_int_equal(key_read(raw, 31, 0600), -EINVAL);
    assert_sentence("32 random bytes or 64 hexadecimal digits");
    assert_int_equal(key_read(raw, 33, 0600), -EINVAL);
    assert_int_equal(key_read(raw, 0, 0600), -EINVAL);
    assert_int_equal(key_read(zeros, 32, 0600), -EINVAL);
    remo__key_format(raw, hex);
    char line[70];
    snprintf(line, sizeof line, "%s\n", hex);
    assert_int_equal(remo__key_read(file_of("key", line, 65, 0600), key), 0);
    assert_memory_equal(key, raw, sizeof key);
    line[5] = 'g';
    assert_int_equal(key_read(line, 65, 0600), -EINVAL);
    assert_int_equal(remo__key_read("/nonexistent/key", key), -ENOENT);
    assert_int_equal(remo__key_read(folder, key), -EINVAL);
    if (geteuid() == 0) {
        const char *path = file_of("key", raw, 32, 0600);
        assert_int_equal(chown(path, 1, 1), 0);
        assert_int_equal(remo__key_read(path, key), -EACCES);
        assert_sentence("belongs to user 1");
    }
}

static void outside_needs_a_credential(void **state) {
    (void)state;
    uint8_t raw[32];
    memset(raw, 5, sizeof raw);
    const char *outside[] = {"tcp:127.0.0.1:7001", "tcp:192.0.2.1:7001"},
               *any[] = {"tcp:0.0.0.0:7001", "tcp:[::1]:7001"};
    struct remo__bootstrap_config config = {.size = 2, .addresses = outside};
    struct remo__roster *roster;
    if (remo__munge_present()) {
        assert_int_equal(open_with(&config, &roster), 0);
        assert_true(roster->use_munge);
        remo__roster_close(roster);
    } else {
        assert_int_equal(fails(&config), -EACCES);
        assert_sentence("tcp:192.0.2.1:7001");
        config.addresses = any;
        assert_int_equal(fails(&config), -EACCES);
        assert_sentence("tcp:0.0.0.0:7001");
        config.addresses = outside;
    }
    config.key_file = file_of("key", raw, sizeof raw, 0600);
    assert_int_equal(open_with(&config, &roster), 0);
    assert_true(roster->has_key && !roster->use_munge);
    remo__roster_close(roster);
    setenv(REMO__ENV_KEY_FILE, config.key_file, 1);
    config.key_file = NULL;
    assert_int_equal(open_with(&config, &roster), 0);
    assert_memory_equal(roster->key, raw, sizeof raw);
    remo__roster_close(roster);
    setenv(REMO__ENV_KEY_FILE, "/nonexistent/key", 1);
    assert_int_equal(fails(&config), -ENOENT);
    environment_clear();
}

static void places_are_resolved(void **state) {
    (void)state;
    struct remo__place places[REMO__PLACES_MAX];
    uint32_t count;
    assert_int_equal(remo__address_resolve("tcp:127.0.0.1:5,tcp:[::1]:6,unix:/a,unix:@b", places, &count), 0);
    assert_int_equal(count, 4);
    assert_true(places[0].is_unix && places[1].is_unix && places[0].is_loopback);
    assert_string_equal(places[0].text, "unix:/a");
    assert_string_equal(places[2].text, "tcp:127.0.0.1:5");
    assert_true(places[2].is_loopback && places[3].is_loopback && !places[2].is_unix);
    assert_int_equal(remo__address_resolve("tcp:no-such-host.invalid:5", places, &count), -EHOSTUNREACH);
    assert_sentence("no-such-host.invalid");
    assert_true(remo__address_is_local("unix:/a,tcp:localhost:5"));
    assert_false(remo__address_is_local("unix:/a,tcp:192.0.2.7:5"));
    assert_false(remo__address_is_local("tcp:no-such-host.invalid:5"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_are_read),
        cmocka_unit_test(hosts_are_refused),
        cmocka_unit_test(hosts_file_makes_a_roster),
        cmocka_unit_test(addresses_make_a_roster),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(alone),
        cmocka_unit_test(tasks_without_pmix_are_refused),
        cmocka_unit_test(environment_makes_a_roster),
        cmocka_unit_test(environment_is_refused),
        cmocka_unit_test(ended_records),
        cmocka_unit_test(key_files),
        cmocka_unit_test(outside_needs_a_credential),
        cmocka_unit_test(places_are_resolved),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
