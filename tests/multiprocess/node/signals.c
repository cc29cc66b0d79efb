/* signals.c - a program of a user, for test_signals.sh: it uses only public header and shared library.
 * Its modes are described below. Exit 77: this machine does not have the fabric. */
#include <errno.h>
#include <remo/remo.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* signals same FABRIC     exit 0 if a node does not change the action of any signal, else 1
 * signals loaded FABRIC   print the shared libraries that are mapped while a node is open
 * signals crash FABRIC    open a node, then write to address 0
 * signals sleep FABRIC    open a node, print "ready", then sleep until a signal ends the program */

#define KERNEL_SA_RESTORER 0x04000000 /* the C library sets it in each action that it installs */

struct actions {
    struct sigaction of[_NSIG];
};

/* ---- signals ---- */

static void handler(int number) {
    (void)number;
}

static void actions_read(struct actions *ret_actions) {
    memset(ret_actions, 0, sizeof *ret_actions);
    for (int number = 1; number < _NSIG; number++)
        sigaction(number, NULL, &ret_actions->of[number]);
}

static bool is_same(const struct sigaction *a, const struct sigaction *b) {
    bool same = a->sa_handler == b->sa_handler
                && (a->sa_flags & ~KERNEL_SA_RESTORER) == (b->sa_flags & ~KERNEL_SA_RESTORER);
    for (int number = 1; number < _NSIG; number++)
        same = same && sigismember(&a->sa_mask, number) == sigismember(&b->sa_mask, number);
    return same;
}

static int changes_count(const struct actions *before, const char *when) {
    struct actions now;
    int count = 0;
    actions_read(&now);
    for (int number = 1; number < _NSIG; number++) {
        if (is_same(&before->of[number], &now.of[number]))
            continue;
        fprintf(stderr, "%s: the action of signal %d (%s) has changed\n", when, number, strsignal(number));
        count++;
    }
    return count;
}

/* ---- a node ---- */

static struct remo_node *node_open(const char *fabric) {
    struct remo_config config = {.fabric = fabric};
    struct remo_node *node = NULL;
    int rc = remo_node_open(&config, &node);
    if (rc == 0)
        return node;
    fprintf(stderr, "cannot open a node on fabric %s: %s\n", fabric, remo_last_error());
    exit(rc == -ENODEV ? 77 : 1);
}

/* Use the fabric, not only open it. */
static void node_use(struct remo_node *node) {
    struct remo_atomic_var *word = NULL;
    int rc = remo_atomic_var_open(remo_node_root(node), "word", NULL, &word);
    rc = rc ? rc : remo_atomic_var_fetch_add(word, 0, 1, NULL, NULL);
    if (rc != 0)
        fprintf(stderr, "cannot use fabric %s: %s\n", remo_node_fabric(node), remo_last_error());
    remo_atomic_var_close(word);
    if (rc != 0)
        exit(1);
}

/* ---- modes ---- */

static int same(const char *fabric) {
    struct actions at_start, before;
    actions_read(&at_start);
    int changes = 0;
    for (int number = 1; number < _NSIG; number++) {
        bool is_default = at_start.of[number].sa_handler == SIG_DFL;
        if (!is_default && at_start.of[number].sa_handler != SIG_IGN) {
            fprintf(stderr, "before main: signal %d (%s) has a handler\n", number, strsignal(number));
            changes++;
        }
    }
    struct sigaction own = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaddset(&own.sa_mask, SIGUSR2);
    sigaction(SIGUSR1, &own, NULL);
    sigaction(SIGTERM, &own, NULL);
    actions_read(&before);
    struct remo_node *node = node_open(fabric);
    changes += changes_count(&before, "after the open");
    node_use(node);
    changes += changes_count(&before, "after use");
    remo_node_close(node);
    changes += changes_count(&before, "after the close");
    return changes != 0;
}

static int loaded(const char *fabric) {
    struct remo_node *node = node_open(fabric);
    char line[512];
    node_use(node);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        const char *file = strchr(line, '/');
        if (file && strstr(file, ".so"))
            fputs(file, stdout);
    }
    if (maps)
        fclose(maps);
    remo_node_close(node);
    return 0;
}

static int crash(const char *fabric) {
    node_use(node_open(fabric));
    *(volatile int *)NULL = 0;
    return 0;
}

/* The parent of the test may ignore SIGINT, which a process inherits. */
static int sleep_until_signal(const char *fabric) {
    signal(SIGINT, SIG_DFL);
    node_use(node_open(fabric));
    puts("ready");
    fflush(stdout);
    while (pause() != 0) /* a signal without a handler ends the program */
        continue;
    return 0;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(const char *fabric);
    } modes[] = {{"same", same}, {"loaded", loaded}, {"crash", crash}, {"sleep", sleep_until_signal}};
    for (size_t i = 0; argc == 3 && i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[1], modes[i].name) == 0)
            return modes[i].run(argv[2]);
    }
    fprintf(stderr, "usage: signals same|loaded|crash|sleep FABRIC\n");
    return 2;
}
