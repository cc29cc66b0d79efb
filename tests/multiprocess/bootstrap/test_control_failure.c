/* test_control_failure.c - tests of the failures that the control plane detects, with real sockets, threads
 * and processes: processes that end or pause, lost connections, and nodes that count each other as failed
 * although both are up. Each case is a function; the arguments name the cases to run, by default all. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "../../support/patience.h"
#include "bootstrap/control/connection.h"
#include "control_common.h"

/* ---- failing and leaving ------------------------------------------------------------------------------- */

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void measure_kill(const char *what, const struct plane_options *options) {
    enum { ROUNDS = 20 };
    uint64_t took[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        pid_t pid = process_start(1, 2, options, 50);
        CHECK(plane_open(&planes[0], 0, 2, options) == 0);
        CHECK(plane_wait_frames(&planes[0], 1, 50));
        uint64_t start = remo__now_ns();
        kill(pid, SIGKILL);
        CHECK(plane_wait_down(&planes[0], 1, 1));
        took[i] = planes[0].peers[1].down_at - start;
        CHECK(planes[0].peers[1].reason == -EHOSTDOWN && in_time(took[i], REMO__NS_PER_S / 10));
        CHECK(planes[0].peers[1].frames == 50 && !planes[0].peers[1].disorder);
        CHECK(remo__control_send(planes[0].control, 1, 1, NULL, 0, -1) == -EHOSTDOWN);
        waitpid(pid, NULL, 0);
        plane_close(&planes[0]);
    }
    qsort(took, ROUNDS, sizeof took[0], compare_u64);
    printf("     %s: SIGKILL detected after %.2f ms (median), %.2f ms (longest of %d)\n", what,
           (double)took[ROUNDS / 2] / 1e6, (double)took[ROUNDS - 1] / 1e6, ROUNDS);
}

static void killed_unix(void) {
    measure_kill("Unix socket", NULL);
}

static void killed_tcp(void) {
    struct plane_options options = {
        .addresses = tcp_addresses(2, "127.0.0.1"), .network = true, .key_file = plane_key(3)};
    measure_kill("TCP on loopback", &options);
}

static void leaving(void) {
    struct plane_options tcp = {
        .addresses = tcp_addresses(3, "127.0.0.1"), .network = true, .key_file = plane_key(3)};
    for (int round = 0; round < 10; round++) {
        uint32_t leaver = (uint32_t)round % 3;
        open_all(3, round % 2 ? &tcp : NULL);
        for (uint64_t n = 0; n < 300; n++)
            CHECK(plane_send(&planes[leaver], (leaver + 1) % 3, n, 3000, -1) == 0);
        plane_close(&planes[leaver]);
        for (uint32_t i = 0; i < 3; i++) {
            if (i == leaver)
                continue;
            CHECK(plane_wait_down(&planes[i], leaver, 1) && planes[i].peers[leaver].reason == 0);
            CHECK(atomic_load(&planes[i].ends) == 0);
            CHECK(!planes[i].peers[leaver].disorder);
        }
        CHECK(planes[(leaver + 1) % 3].peers[leaver].frames == 300);
        CHECK(plane_send(&planes[(leaver + 1) % 3], (leaver + 2) % 3, 0, 8, -1) == 0);
        CHECK(plane_wait_frames(&planes[(leaver + 2) % 3], (leaver + 1) % 3, 1));
        plane_close(&planes[(leaver + 1) % 3]);
        plane_close(&planes[(leaver + 2) % 3]);
    }
}

/* ---- lost data connections ----------------------------------------------------------------------------- */

static const struct plane_options quick = {.silence_ns = 25 * REMO__NS_PER_MS};

/* Wait until the nodes of the mask have failed for all four, and check that no other node has. */
static void check_only_failed(uint64_t failed) {
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t j = 0; j < 4; j++)
            if (i != j && ((failed >> i | failed >> j) & 1))
                CHECK(plane_wait_down(&planes[i], j, 1) && planes[i].peers[j].reason == -EHOSTDOWN);
    usleep(200 * 1000);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(atomic_load(&planes[i].ends) == (int)(failed >> i & 1));
        pthread_mutex_lock(&planes[i].lock);
        for (uint32_t j = 0; j < 4; j++)
            CHECK(planes[i].peers[j].downs == (i != j && ((failed >> i | failed >> j) & 1)));
        pthread_mutex_unlock(&planes[i].lock);
    }
}

