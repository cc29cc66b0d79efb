/* test_control.c - tests of the control plane with real sockets, threads and processes: connections, frames,
 * errors, incarnations, and connections of strangers, which have no effect. Each case is a function; the
 * arguments name the cases to run, by default all. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/patience.h"
#include "base/error.h"
#include "base/random.h"
#include "bootstrap/control/connection.h"
#include "bootstrap/key.h"
#include "control_common.h"

static struct remo__random dice;

/* ---- helpers ------------------------------------------------------------------------------------------- */

static void check_peers(uint32_t size) {
    for (uint32_t i = 0; i < size; i++) {
        for (uint32_t j = 0; j < size; j++) {
            char hello[64];
            const struct plane_peer *peer = &planes[i].peers[j];
            snprintf(hello, sizeof hello, "hello of %u", j);
            CHECK(!peer->disorder && peer->ups == (i != j));
            CHECK(i == j || (strcmp(peer->hello, hello) == 0 && peer->same_machine));
        }
    }
}

static int tcp_connect(const char *address) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    name.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&name, sizeof name) == 0);
    return fd;
}

static int unix_connect(uint32_t rank) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%.80s/%u.sock", plane_folder(), rank);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&name, sizeof name) == 0);
    return fd;
}

/* ---- coming up ----------------------------------------------------------------------------------------- */

static void start_orders(void) {
    static const uint32_t sizes[] = {1, 2, 2, 3, 3, 3, 5, 8, 16};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        uint32_t size = sizes[k], order[16] = {0};
        for (uint32_t i = 0; i < size; i++) {
            uint32_t at = (uint32_t)remo__random_below(&dice, i + 1);
            order[i] = order[at];
            order[at] = i;
        }
        for (uint32_t i = 0; i < size; i++) {
            CHECK(plane_open(&planes[order[i]], order[i], size, NULL) == 0);
            if (k % 2)
                usleep((useconds_t)remo__random_below(&dice, 20000));
        }
        for (uint32_t i = 0; i < size; i++)
            CHECK(plane_wait_up(&planes[i], size - 1));
        check_peers(size);
        close_all(size);
    }
}

static void tcp_with_key(void) {
    struct plane_options options = {
        .addresses = tcp_addresses(4, "127.0.0.1"), .network = true, .key_file = plane_key(7)};
    open_all(4, &options);
    check_peers(4);
    for (uint64_t i = 0; i < 500; i++)
        CHECK(plane_send(&planes[3], 0, i, 8 + (size_t)remo__random_below(&dice, 5000), -1) == 0);
    CHECK(plane_wait_frames(&planes[0], 3, 500));
    check_peers(4);
    close_all(4);
}

/* Connected by TCP first, found to be on the same machine, and then connected by a Unix socket, which carries
 * descriptors. */
static void switch_to_unix(void) {
    char both[2][160];
    const char *list[] = {both[0], both[1]};
    for (uint32_t i = 0; i < 2; i++)
        snprintf(both[i], sizeof both[i], "tcp:127.0.0.1:%u,unix:%s/%u.sock", new_port(), plane_folder(), i);
    struct plane_options options = {.addresses = list};
    CHECK(plane_open(&planes[1], 1, 2, &options) == 0);
    CHECK(plane_wait_why(&planes[1], 0, "127.0.0.1"));
    CHECK(plane_open(&planes[0], 0, 2, &options) == 0);
    CHECK(plane_wait_up(&planes[0], 1) && plane_wait_up(&planes[1], 1));
    int fd = memfd_create("test", MFD_CLOEXEC);
    CHECK(write(fd, &(uint64_t){0}, 8) == 8 && plane_send(&planes[0], 1, 0, 8, fd) == 0);
    close(fd);
    CHECK(plane_wait_frames(&planes[1], 0, 1) && planes[1].peers[0].fds == 1);
    close_all(2);
}

/* With TCP addresses only, nodes of one machine connect by Unix sockets nevertheless. */
static void same_machine_uses_unix(void) {
    struct plane_options options = {.addresses = tcp_addresses(3, "localhost")};
    open_all(3, &options);
    check_peers(3);
    for (uint32_t i = 0; i < 3; i++) {
        int fd = memfd_create("test", MFD_CLOEXEC);
        CHECK(write(fd, &(uint64_t){0}, 8) == 8 && plane_send(&planes[i], (i + 1) % 3, 0, 8, fd) == 0);
        close(fd);
    }
    for (uint32_t i = 0; i < 3; i++)
        CHECK(plane_wait_frames(&planes[(i + 1) % 3], i, 1) && planes[(i + 1) % 3].peers[i].fds == 1);
    close_all(3);
}

