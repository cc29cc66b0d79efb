/* cluster.c - starts, watches and kills the nodes of a test (cluster.h).
 * The processes watch each other through one shared page; the parent only waits. */
#include "cluster.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "remote/op.h"

#define NODES_MAX 64u
#define TIMEOUT_NS 150000000000ull
#define TESTS_MAX 64u
#define JOIN_NS 100000000000ull
#define OPERATION_NS 50000000000ull /* a machine may pause for longer than the library's 10 s */
#define ARENA_BYTES (1ull << 32)
#define SEGMENT_BYTES (4ull << 20)

/* One node, as all processes see it. */
struct member {
    _Atomic pid_t pid; /* 0: not started, or reaped */
    _Atomic int expected_to_fail;
    _Atomic int absent;         /* meetings do not wait for it any more */
    _Atomic(const char *) file; /* its place */
    _Atomic int line;
    int result;
};

static struct board {
    struct member members[NODES_MAX];
    uint32_t nodes;
    _Atomic uint64_t meetings[NODES_MAX];
} * board;

static const struct cluster_test *running;
static const char *running_on;
static char folder[256];
static uint32_t process_rank = UINT32_MAX; /* of a process that is one node */
static _Thread_local uint32_t thread_rank = UINT32_MAX;

/* ---- time ---- */

uint64_t cluster_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

uint64_t cluster_processor_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000ull + (uint64_t)used.tv_nsec;
}

void cluster_sleep_ms(uint32_t ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

void cluster_await_cut_off(struct remo_node *node, uint32_t peer) {
    while (remo_node_peer(node, peer) == REMO_PEER_UP || remo__peer_base(node, peer))
        cluster_sleep_ms(1);
}

/* The library's threads may read the timeout at the same time. */
__attribute__((no_sanitize("thread"))) uint64_t cluster_set_op_timeout(struct remo_node *node,
                                                                       uint64_t timeout_ns) {
    uint64_t before = node->op_timeout_ns;
    node->op_timeout_ns = timeout_ns;
    return before;
}

static uint64_t timeout_of(const struct cluster_test *test) {
    return test->timeout_ns ? test->timeout_ns : TIMEOUT_NS;
}

/* ---- what a body may call ---- */

/* UINT32_MAX: a thread started by a body, in a process with many nodes. */
static uint32_t my_rank(void) {
    return thread_rank != UINT32_MAX ? thread_rank : process_rank;
}

void *cluster_shared(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("shared memory for the test");
        exit(1);
    }
    return memory;
}

void cluster_at(const char *file, int line) {
    uint32_t rank = my_rank();
    if (rank == UINT32_MAX)
        return;
    atomic_store_explicit(&board->members[rank].file, file, memory_order_relaxed);
    atomic_store_explicit(&board->members[rank].line, line, memory_order_relaxed);
}

int cluster_fail(const char *file, int line, const char *format, ...) {
    char text[512];
    const char *sentence = remo_last_error(), *name = strrchr(file, '/');
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s:%d: node %d: %s%s%s\n", name ? name + 1 : file, line, (int)my_rank(), text,
            *sentence ? "; last error: " : "", sentence);
    return 1;
}

int cluster_kill(uint32_t rank) {
    pid_t pid = rank < board->nodes ? atomic_load(&board->members[rank].pid) : 0;
    if (running->as_threads || pid <= 0)
        return -EINVAL;
    atomic_store(&board->members[rank].expected_to_fail, 1);
    atomic_store(&board->members[rank].absent, 1);
    return kill(pid, SIGKILL) == 0 ? 0 : -errno;
}

void cluster_expect_death(void) {
    atomic_store(&board->members[my_rank()].expected_to_fail, 1);
    atomic_store(&board->members[my_rank()].absent, 1);
}

/* Each node counts its own meetings; failed nodes are not awaited. */
int cluster_meet(void) {
    uint64_t mine = atomic_fetch_add(&board->meetings[my_rank()], 1) + 1,
             deadline = cluster_now_ns() + timeout_of(running);
    for (uint32_t rank = 0; rank < board->nodes; rank++) {
        while (atomic_load(&board->meetings[rank]) < mine && !atomic_load(&board->members[rank].absent)) {
            if (cluster_now_ns() > deadline)
                return cluster_fail(__FILE__, __LINE__, "node %u does not come to the meeting", rank);
            cluster_sleep_ms(1);
        }
    }
    return 0;
}

