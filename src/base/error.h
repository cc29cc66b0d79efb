/* error.h - set the sentence that remo_last_error() returns.
 *
 * The function that detects a failure describes it:
 *     return remo__fail(-EINVAL, "the name has %zu bytes, at most %d are allowed", length, REMO_NAME_MAX);
 * A caller may add context in front ("opening queue jobs: the name has ..."), and returns the same code:
 *     return remo__fail_more(rc, "opening queue %s", name); */
#pragma once

#include <errno.h>
#include <remo/error.h>
#include <stddef.h>

/* The longest sentence, its terminator included; longer sentences are truncated. */
#define REMO__SENTENCE_MAX 512

struct remo__last_error {
    const char *sentence; /* NULL: none yet; else `text` or a static string */
    int code;             /* 0: none yet */
    char text[REMO__SENTENCE_MAX];
};

/* Where the functions below keep the sentence: of the task that runs, or NULL: of the thread. */
extern _Thread_local struct remo__last_error *remo__last_error_of_task
    __attribute__((tls_model("initial-exec")));

/* Let `into` receive the errors of this thread until remo__errors_restore, because they are not those of the
 * caller. Returns the argument for that call. No call in between parks a task. */
static inline struct remo__last_error *remo__errors_discard(struct remo__last_error *into) {
    struct remo__last_error *before = remo__last_error_of_task;
    into->sentence = NULL;
    into->code = 0;
    remo__last_error_of_task = into;
    return before;
}
static inline void remo__errors_restore(struct remo__last_error *before) {
    remo__last_error_of_task = before;
}

/* Set this thread's sentence; return `code` (negative). Keeps errno. The arguments may include
 * remo_last_error(). */
int remo__fail(int code, const char *format, ...) __attribute__((cold, format(printf, 2, 3)));

/* Put "<context>: " in front of this thread's sentence; return `code`. */
int remo__fail_more(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As remo__fail, for frequent, ordinary results (an empty queue, a missing key). Stores the pointer, and
 * neither formats nor copies. `sentence` must have static lifetime. */
int remo__fail_static(int code, const char *sentence);

int remo__sentence_code(void);

/* Keep the sentence over a call that may set a static one. */
struct remo__sentence {
    const char *text; /* NULL: none yet */
    int code;
};
struct remo__sentence remo__sentence_get(void);
void remo__sentence_put(struct remo__sentence sentence);

/* After a function that returns NULL: return the code of this thread's sentence. It is negative, and the
 * compiler can see that: outputs are set if the caller returns 0. */
static inline int remo__last_code(void) {
    int code = remo__sentence_code();
    return code < 0 ? code : -EIO;
}

/* Set a sentence that names the function and its NULL argument; return -EINVAL. */
int remo__fail_null(const char *function, const char *argument) __attribute__((cold));

/* At the entry of a public function that returns a code: return -EINVAL if `pointer` is NULL. */
#define REMO__REQUIRE(pointer)                          \
    do {                                                \
        if (__builtin_expect(!(pointer), 0))            \
            return remo__fail_null(__func__, #pointer); \
    } while (0)