/* 64 processes start at the same time; rank 0 is this one. */
static void many_processes(void) {
    const uint32_t size = 64;
    pid_t pids[64];
    uint64_t start = remo__now_ns();
    for (uint32_t i = 1; i < size; i++)
        pids[i] = process_start(i, size, NULL, 1); /* its frame reports that it is connected to all peers */
    CHECK(plane_open(&planes[0], 0, size, NULL) == 0);
    CHECK(plane_wait_up(&planes[0], size - 1));
    for (uint32_t i = 1; i < size; i++)
        CHECK(plane_wait_frames(&planes[0], i, 1));
    printf("     64 processes, started and all connected to all: %.0f ms\n",
           (double)(remo__now_ns() - start) / 1e6);
    for (uint32_t i = 1; i < size; i++)
        kill(pids[i], SIGKILL);
    for (uint32_t i = 1; i < size; i++)
        waitpid(pids[i], NULL, 0);
    for (uint32_t i = 1; i < size; i++)
        CHECK(plane_wait_down(&planes[0], i, 1) && planes[0].peers[i].reason == -EHOSTDOWN);
    plane_close(&planes[0]);
}

/* ---- frames -------------------------------------------------------------------------------------------- */

static void order_and_content(void) {
    const uint64_t frames = 2000;
    open_all(3, NULL);
    for (uint64_t n = 0; n < frames; n++) {
        for (uint32_t i = 0; i < 3; i++) {
            for (uint32_t j = 0; j < 3; j++) {
                size_t bytes =
                    n % 100 == 0 ? REMO__FRAME_BYTES_MAX : 8 + (size_t)remo__random_below(&dice, 300);
                CHECK(plane_send(&planes[i], j, n, bytes, -1) == 0);
            }
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t j = 0; j < 3; j++)
            CHECK(plane_wait_frames(&planes[i], j, frames) && planes[i].peers[j].frames == frames
                  && !planes[i].peers[j].disorder);
    }
    close_all(3);
}

static void descriptors(void) {
    open_all(2, NULL);
    for (uint64_t n = 0; n < 600; n++) {
        int fd = -1;
        if (n % 3 != 0) {
            fd = memfd_create("test", MFD_CLOEXEC);
            CHECK(fd >= 0 && write(fd, &n, sizeof n) == sizeof n);
        }
        CHECK(plane_send(&planes[0], 1, n, n % 7 == 0 ? 50000 : 8, fd) == 0);
        CHECK(plane_send(&planes[1], 1, n, 8, fd) == 0); /* to itself */
        if (fd >= 0)
            close(fd);
    }
    CHECK(plane_wait_frames(&planes[1], 0, 600) && plane_wait_frames(&planes[1], 1, 600));
    CHECK(planes[1].peers[0].fds == 400 && !planes[1].peers[0].disorder);
    CHECK(planes[1].peers[1].fds == 400 && !planes[1].peers[1].disorder);
    close_all(2);
}

/* The receiver is blocked in a callback: send returns -ENOBUFS, and all queued frames arrive afterwards. */
static void full_send_queue(void) {
    open_all(2, NULL);
    atomic_store(&planes[1].hold, true);
    uint64_t sent = 0;
    int rc;
    while ((rc = plane_send(&planes[0], 1, sent, REMO__FRAME_BYTES_MAX, -1)) == 0)
        CHECK(++sent < 3000);
    CHECK(rc == -ENOBUFS && sent > (REMO__SEND_QUEUE_BYTES_MAX / REMO__FRAME_BYTES_MAX) / 2);
    uint64_t start = remo__now_ns();
    atomic_store(&planes[1].hold, false);
    CHECK(plane_wait_frames(&planes[1], 0, sent) && !planes[1].peers[0].disorder);
    printf("     %.0f MiB in %.0f ms\n", (double)sent * REMO__FRAME_BYTES_MAX / 0x1p20,
           (double)(remo__now_ns() - start) / 1e6);
    CHECK(plane_send(&planes[0], 1, sent, 8, -1) == 0 && plane_wait_frames(&planes[1], 0, sent + 1));
    close_all(2);
}