/* A node that has ended its streams does not dial again: each peer would refuse it, once a second. */
static void check_not_dialed(struct plane *plane, uint32_t failed) {
    char why[512];
    (void)remo__control_why(plane->control, failed, why, sizeof why);
    CHECK(strstr(why, "was started twice") == NULL);
}

/* The node with the higher rank fails, whichever of the two detects the loss. */
static void loss(void) {
    static const uint64_t rows[][3] = {{1, 3, 1 << 3}, {3, 1, 1 << 3}, {0, 1, 1 << 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_all(4, &quick);
        plane_lose(&planes[rows[i][0]], 1u << rows[i][1]);
        if (i == 0)
            plane_lose(&planes[rows[i][1]], 1u << rows[i][0]);
        check_only_failed(rows[i][2]);
        check_not_dialed(&planes[0], rows[i][0] > rows[i][1] ? rows[i][0] : rows[i][1]);
        close_all(4);
    }
}

/* A node that loses two connections fails itself, and no other node. */
static void loss_of_two(void) {
    open_all(4, &quick);
    plane_lose(&planes[0], 1 << 1 | 1 << 2);
    check_only_failed(1 << 0);
    close_all(4);
}

/* Two nodes lose their connections to a third one with a higher rank: only this node fails. */
static void loss_by_two(void) {
    open_all(4, &quick);
    plane_lose(&planes[0], 1 << 3);
    plane_lose(&planes[1], 1 << 3);
    check_only_failed(1 << 3);
    close_all(4);
}

/* A demand that has taken effect counts as a loss for a limited time. Later, the next loss ends the next
 * peer. */
static void loss_after_loss(void) {
    open_all(4, &quick);
    plane_lose(&planes[0], 1 << 1);
    check_only_failed(1 << 1);
    usleep((useconds_t)(2 * quick.silence_ns * REMO__LOSS_DEMAND_WAITS / 1000));
    plane_lose(&planes[0], 1 << 2);
    check_only_failed(1 << 1 | 1 << 2);
    close_all(4);
}

/* ---- the machines of lost peers ---- */

static uint8_t next_machine; /* of the next plane: its boot id has these bytes; 0: that of this machine */

void __real_remo__boot_id(uint8_t ret_id[REMO__BOOT_ID_BYTES]);
void __wrap_remo__boot_id(uint8_t ret_id[REMO__BOOT_ID_BYTES]);

void __wrap_remo__boot_id(uint8_t ret_id[REMO__BOOT_ID_BYTES]) {
    if (next_machine == 0)
        __real_remo__boot_id(ret_id);
    else
        memset(ret_id, next_machine, REMO__BOOT_ID_BYTES);
}

static void open_on_machine(uint32_t rank, uint8_t machine, const struct plane_options *options) {
    next_machine = machine;
    CHECK(plane_open(&planes[rank], rank, 4, options) == 0);
    next_machine = 0;
}

/* Check which peers count as one machine: those that share a machine, unless it is the node's own. */
static void check_machines(const uint8_t *machines) {
    for (uint32_t i = 0; i < 4; i++)
        CHECK(plane_wait_up(&planes[i], 3));
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t j = 0; j < 4; j++)
            for (uint32_t k = j + 1; k < 4; k++) {
                const struct remo__loss *of = planes[i].control->losses.of;
                bool is_shared = machines[j] == machines[k] && machines[j] != machines[i];
                CHECK(j == i || k == i || (of[j].machine == of[k].machine) == is_shared);
            }
}

/* A machine whose network fails loses the connections of all its nodes: they count as one loss. A node may
 * restart on another machine. */