/* ---- a node ---- */

static int run_node(uint32_t rank) {
    char addresses[NODES_MAX][sizeof folder + 16];
    const char *list[NODES_MAX];
    struct remo_node *node;
    thread_rank = rank;
    for (uint32_t i = 0; i < running->nodes; i++) {
        snprintf(addresses[i], sizeof addresses[i], "unix:%s/%u", folder, i);
        list[i] = addresses[i];
    }
    struct remo_config config = {.fabric = running_on,
                                 .rank = rank,
                                 .size = running->nodes,
                                 .addresses = list,
                                 .job = strrchr(folder, '/') + 1,
                                 .arena_bytes = ARENA_BYTES,
                                 .segment_bytes = SEGMENT_BYTES,
                                 .op_timeout_ns =
                                     running->op_timeout_ns ? running->op_timeout_ns : OPERATION_NS,
                                 .join_timeout_ns = JOIN_NS};
    int rc = remo_node_open(&config, &node);
    if (rc == -ENODEV || rc == -ENOSYS)
        return 77;
    if (rc != 0)
        return cluster_fail(__FILE__, __LINE__, "remo_node_open is %d %s", rc, remo_error_name(rc));
    int result = running->body(node, running->ctx);
    if (result != 0)
        fprintf(stderr, "%s on %s: node %u failed\n", running->name, running_on, rank);
    atomic_store(&board->members[rank].absent, 1);
    remo_node_close(node);
    return result;
}

static void *node_thread(void *ctx) {
    struct member *member = ctx;
    member->result = run_node((uint32_t)(member - board->members));
    return NULL;
}

/* Run all nodes as threads of one child process, so that the parent detects a crash or a hang. */
static int run_threads(void) {
    pthread_t threads[NODES_MAX];
    int result = 0;
    for (uint32_t i = 0; i < running->nodes; i++)
        if (pthread_create(&threads[i], NULL, node_thread, &board->members[i]) != 0)
            return cluster_fail(__FILE__, __LINE__, "cannot start a thread");
    for (uint32_t i = 0; i < running->nodes; i++) {
        pthread_join(threads[i], NULL);
        result = board->members[i].result ? board->members[i].result : result;
    }
    return result;
}

/* ---- the parent ---- */

static int start_process(uint32_t index) {
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        process_rank = running->as_threads ? UINT32_MAX : index;
        exit(running->as_threads ? run_threads()
                                 : run_node(index)); /* not _exit: leak checkers run at exit */
    }
    if (pid < 0) {
        perror("fork");
        return 1;
    }
    atomic_store(&board->members[index].pid, pid);
    return 0;
}

static int judge(uint32_t index, int status) {
    struct member *member = &board->members[index];
    atomic_store(&member->pid, 0);
    atomic_store(&member->absent, 1);
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77))
        return WEXITSTATUS(status);
    if (WIFSIGNALED(status) && atomic_load(&member->expected_to_fail) && WTERMSIG(status) == SIGKILL)
        return 0;
    if (WIFSIGNALED(status))
        fprintf(stderr, "%s on %s: node %u ended by signal %d after %s:%d\n", running->name, running_on,
                index, WTERMSIG(status), member->file ? member->file : "?", member->line);
    return 1;
}

static void report_hang(uint32_t processes) {
    fprintf(stderr, "%s on %s: not done in %llu ms\n", running->name, running_on,
            (unsigned long long)(timeout_of(running) / 1000000));
    for (uint32_t i = 0; i < running->nodes; i++) {
        struct member *member = &board->members[i];
        if (i >= processes || atomic_load(&member->pid) != 0)
            fprintf(stderr, "  node %u is at %s:%d\n", i, member->file ? member->file : "?", member->line);
    }
}

static uint32_t index_of(pid_t pid, uint32_t processes) {
    for (uint32_t i = 0; i < processes; i++)
        if (atomic_load(&board->members[i].pid) == pid)
            return i;
    return UINT32_MAX;
}