static void *burst_thread(void *ctx) {
    struct plane *plane = ctx;
    uint8_t data[64] = {0};
    for (int i = 0; i < 5000; i++)
        CHECK(remo__control_send(plane->control, 1, 1, data, sizeof data, -1) == 0);
    return NULL;
}

static void many_senders(void) {
    pthread_t threads[4];
    open_all(2, NULL);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, burst_thread, &planes[0]) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK(plane_wait_frames(&planes[1], 0, 20000));
    close_all(2);
}

static void wrong_arguments(void) {
    uint8_t data[REMO__FRAME_BYTES_MAX + 1] = {0};
    CHECK(plane_open(&planes[0], 0, 2, NULL) == 0);
    CHECK(remo__control_send(planes[0].control, 1, 1, data, 8, -1) == -ENOTCONN);
    CHECK(remo__control_send(planes[0].control, 2, 1, data, 8, -1) == -EINVAL);
    CHECK(remo__control_send(planes[0].control, 1, 1, data, sizeof data, -1) == -EMSGSIZE);
    plane_close(&planes[0]);
    remo__control_close(NULL);
}

/* ---- strangers ----------------------------------------------------------------------------------------- */

static void write_garbage(int fd, int kind) {
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static const uint8_t long_header[] = {0xff, 0xff, 0xff, 0x7f, 1, 0, 2, 0};
    static const uint8_t empty_hello[] = {0, 0, 0, 0, 1, 0, 2, 0};
    static const uint8_t proof_first[] = {4, 0, 0, 0, 2, 0, 2, 0, 1, 2, 3, 4};
    uint8_t noise[300];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)remo__random_next(&dice);
    const void *data[] = {http, long_header, empty_hello, proof_first, noise};
    size_t bytes[] = {sizeof http, sizeof long_header, sizeof empty_hello, sizeof proof_first, sizeof noise};
    if (kind < 5)
        send(fd, data[kind], bytes[kind], MSG_NOSIGNAL);
}

/* Garbage, silence and a flood of connections, before and while the real peers connect and send. */
static void strangers(void) {
    const char *const *addresses = tcp_addresses(3, "127.0.0.1");
    struct plane_options options = {.addresses = addresses, .network = true, .key_file = plane_key(9)};
    enum { FLOOD = 300 };
    int fds[FLOOD];
    CHECK(plane_open(&planes[0], 0, 3, &options) == 0);
    for (int i = 0; i < FLOOD; i++) {
        fds[i] = tcp_connect(addresses[0]);
        write_garbage(fds[i], i % 10);
    }
    uint64_t start = remo__now_ns();
    CHECK(plane_open(&planes[1], 1, 3, &options) == 0 && plane_open(&planes[2], 2, 3, &options) == 0);
    CHECK(plane_wait_up(&planes[0], 2) && plane_wait_up(&planes[1], 2) && plane_wait_up(&planes[2], 2));
    printf("     up after %.0f ms beside %d strangers\n", (double)(remo__now_ns() - start) / 1e6, FLOOD);
    for (uint64_t n = 0; n < 200; n++) {
        int fd = tcp_connect(addresses[n % 3]);
        write_garbage(fd, (int)(n % 5));
        CHECK(plane_send(&planes[1], 0, n, 1000, -1) == 0);
        close(fd);
    }
    CHECK(plane_wait_frames(&planes[0], 1, 200));
    check_peers(3);
    for (int i = 0; i < FLOOD; i++)
        close(fds[i]);
    close_all(3);
}

/* A connection that sends no handshake ends after some seconds. */
static void stranger_without_handshake(void) {
    char byte;
    CHECK(plane_open(&planes[0], 0, 2, NULL) == 0);
    int fd = unix_connect(0);
    uint64_t start = remo__now_ns();
    CHECK(recv(fd, &byte, 1, 0) <= 0);
    double seconds = (double)(remo__now_ns() - start) / 1e9;
    CHECK(seconds > 2.5 && in_time(remo__now_ns() - start, 10 * REMO__NS_PER_S));
    close(fd);
    plane_close(&planes[0]);
}

static void mismatch(const struct plane_options *a, const struct plane_options *b, uint32_t size_b,
                     const char *why) {
    CHECK(plane_open(&planes[0], 0, 2, a) == 0 && plane_open(&planes[1], 1, size_b, b) == 0);
    CHECK(plane_wait_why(&planes[1], 0, why));
    CHECK(planes[0].peers[1].ups == 0 && planes[1].peers[0].ups == 0);
    close_all(2);
}