static void loss_of_machine(void) {
    uint8_t machines[] = {'a', 'b', 'b', 'c'};
    struct plane_options options = {.addresses = tcp_addresses(4, "127.0.0.1"),
                                    .network = true,
                                    .key_file = plane_key(3),
                                    .silence_ns = 100 * REMO__NS_PER_S};
    for (uint32_t i = 0; i < 4; i++)
        open_on_machine(i, machines[i], &options);
    check_machines(machines);
    plane_close(&planes[3]);
    for (uint32_t i = 0; i < 3; i++)
        CHECK(plane_wait_down(&planes[i], 3, 1));
    machines[3] = 'b';
    options.incarnation = 1;
    open_on_machine(3, machines[3], &options);
    check_machines(machines);
    close_all(4);
}

/* ---- losses of nodes that leave, and demands ---- */

/* Two nodes leave while the control thread of node 0 is busy, before it decides the losses of both. It reads
 * the ends of their streams first. */
static void loss_unread(void) {
    struct plane_options options = {.silence_ns = 200 * REMO__NS_PER_MS};
    uint64_t wait_ns = 2 * options.silence_ns;
    open_all(4, &options);
    plane_lose(&planes[0], 1 << 1 | 1 << 2);
    usleep(20 * 1000); /* the losses are recorded */
    atomic_store(&planes[0].hold, true);
    CHECK(plane_send(&planes[3], 0, 0, 8, -1) == 0);
    usleep(20 * 1000); /* the control thread is held */
    plane_close(&planes[1]);
    plane_close(&planes[2]);
    usleep((useconds_t)(wait_ns / 1000)); /* the time of the decision has just passed */
    atomic_store(&planes[0].hold, false);
    CHECK(plane_wait_down(&planes[0], 1, 1) && plane_wait_down(&planes[0], 2, 1));
    usleep((useconds_t)(2 * wait_ns / 1000));
    CHECK(atomic_load(&planes[0].ends) == 0);
    plane_close(&planes[0]);
    plane_close(&planes[3]);
}

/* Only a node with a lower rank can demand the end. */
static void end_from_higher(void) {
    open_all(4, &quick);
    struct remo__member *peer = &planes[3].control->peers[1];
    pthread_mutex_lock(&peer->lock);
    CHECK(remo__connection_send(peer->connection, REMO__FRAME_END, REMO__FRAME_INTERNAL, NULL, 0, -1) == 0);
    pthread_mutex_unlock(&peer->lock);
    CHECK(plane_send(&planes[3], 1, 0, 8, -1) == 0 && plane_wait_frames(&planes[1], 3, 1));
    check_only_failed(0);
    close_all(4);
}

/* A peer that leaves or fails ends its connection of the data plane too. No other node fails. */
static void loss_of_leaver(void) {
    struct plane_options slow = {.silence_ns = 100 * REMO__NS_PER_S};
    open_all(4, &slow);
    plane_lose(&planes[3], 1 << 0);
    plane_close(&planes[0]);
    for (uint32_t i = 1; i < 4; i++)
        CHECK(plane_wait_down(&planes[i], 0, 1) && planes[i].peers[0].reason == 0);
    for (uint32_t i = 1; i < 4; i++)
        plane_close(&planes[i]);
}

/* ---- nodes that count each other as failed, although both are up --------------------------------------- */

