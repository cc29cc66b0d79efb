/* control_common.h - nodes with a control plane, in this process and in others, for the tests of the control
 * plane. */
#ifndef REMO_TESTS_CONTROL_COMMON_H
#define REMO_TESTS_CONTROL_COMMON_H

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/ports.h"
#include "plane.h"

static struct plane planes[REMO__NODES_MAX];

static void open_all(uint32_t size, const struct plane_options *options) {
    for (uint32_t i = 0; i < size; i++)
        CHECK(plane_open(&planes[i], i, size, options) == 0);
    for (uint32_t i = 0; i < size; i++)
        CHECK(plane_wait_up(&planes[i], size - 1));
}

static void close_all(uint32_t size) {
    for (uint32_t i = 0; i < size; i++)
        plane_close(&planes[i]);
}

static uint16_t new_port(void) {
    uint16_t port = port_reserve();
    CHECK(port != 0);
    return port;
}

static const char *const *tcp_addresses(uint32_t size, const char *host) {
    static char text[16][64];
    static const char *list[16];
    CHECK(size <= 16);
    for (uint32_t i = 0; i < size; i++) {
        snprintf(text[i], sizeof text[i], "tcp:%s:%u", host, new_port());
        list[i] = text[i];
    }
    return list;
}

/* Start a process with one plane, which connects to all peers, sends `frames` frames to rank 0, and waits for
 * its end. */
static pid_t process_start(uint32_t rank, uint32_t size, const struct plane_options *options,
                           uint64_t frames) {
    fflush(stdout);
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid > 0)
        return pid;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent); /* do not outlive a failed test */
    CHECK(plane_open(&planes[rank], rank, size, options) == 0);
    CHECK(plane_wait_up(&planes[rank], size - 1));
    for (uint64_t i = 0; i < frames; i++)
        CHECK(plane_send(&planes[rank], 0, i, 100, -1) == 0);
    for (;;)
        pause();
}

static void process_end(pid_t pid, int signal_number) {
    kill(pid, signal_number);
    waitpid(pid, NULL, 0);
}

/* ---- all cases of a test ---- */

struct control_case {
    const char *name; /* NULL: the end of the list */
    void (*run)(void);
};

static bool is_selected(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            return true;
    }
    return argc < 2;
}

/* Run the cases that the arguments name, by default all. */
static void run_cases(const struct control_case *cases, int argc, char **argv) {
    plane_folder();
    for (; cases->name; cases++) {
        if (!is_selected(cases->name, argc, argv))
            continue;
        uint64_t start = remo__now_ns();
        printf("%s\n", cases->name);
        fflush(stdout);
        cases->run();
        printf("     %.0f ms\n", (double)(remo__now_ns() - start) / 1e6);
    }
    plane_folder_remove();
}

#endif