static void wrong_credentials(void) {
    const char *const *addresses = tcp_addresses(3, "127.0.0.1");
    struct plane_options good = {.addresses = addresses, .network = true, .key_file = plane_key(1)};
    struct plane_options other_key = {.addresses = addresses, .network = true, .key_file = plane_key(2)};
    struct plane_options no_key = {.addresses = addresses, .network = true};
    struct plane_options other_job = {
        .addresses = addresses, .network = true, .key_file = good.key_file, .job = "another"};
    mismatch(&good, &other_key, 2, "the credential is wrong");
    mismatch(&good, &no_key, 2, "one node has a key file");
    mismatch(&good, &other_job, 2, "different jobs");
    mismatch(&good, &good, 3, "number of nodes");
}

static void munge(void) {
    struct plane_options options = {.addresses = tcp_addresses(3, "127.0.0.1"), .network = true};
    if (!remo__munge_present()) {
        printf("     skipped: no munge daemon here\n");
        return;
    }
    open_all(3, &options);
    CHECK(planes[0].roster->use_munge);
    for (uint64_t n = 0; n < 100; n++)
        CHECK(plane_send(&planes[0], 2, n, 500, -1) == 0);
    CHECK(plane_wait_frames(&planes[2], 0, 100));
    check_peers(3);
    close_all(3);
}

/* A node that waits for a rank reports why it refused the rank, also if the rank called. */
static void reason_at_both_ends(void) {
    const char *const *addresses = tcp_addresses(2, "127.0.0.1");
    struct plane_options good = {.addresses = addresses, .network = true, .key_file = plane_key(1)};
    struct plane_options bad = {.addresses = addresses, .network = true, .key_file = plane_key(2)};
    CHECK(plane_open(&planes[0], 0, 2, &good) == 0 && plane_open(&planes[1], 1, 2, &bad) == 0);
    CHECK(plane_wait_why(&planes[0], 1, "the credential is wrong"));
    close_all(2);
}

/* Accept `callers` connections at the address, and close each at once. */
static void hang_up_on_callers(const char *address, int callers) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    name.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(bind(fd, (struct sockaddr *)&name, sizeof name) == 0 && listen(fd, 8) == 0);
    for (int i = 0; i < callers; i++) {
        int caller = accept(fd, NULL, NULL);
        CHECK(caller >= 0);
        close(caller);
    }
    close(fd);
}

/* The reason of a refusal remains when the refusing node has ended and no process listens at its address. */
static void reason_remains(void) {
    const char *const *addresses = tcp_addresses(2, "127.0.0.1");
    struct plane_options good = {.addresses = addresses, .network = true, .key_file = plane_key(1)};
    struct plane_options bad = {.addresses = addresses, .network = true, .key_file = plane_key(2)};
    CHECK(plane_open(&planes[1], 1, 2, &bad) == 0);
    CHECK(plane_wait_why(&planes[1], 0, "connection refused"));
    CHECK(plane_open(&planes[0], 0, 2, &good) == 0);
    CHECK(plane_wait_why(&planes[1], 0, "the credential is wrong"));
    plane_close(&planes[0]);
    hang_up_on_callers(addresses[0], 3);
    CHECK(plane_wait_why(&planes[1], 0, "the credential is wrong"));
    CHECK(plane_open(&planes[0], 0, 2, &bad) == 0);
    CHECK(plane_wait_up(&planes[1], 1));
    char why[512];
    CHECK(remo__control_why(planes[1].control, 0, why, sizeof why) == REMO__WHY_AWAY && why[0] == '\0');
    close_all(2);
}

static void taken_address(void) {
    const char *const *addresses = tcp_addresses(2, "127.0.0.1");
    struct plane_options options = {.addresses = addresses, .network = true};
    CHECK(plane_open(&planes[0], 0, 2, &options) == 0);
    CHECK(plane_open(&planes[1], 0, 2, &options) == -EADDRINUSE && strstr(remo_last_error(), addresses[0]));
    plane_close(&planes[0]);
    CHECK(plane_open(&planes[0], 0, 2, NULL) == 0);
    CHECK(plane_open(&planes[1], 0, 2, NULL) == -EADDRINUSE && strstr(remo_last_error(), "0.sock"));
    plane_close(&planes[0]);
}