/* The stream of two nodes ends. The one with the higher rank fails for all nodes. */
static void broken_stream(void) {
    static const uint32_t rows[][2] = {{1, 3}, {3, 1}, {0, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_all(4, NULL);
        struct remo__member *peer = &planes[rows[i][0]].control->peers[rows[i][1]];
        pthread_mutex_lock(&peer->lock);
        CHECK(shutdown(peer->connection->link.fd, SHUT_RDWR) == 0);
        pthread_mutex_unlock(&peer->lock);
        check_only_failed(UINT64_C(1) << (rows[i][0] > rows[i][1] ? rows[i][0] : rows[i][1]));
        close_all(4);
    }
}

/* End the stream of node 1 to node 0 so that node 0 does not detect it. Return the socket of node 1. */
static int end_one_side(void) {
    struct remo__member *peer = &planes[1].control->peers[0];
    pthread_mutex_lock(&peer->lock);
    int fd = dup(peer->connection->link.fd);
    CHECK(fd >= 0 && shutdown(fd, SHUT_RD) == 0);
    pthread_mutex_unlock(&peer->lock);
    CHECK(plane_wait_down(&planes[1], 0, 1));
    return fd;
}

/* Node 1 ends its stream to node 0, and dials again before node 0 has read the end of the stream. Node 1 does
 * not fail until then. If SILENT precedes the end, node 0 fails instead. */
static void redial_before_end(void) {
    static const uint8_t silent[] = {0, 0, 0, 0, REMO__FRAME_SILENT, 0, REMO__FRAME_INTERNAL, 0};
    for (uint32_t failed = 0; failed < 2; failed++) {
        open_all(3, NULL);
        int fd = end_one_side();
        CHECK(plane_wait_why(&planes[1], 0, "was started twice"));
        CHECK(atomic_load(&planes[1].ends) == 0);
        if (failed == 0)
            CHECK(send(fd, silent, sizeof silent, MSG_NOSIGNAL) == sizeof silent);
        close(fd);
        CHECK(plane_wait_down(&planes[2], failed, 1) && plane_wait_down(&planes[0], 1, 1));
        close_all(3);
        CHECK(atomic_load(&planes[failed].ends) == 1 && atomic_load(&planes[1 - failed].ends) == 0);
    }
}

/* Accept a connection at the address, and refuse the incarnation of the node that dials, without a proof. */
static void refuse_incarnation(const char *address) {
    static const uint8_t refusal[] = {
        2, 0, 0, 0, REMO__FRAME_REFUSE, 0, REMO__FRAME_INTERNAL, 0, REMO__REFUSAL_INCARNATION, 0};
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    name.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(bind(fd, (struct sockaddr *)&name, sizeof name) == 0 && listen(fd, 8) == 0);
    int caller = accept(fd, NULL, NULL);
    CHECK(caller >= 0 && send(caller, refusal, sizeof refusal, MSG_NOSIGNAL) == sizeof refusal);
    CHECK(plane_wait_why(&planes[1], 0, "was started twice"));
    close(caller);
    close(fd);
}

/* A process without the key, at the address of a failed node, cannot make a peer of that node fail. */
static void refusal_without_proof(void) {
    const char *const *addresses = tcp_addresses(2, "127.0.0.1");
    struct plane_options options = {.addresses = addresses, .network = true, .key_file = plane_key(3)};
    pid_t pid = process_start(0, 2, &options, 0);
    CHECK(plane_open(&planes[1], 1, 2, &options) == 0 && plane_wait_up(&planes[1], 1));
    process_end(pid, SIGKILL);
    CHECK(plane_wait_down(&planes[1], 0, 1));
    refuse_incarnation(addresses[0]);
    CHECK(atomic_load(&planes[1].ends) == 0);
    plane_close(&planes[1]);
}

/* ---- between machines: a network namespace with an address that is not loopback ------------------------ */

static bool network_make(const char *address) {
    struct ifreq request = {.ifr_name = "lo"};
    struct sockaddr_in *name = (struct sockaddr_in *)&request.ifr_addr;
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return false;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(fd, SIOCSIFFLAGS, &request) != 0)
        return false;
    snprintf(request.ifr_name, sizeof request.ifr_name, "lo:1");
    name->sin_family = AF_INET;
    inet_pton(AF_INET, address, &name->sin_addr);
    bool made = ioctl(fd, SIOCSIFADDR, &request) == 0;
    close(fd);
    return made;
}

static void pause_both(pid_t a, pid_t b) {
    pid_t pid = fork();
    if (pid == 0) {
        kill(b, SIGSTOP);
        kill(a, SIGSTOP);
        usleep(1500 * 1000);
        kill(a, SIGCONT);
        kill(b, SIGCONT);
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, NULL, 0) == pid);
}