static int wait_processes(uint32_t processes) {
    uint64_t deadline = cluster_now_ns() + timeout_of(running);
    uint32_t left = processes;
    int result = 0;
    while (left > 0) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        uint32_t index = pid > 0 ? index_of(pid, processes) : UINT32_MAX;
        if (index != UINT32_MAX) {
            int one = judge(index, status);
            result = one == 1 || result == 0 ? one : result;
            left--;
        } else if (cluster_now_ns() > deadline && deadline != 0) {
            report_hang(processes);
            result = 1;
            deadline = 0;
            for (uint32_t i = 0; i < processes; i++)
                if (atomic_load(&board->members[i].pid) > 0)
                    kill(atomic_load(&board->members[i].pid), SIGKILL);
        } else {
            cluster_sleep_ms(1);
        }
    }
    return result;
}

static void remove_folder(void) {
    char path[sizeof folder + 16];
    for (uint32_t i = 0; i < NODES_MAX; i++) {
        snprintf(path, sizeof path, "%s/%u", folder, i);
        unlink(path);
    }
    rmdir(folder);
}

int cluster_run(const struct cluster_test *test, const char *fabric) {
    const char *tmp = getenv("TMPDIR");
    if (!board)
        board = cluster_shared(sizeof *board);
    memset(board, 0, sizeof *board);
    board->nodes = test->nodes;
    running = test;
    running_on = fabric;
    snprintf(folder, sizeof folder, "%s/remo-test-XXXXXX", tmp && strlen(tmp) < 64 ? tmp : P_tmpdir);
    if (test->nodes > NODES_MAX || !mkdtemp(folder)) {
        perror("a folder for sockets");
        return 1;
    }
    uint32_t processes = test->as_threads ? 1 : test->nodes, started = 0;
    int result = 0;
    while (started < processes && result == 0) {
        result = start_process(started);
        started += result == 0;
    }
    int waited = wait_processes(started);
    remove_folder();
    return result ? result : waited;
}

/* ---- a program of tests ---- */

struct arguments {
    const char *fabric;
    const char *only[TESTS_MAX];
    uint32_t only_count, repeat;
    int list;
};

static int parse(int argc, char **argv, struct arguments *arguments) {
    static const struct option options[] = {{"fabric", required_argument, NULL, 'f'},
                                            {"only", required_argument, NULL, 'o'},
                                            {"repeat", required_argument, NULL, 'r'},
                                            {"list", no_argument, NULL, 'l'},
                                            {0}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'f')
            arguments->fabric = optarg;
        else if (option == 'o' && arguments->only_count < TESTS_MAX)
            arguments->only[arguments->only_count++] = optarg;
        else if (option == 'r')
            arguments->repeat = (uint32_t)atoi(optarg);
        else if (option == 'l')
            arguments->list = 1;
        else
            return 1;
    }
    return 0;
}

static int is_chosen(const struct arguments *arguments, const struct cluster_test *test) {
    if (test->only_on && strcmp(test->only_on, arguments->fabric) != 0)
        return 0;
    for (uint32_t i = 0; i < arguments->only_count; i++)
        if (strcmp(arguments->only[i], test->name) == 0)
            return 1;
    return arguments->only_count == 0;
}

/* Let libfabric initialise in this process, of which all nodes are copies. It reads the symbols of the kernel
 * then, twice, which takes half of the time to open a node. */
static void load_libraries(const char *fabric) {
    const struct remo__fabric_ops *ops = remo__fabric_find(fabric);
    const struct remo__fabric_config config = {0};
    if (ops && strcmp(fabric, "ofi") == 0)
        ops->probe(&config);
}

int cluster_main(int argc, char **argv, const struct cluster_test *tests, void (*setup)(void)) {
    struct arguments arguments = {.fabric = "shm", .repeat = 1};
    int result = 0;
    if (parse(argc, argv, &arguments) != 0)
        return 2;
    if (!arguments.list)
        load_libraries(arguments.fabric);
    for (const struct cluster_test *test = tests; test->name; test++) {
        if (arguments.list)
            puts(test->name);
        for (uint32_t turn = 0; !arguments.list && is_chosen(&arguments, test) && turn < arguments.repeat;
             turn++) {
            if (setup)
                setup();
            uint64_t begin = cluster_now_ns();
            int one = cluster_run(test, arguments.fabric);
            printf("%-4s %s %s (%llu ms)\n",
                   one == 0    ? "ok"
                   : one == 77 ? "skip"
                               : "FAIL",
                   arguments.fabric, test->name, (unsigned long long)((cluster_now_ns() - begin) / 1000000));
            fflush(stdout);
            result = one == 1 || result == 0 ? one : result;
        }
    }
    return result;
}
