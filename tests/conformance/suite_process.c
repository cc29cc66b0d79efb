/* suite_process.c - nodes in separate processes. This process is the hub, its children are the nodes.
 * The hub distributes cards with their file descriptors, and implements the barriers. */
#include "suite.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
    pid_t pid;
    int fd; /* -1: the stream has ended */
    bool waits;
};

/* A card with the file of its one segment. */
static void card_send(int socket, const struct suite_card *card) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec data = {.iov_base = (void *)card, .iov_len = sizeof *card};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(header), &card->segments[0].fd, sizeof(int));
    CHECK_EQ(sendmsg(socket, &message, MSG_NOSIGNAL), sizeof *card);
}

static void card_receive(int socket, struct suite_card *ret_card) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec data = {.iov_base = ret_card, .iov_len = sizeof *ret_card};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    CHECK_EQ(recvmsg(socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC), sizeof *ret_card);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    CHECK(header && header->cmsg_type == SCM_RIGHTS);
    memcpy(&ret_card->segments[0].fd, CMSG_DATA(header), sizeof(int));
}

/* ---- a child ---- */

void suite_process_barrier(struct suite_process *process) {
    char byte = 'b';
    CHECK_EQ(send(process->hub, &byte, 1, MSG_NOSIGNAL), 1);
    CHECK_EQ(recv(process->hub, &byte, 1, MSG_WAITALL), 1);
}

static int child_run(const struct suite *suite, uint32_t rank, uint32_t size, int hub,
                     void (*body)(struct suite_process *process)) {
    static struct suite_process process;
    process.rank = rank;
    process.size = size;
    process.hub = hub;
    suite_node_open(&process.node, suite, rank, size);
    card_send(hub, &process.node.card);
    for (uint32_t i = 0; i < size; i++) {
        static struct suite_card card;
        card_receive(hub, &card);
        suite_node_meet(&process.node, &card);
        close(card.segments[0].fd);
    }
    suite_process_barrier(&process);
    body(&process);
    suite_process_barrier(&process);
    suite_node_close(&process.node);
    close(hub);
    return 0;
}

/* ---- the hub ---- */

static void hub_cards(struct child *children, uint32_t size) {
    static struct suite_card cards[SUITE_NODES_MAX];
    for (uint32_t i = 0; i < size; i++)
        card_receive(children[i].fd, &cards[i]);
    for (uint32_t i = 0; i < size; i++) {
        for (uint32_t j = 0; j < size; j++)
            card_send(children[i].fd, &cards[j]);
    }
    for (uint32_t i = 0; i < size; i++)
        close(cards[i].segments[0].fd);
}

/* Release the waiting nodes when all running nodes wait. */
static uint32_t hub_barrier(struct child *children, uint32_t size) {
    uint32_t live = 0, waiting = 0;
    for (uint32_t i = 0; i < size; i++) {
        live += children[i].fd >= 0;
        waiting += children[i].fd >= 0 && children[i].waits;
    }
    if (live == 0 || waiting < live)
        return live;
    for (uint32_t i = 0; i < size; i++) {
        if (children[i].fd >= 0)
            send(children[i].fd, "g", 1, MSG_NOSIGNAL);
        children[i].waits = false;
    }
    return live;
}

static void hub_run(struct child *children, uint32_t size) {
    while (hub_barrier(children, size) > 0) {
        struct pollfd polls[SUITE_NODES_MAX];
        for (uint32_t i = 0; i < size; i++)
            polls[i] = (struct pollfd){.fd = children[i].fd, .events = POLLIN};
        CHECK(poll(polls, size, -1) > 0); /* the alarm of the case bounds it */
        for (uint32_t i = 0; i < size; i++) {
            char byte;
            if (!polls[i].revents)
                continue;
            if (recv(children[i].fd, &byte, 1, 0) == 1) {
                children[i].waits = true;
            } else {
                close(children[i].fd);
                children[i].fd = -1;
            }
        }
    }
}

void suite_processes(const struct suite *suite, uint32_t size, uint32_t victim,
                     void (*body)(struct suite_process *process)) {
    struct child children[SUITE_NODES_MAX] = {0};
    CHECK(size <= SUITE_NODES_MAX);
    fflush(NULL);
    for (uint32_t i = 0; i < size; i++) {
        int pair[2];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            for (uint32_t j = 0; j < i; j++)
                close(children[j].fd); /* else those children's ends would not be detected */
            close(pair[0]);
            alarm(100);
            exit(child_run(suite, i, size, pair[1], body));
        }
        close(pair[1]);
        children[i] = (struct child){.pid = pid, .fd = pair[0]};
    }
    hub_cards(children, size);
    hub_run(children, size);
    uint32_t bad = 0;
    for (uint32_t i = 0; i < size; i++) {
        int status = 0;
        CHECK_EQ(waitpid(children[i].pid, &status, 0), children[i].pid);
        bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (i == victim ? !killed : !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fprintf(stderr, "node %u ended with status %#x\n", i, (unsigned)status);
            bad++;
        }
    }
    CHECK_EQ(bad, 0);
}
