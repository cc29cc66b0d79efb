/* server.c - the server of a program, its folder and its address (server.h).
 * Its state is static, so that a signal handler finds it. */
#include "bench/peers/server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"

#define START_NS (10 * REMO__NS_PER_S)
#define STOP_NS (2 * REMO__NS_PER_S)
#define POLL_NS (5 * REMO__NS_PER_MS)

static struct {
    const char *program;
    volatile pid_t pid; /* 0: none */
    int stop_signal;
    pid_t owner;     /* the process that has made the folder */
    char folder[64]; /* "": none */
    char socket_path[SERVER_PATH_BYTES], port[8];
    struct sockaddr_in address; /* over TCP; otherwise its port is 0 */
    int reservation;            /* over TCP: a socket that holds the port */
} the_server;

static void sleep_shortly(void) {
    nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
}

/* ---- the end ---- */

/* A server may have made any files. A signal handler cannot walk through folders, but it can start `rm`. */
static void remove_folder(void) {
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", the_server.folder, (char *)NULL);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    the_server.folder[0] = '\0';
}

void server_stop(void) {
    uint64_t deadline = remo__deadline(STOP_NS);
    if (the_server.owner != getpid())
        return;
    if (the_server.pid > 0)
        kill(the_server.pid, the_server.stop_signal);
    while (server_is_running()) {
        if (remo__remaining_ns(deadline) == 0)
            kill(the_server.pid, SIGKILL);
        sleep_shortly();
    }
    if (the_server.folder[0])
        remove_folder();
}

static void on_signal(int number) {
    server_stop();
    _exit(128 + number);
}

/* SIGPIPE: the reader of the output has ended. */
static void set_signals(void (*handler)(int number)) {
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < REMO__ARRAY_COUNT(numbers); i++)
        signal(numbers[i], handler);
}

/* ---- the address ---- */

const char *server_make_folder(const char *parent) {
    const char *tmp = getenv("TMPDIR");
    char folder[sizeof the_server.folder];
    if (!parent)
        parent = tmp ? tmp : "/tmp";
    snprintf(folder, sizeof folder, "%.40s/remo-peer-XXXXXX", parent);
    if (!mkdtemp(folder)) {
        fprintf(stderr, "cannot make the folder %s for the server: %s\n", folder, strerror(errno));
        return NULL;
    }
    the_server.owner = getpid();
    memcpy(the_server.folder, folder, sizeof folder);
    atexit(server_stop);
    set_signals(on_signal);
    return the_server.folder;
}

/* Choose a free port and hold it: a bound socket that does not listen reserves the port, except
 * against servers that set SO_REUSEADDR, as Redis and memcached do. */
static int reserve_port(void) {
    socklen_t length = sizeof the_server.address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    the_server.reservation = fd;
    the_server.address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) == 0
        && bind(fd, (struct sockaddr *)&the_server.address, length) == 0
        && getsockname(fd, (struct sockaddr *)&the_server.address, &length) == 0)
        return 0;
    fprintf(stderr, "cannot reserve a TCP port of 127.0.0.1: %s\n", strerror(errno));
    return -1;
}

int server_choose_endpoint(bool is_tcp, struct server_endpoint *ret_endpoint) {
    if (is_tcp && reserve_port() != 0)
        return -1;
    snprintf(the_server.socket_path, sizeof the_server.socket_path, "%s/socket", the_server.folder);
    snprintf(the_server.port, sizeof the_server.port, "%u", ntohs(the_server.address.sin_port));
    *ret_endpoint = (struct server_endpoint){
        .is_tcp = is_tcp, .socket_path = the_server.socket_path, .port = the_server.port};
    return 0;
}

/* ---- the process ---- */

static void run_server(const char *const argv[], void (*settle)(const void *ctx), const void *ctx) {
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    set_signals(SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    settle(ctx);
    if (chdir(the_server.folder) == 0)
        execvp(argv[0], (char *const *)(uintptr_t)argv);
    fprintf(stderr, "cannot start %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

void server_launch(const char *const argv[], int stop_signal, void (*settle)(const void *ctx),
                   const void *ctx) {
    the_server.program = argv[0];
    the_server.stop_signal = stop_signal;
    pid_t pid = fork();
    if (pid == 0)
        run_server(argv, settle, ctx);
    the_server.pid = pid > 0 ? pid : 0;
}

void server_share_processors(const struct measure_options *options) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < 2; i++)
        if (options->cpus[i] >= 0)
            CPU_SET(options->cpus[i], &set);
    if (CPU_COUNT(&set) > 0)
        sched_setaffinity(0, sizeof set, &set);
}

bool server_is_running(void) {
    if (the_server.pid > 0 && waitpid(the_server.pid, NULL, WNOHANG) != 0)
        the_server.pid = 0;
    return the_server.pid > 0;
}

/* ---- connections ---- */

static int connect_unix(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", the_server.socket_path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static int connect_tcp(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&the_server.address, sizeof the_server.address) == 0
        && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0)
        return fd;
    close(fd);
    return -1;
}

int server_connect(void) {
    int fd = the_server.address.sin_port ? connect_tcp() : connect_unix();
    if (fd >= 0)
        fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

int server_await(void) {
    uint64_t deadline = remo__deadline(START_NS);
    while (server_is_running() && remo__remaining_ns(deadline) > 0) {
        int fd = server_connect();
        if (fd >= 0)
            return fd;
        sleep_shortly();
    }
    fprintf(stderr, "%s did not start\n", the_server.program);
    return -1;
}
