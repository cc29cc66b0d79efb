/* error.c - implements error.h: the sentence of the last error, and the names and texts of codes.
 *
 * The sentence belongs to the thread or task. Each function keeps errno, so a caller may report a failure
 * first and read errno afterwards. */
#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The meaning of each code in Remo. The C library supplies the names, and the texts of other codes. */
static const struct {
    int code;
    const char *text;
} error_table[] = {
    {EACCES, "the credential was refused"},
    {EADDRINUSE, "the address or port is in use"},
    {EAGAIN, "not possible now; try again"},
    {EALREADY, "the operation is already in progress"},
    {EBADMSG, "the received data is malformed"},
    {EBUSY, "the object is in use"},
    {ECANCELED, "the operation was cancelled before it began"},
    {ECONNREFUSED, "no process listens at the address"},
    {ECONNRESET, "the connection was lost"},
    {EDEADLK, "the caller already holds this lock"},
    {EEXIST, "it exists already"},
    {EFAULT, "the address is not network memory"},
    {EHOSTDOWN, "a peer has failed or left"},
    {EHOSTUNREACH, "the host cannot be reached"},
    {EINTR, "interrupted by a signal"},
    {EINVAL, "an argument is invalid"},
    {EIO, "the network reported an error"},
    {EMFILE, "too many files are open"},
    {EMSGSIZE, "too large"},
    {ENAMETOOLONG, "the name is too long"},
    {ENODEV, "no such fabric or device"},
    {ENOENT, "it does not exist"},
    {ENOMEM, "out of memory"},
    {ENOSPC, "no space left"},
    {ENOSYS, "not available on this system"},
    {ENOTCONN, "not connected"},
    {ENOTRECOVERABLE, "the object was lost with a failed peer"},
    {ENOTUNIQ, "two nodes claim the same name or number"},
    {EOPNOTSUPP, "not supported by this fabric"},
    {EOVERFLOW, "a number is too large"},
    {EOWNERDEAD, "the last holder failed while it held the lock"},
    {EPERM, "not permitted"},
    {EPIPE, "the peer has closed"},
    {EPROTO, "the peer uses another protocol or version"},
    {ERANGE, "out of range"},
    {ESHUTDOWN, "the node or object is closing"},
    {ESTALE, "the address belongs to an earlier incarnation, or the value has changed"},
    {ETIMEDOUT, "the deadline has passed"},
    {EXDEV, "the objects belong to different nodes or channels"},
};

static _Thread_local struct remo__last_error of_thread;
_Thread_local struct remo__last_error *remo__last_error_of_task __attribute__((tls_model("initial-exec")));

static struct remo__last_error *last_error(void) {
    return remo__last_error_of_task ? remo__last_error_of_task : &of_thread;
}

/* Accepts codes of either sign. INT_MIN has no positive form and maps to a value without a name. */
static int errno_of(int code) {
    return code == INT_MIN ? INT_MAX : abs(code);
}

const char *remo_last_error(void) {
    const struct remo__last_error *last = last_error();
    return last->sentence ? last->sentence : "";
}

struct remo__sentence remo__sentence_get(void) {
    const struct remo__last_error *last = last_error();
    return (struct remo__sentence){.text = last->sentence, .code = last->code};
}

void remo__sentence_put(struct remo__sentence sentence) {
    struct remo__last_error *last = last_error();
    last->sentence = sentence.text;
    last->code = sentence.code;
}

int remo__sentence_code(void) {
    return last_error()->code;
}

const char *remo_error_name(int code) {
    if (code == 0)
        return "OK";
    const char *name = strerrorname_np(errno_of(code));
    return name ? name : "unknown";
}

const char *remo_error_text(int code) {
    if (code == 0)
        return "success";
    for (size_t i = 0; i < sizeof error_table / sizeof error_table[0]; i++) {
        if (error_table[i].code == errno_of(code))
            return error_table[i].text;
    }
    const char *text = strerrordesc_np(errno_of(code));
    return text ? text : "unknown error";
}

/* Replace the sentence. The caller has formatted it elsewhere: the old sentence may be one of its
 * arguments. */
static void sentence_set(int code, const char *text) {
    struct remo__last_error *last = last_error();
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++) /* names from users and peers must not control a terminal */
        last->text[i] = (unsigned char)text[i] < ' ' || text[i] == '\x7f' ? '?' : text[i];
    last->text[length] = '\0';
    last->sentence = last->text;
    last->code = code;
}

int remo__fail_null(const char *function, const char *argument) {
    return remo__fail(-EINVAL, "%s: the argument `%s` is NULL; pass a valid pointer", function, argument);
}

int remo__fail(int code, const char *format, ...) {
    assert(code < 0);
    int saved_errno = errno;
    char text[REMO__SENTENCE_MAX];
    va_list args;
    va_start(args, format);
    if (vsnprintf(text, sizeof text, format, args) < 0)
        text[0] = '\0';
    va_end(args);
    sentence_set(code, text);
    errno = saved_errno;
    return code;
}

int remo__fail_more(int code, const char *format, ...) {
    assert(code < 0);
    int saved_errno = errno;
    char text[REMO__SENTENCE_MAX];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length >= 0 && (size_t)length < sizeof text)
        snprintf(text + length, sizeof text - (size_t)length, ": %s", remo_last_error());
    sentence_set(code, text);
    errno = saved_errno;
    return code;
}

int remo__fail_static(int code, const char *sentence) {
    assert(code < 0);
    struct remo__last_error *last = last_error();
    last->sentence = sentence;
    last->code = code;
    return code;
}
