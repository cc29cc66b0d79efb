/* library.c - unit tests of libraries loaded on first use.
 *
 * A missing library or function yields a sentence with a remedy, and signal handlers that a library replaces
 * are restored. The argument is the module of takes_signals.c. */
#include <errno.h>
#include <pthread.h>
#include <remo/error.h>
#include <string.h>

#include "base/library.h"
#include "unit.h"

#define THREADS 4
#define ROUNDS 50

#define SYMBOLS(CALL, LOAD) LOAD(int, takes_signals_call, (int number), (number))
SYMBOLS(REMO__LIBRARY_RENAME, REMO__LIBRARY_RENAME)
int takes_signals_call(int number);
static struct { SYMBOLS(REMO__LIBRARY_MEMBER, REMO__LIBRARY_MEMBER) } table;
SYMBOLS(REMO__LIBRARY_CALL, REMO__LIBRARY_LOAD)

static const char *module;

static void own_handler(int number) {
    (void)number;
}

static void own_info_handler(int number, siginfo_t *info, void *ctx) {
    (void)number, (void)info, (void)ctx;
}

/* SIGINT has a handler, SIGUSR1 a handler with a mask, SIGTERM is ignored, all others are unchanged. */
static void actions_set(struct sigaction *ret_usr1) {
    struct sigaction usr1 = {.sa_sigaction = own_info_handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaddset(&usr1.sa_mask, SIGUSR2);
    signal(SIGINT, own_handler);
    signal(SIGTERM, SIG_IGN);
    sigaction(SIGUSR1, &usr1, NULL);
    sigaction(SIGUSR1, NULL, ret_usr1);
}

static void assert_actions(const struct sigaction *segv, const struct sigaction *usr1) {
    struct sigaction now;
    sigset_t mask;
    sigaction(SIGSEGV, NULL, &now);
    assert_ptr_equal(now.sa_handler, segv->sa_handler);
    sigaction(SIGINT, NULL, &now);
    assert_ptr_equal(now.sa_handler, own_handler);
    sigaction(SIGTERM, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_IGN);
    sigaction(SIGUSR1, NULL, &now);
    assert_ptr_equal(now.sa_sigaction, own_info_handler);
    assert_int_equal(now.sa_flags, usr1->sa_flags);
    assert_int_equal(sigismember(&now.sa_mask, SIGUSR2), 1);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_int_equal(sigismember(&mask, SIGINT), 0);
}

static void *load_and_call(void *ctx) {
    for (int i = 0; i < ROUNDS; i++) {
        if (remo__library_load(ctx) != 0 || takes_signals_call(i) != i + 1)
            return ctx;
    }
    return NULL;
}

static void test_signals_are_kept(void **state) {
    (void)state;
    const char *const files[] = {"libremo-has-no-such.so.1", module, NULL};
    const struct remo__library_symbol symbols[] = {SYMBOLS(REMO__LIBRARY_SYMBOL, REMO__LIBRARY_SYMBOL)};
    struct remo__library library = {
        .name = "a test", .package = "none", .files = files, .symbols = symbols, .symbol_count = 1};
    struct sigaction segv, usr1;
    pthread_t threads[THREADS];
    sigaction(SIGSEGV, NULL, &segv);
    actions_set(&usr1);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, load_and_call, &library), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_true(library.is_loaded);
    assert_actions(&segv, &usr1);
}

static void test_missing_library(void **state) {
    (void)state;
    static const char *const files[] = {"libremo-has-no-such.so.1", NULL};
    struct remo__library library = {.name = "libsuch", .package = "libsuch1", .files = files};
    assert_int_equal(remo__library_load(&library), -ENODEV);
    assert_non_null(strstr(remo_last_error(), "cannot load libsuch: libremo-has-no-such.so.1"));
    assert_non_null(strstr(remo_last_error(), "install the package libsuch1"));
    assert_false(library.is_loaded);
}

/* A library that is too old: it lacks the function, or its version. */
static void test_missing_function(void **state) {
    (void)state;
    const char *const files[] = {module, NULL}, *const math[] = {"libm.so.6", NULL};
    void *pointer = NULL;
    const struct remo__library_symbol function[] = {{"takes_nothing", NULL, &pointer}};
    const struct remo__library_symbol version[] = {{"cos", "GLIBC_99.0", &pointer}};
    struct remo__library library = {
        .name = "libsuch", .package = "libsuch1", .files = files, .symbols = function, .symbol_count = 1};
    assert_int_equal(remo__library_load(&library), -ENODEV);
    assert_non_null(strstr(remo_last_error(), "takes_nothing"));
    assert_non_null(strstr(remo_last_error(), "newer version of the package libsuch1"));
    library.files = math;
    library.symbols = version;
    assert_int_equal(remo__library_load(&library), -ENODEV);
    assert_non_null(strstr(remo_last_error(), "GLIBC_99.0"));
    assert_null(pointer);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signals_are_kept),
        cmocka_unit_test(test_missing_library),
        cmocka_unit_test(test_missing_function),
    };
    module = argc > 1 ? argv[1] : "";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