static void missing_node(void) {
    CHECK(plane_open(&planes[1], 1, 3, NULL) == 0 && plane_open(&planes[2], 2, 3, NULL) == 0);
    CHECK(plane_wait_up(&planes[1], 1) && plane_wait_up(&planes[2], 1));
    CHECK(plane_wait_why(&planes[1], 0, "no process listens at unix:")
          && plane_wait_why(&planes[2], 0, "0.sock"));
    plane_close(&planes[1]);
    plane_close(&planes[2]);
}

/* ---- incarnations -------------------------------------------------------------------------------------- */

/* A rank comes up again only with a higher incarnation. Rank `restarting` leaves and joins again. */
static void restart_rank(uint32_t restarting) {
    uint32_t other = 1 - restarting;
    for (uint32_t incarnation = 0; incarnation < 3; incarnation++) {
        struct plane_options options = {.incarnation = incarnation};
        CHECK(incarnation > 0 || plane_open(&planes[other], other, 2, NULL) == 0);
        CHECK(plane_open(&planes[restarting], restarting, 2, &options) == 0);
        CHECK(plane_wait_up(&planes[other], 1) && plane_wait_up(&planes[restarting], 1));
        CHECK(planes[other].peers[restarting].incarnation == incarnation
              && planes[other].peers[restarting].ups == (int)incarnation + 1);
        plane_close(&planes[restarting]);
        CHECK(plane_wait_down(&planes[other], restarting, (int)incarnation + 1));
    }
    struct plane_options old = {.incarnation = 2};
    CHECK(plane_open(&planes[restarting], restarting, 2, &old) == 0);
    CHECK(plane_wait_why(&planes[restarting > other ? restarting : other],
                         restarting > other ? other : restarting, "was started twice"));
    CHECK(planes[other].peers[restarting].ups == 3);
    CHECK(atomic_load(&planes[0].ends) == 0 && atomic_load(&planes[1].ends) == 0);
    close_all(2);
}

static void incarnations(void) {
    restart_rank(0);
    restart_rank(1);
}

/* The next incarnation comes up before the earlier one is detected as failed: `down` precedes `up`. */
static void restart_before_failure(void) {
    const char *const *addresses = tcp_addresses(2, "127.0.0.1");
    struct plane_options first = {.addresses = addresses, .network = true},
                         second = {.addresses = addresses, .network = true, .incarnation = 1};
    pid_t pid = process_start(1, 2, &first, 1);
    CHECK(plane_open(&planes[0], 0, 2, &first) == 0 && plane_wait_frames(&planes[0], 1, 1));
    /* The stopped process keeps its port, so the next incarnation listens at another one. */
    kill(pid, SIGSTOP);
    char elsewhere[64];
    const char *moved[] = {addresses[0], elsewhere};
    snprintf(elsewhere, sizeof elsewhere, "tcp:127.0.0.1:%u", new_port());
    second.addresses = moved;
    CHECK(plane_open(&planes[1], 1, 2, &second) == 0);
    CHECK(plane_wait_down(&planes[0], 1, 1) && plane_wait_up(&planes[0], 1));
    CHECK(planes[0].peers[1].incarnation == 1 && !planes[0].peers[1].disorder);
    process_end(pid, SIGKILL);
    close_all(2);
}

/* ---- all ----------------------------------------------------------------------------------------------- */

int main(int argc, char **argv) {
    static const struct control_case cases[] = {
        {"start_orders", start_orders},
        {"tcp_with_key", tcp_with_key},
        {"switch_to_unix", switch_to_unix},
        {"same_machine_uses_unix", same_machine_uses_unix},
        {"order_and_content", order_and_content},
        {"descriptors", descriptors},
        {"full_send_queue", full_send_queue},
        {"many_senders", many_senders},
        {"wrong_arguments", wrong_arguments},
        {"strangers", strangers},
        {"stranger_without_handshake", stranger_without_handshake},
        {"wrong_credentials", wrong_credentials},
        {"munge", munge},
        {"reason_at_both_ends", reason_at_both_ends},
        {"reason_remains", reason_remains},
        {"taken_address", taken_address},
        {"missing_node", missing_node},
        {"incarnations", incarnations},
        {"restart_before_failure", restart_before_failure},
        {"many_processes", many_processes},
        {NULL, NULL},
    };
    remo__random_seed(&dice, (uint64_t)getpid());
    run_cases(cases, argc, argv);
    return 0;
}