static int silence_inside(void) {
    if (!network_make("10.99.0.1"))
        return 77;
    struct plane_options options = {
        .addresses = tcp_addresses(2, "10.99.0.1"), .network = true, .key_file = plane_key(4)};
    pid_t pid = process_start(1, 2, &options, 1);
    CHECK(plane_open(&planes[0], 0, 2, &options) == 0 && plane_wait_frames(&planes[0], 1, 1));
    /* A peer without frames for longer than the limit stays up, because of heartbeats. */
    usleep(1200 * 1000);
    CHECK(planes[0].peers[1].downs == 0);
    /* Both machines pause for a while, as virtual machines do: neither is detected as failed. */
    pause_both(getpid(), pid);
    usleep(800 * 1000);
    CHECK(planes[0].peers[1].downs == 0);
    uint64_t start = remo__now_ns();
    kill(pid, SIGSTOP);
    CHECK(plane_wait_down(&planes[0], 1, 1) && planes[0].peers[1].reason == -EHOSTDOWN);
    printf("     a silent machine is detected after %.0f ms\n",
           (double)(planes[0].peers[1].down_at - start) / 1e6);
    process_end(pid, SIGKILL);
    plane_close(&planes[0]);
    return 0;
}

/* Node 0 pauses. Node 1, to which it is connected by a network, counts it as failed. Node 2 does not, because
 * a Unix socket has no heartbeats. When node 0 resumes, it fails for both, and node 1 for none. */
static int silence_of_one_inside(void) {
    if (!network_make("10.99.0.1"))
        return 77;
    struct plane_options near = {.addresses = tcp_addresses(3, "10.99.0.1"),
                                 .key_file = plane_key(4),
                                 .silence_ns = REMO__NS_PER_S},
                         far = near;
    far.network = true;
    pid_t pid = process_start(0, 3, &near, 0);
    CHECK(plane_open(&planes[1], 1, 3, &far) == 0 && plane_open(&planes[2], 2, 3, &near) == 0);
    CHECK(plane_wait_up(&planes[1], 2) && plane_wait_up(&planes[2], 2));
    kill(pid, SIGSTOP);
    CHECK(plane_wait_down(&planes[1], 0, 1));
    pthread_mutex_lock(&planes[2].lock);
    CHECK(planes[2].peers[0].downs == 0);
    pthread_mutex_unlock(&planes[2].lock);
    kill(pid, SIGCONT);
    CHECK(plane_wait_down(&planes[2], 0, 1) && planes[2].peers[0].reason == -EHOSTDOWN);
    CHECK(plane_wait_up(&planes[1], 1) && plane_wait_up(&planes[2], 1));
    CHECK(atomic_load(&planes[1].ends) == 0 && atomic_load(&planes[2].ends) == 0);
    process_end(pid, SIGKILL);
    plane_close(&planes[1]);
    plane_close(&planes[2]);
    return 0;
}

/* Run a part of a test in a process that may make a network namespace of its own. */
static void run_in_process(int (*part)(void)) {
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int rc = part();
        fflush(stdout);
        _exit(rc);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
    if (WEXITSTATUS(status) == 77)
        printf("     skipped: this user cannot make a network namespace\n");
}

static void silence(void) {
    run_in_process(silence_inside);
}

static void silence_of_one(void) {
    run_in_process(silence_of_one_inside);
}

/* ---- all ----------------------------------------------------------------------------------------------- */

int main(int argc, char **argv) {
    static const struct control_case cases[] = {
        {"killed_unix", killed_unix},
        {"killed_tcp", killed_tcp},
        {"leaving", leaving},
        {"loss", loss},
        {"loss_of_two", loss_of_two},
        {"loss_by_two", loss_by_two},
        {"loss_after_loss", loss_after_loss},
        {"loss_of_machine", loss_of_machine},
        {"loss_unread", loss_unread},
        {"loss_of_leaver", loss_of_leaver},
        {"end_from_higher", end_from_higher},
        {"broken_stream", broken_stream},
        {"redial_before_end", redial_before_end},
        {"refusal_without_proof", refusal_without_proof},
        {"silence", silence},
        {"silence_of_one", silence_of_one},
        {NULL, NULL},
    };
    run_cases(cases, argc, argv);
    return 0;
}
