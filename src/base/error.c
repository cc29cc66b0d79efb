#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What each code means here. Names come from the C library, and so does the text of a code not listed. */
static const struct {
    int code;
    const char *text;
} error_table[] = {
    {EACCES, "the credential was refused"},
    {EADDRINUSE, "the address or port is taken"},
    {EAGAIN, "not possible right now, try again"},
    {EALREADY, "this is already under way"},
    {EBADMSG, "the bytes received make no sense"},
    {EBUSY, "the object is in use"},
    {ECANCELED, "the operation was given up before it began"},
    {ECONNREFUSED, "nobody listens there"},
    {ECONNRESET, "the connection broke"},
    {EDEADLK, "the caller holds this lock already"},
    {EEXIST, "there is one already"},
    {EFAULT, "the address is not network memory"},
    {EHOSTDOWN, "a peer has died or left"},
    {EHOSTUNREACH, "the host cannot be reached"},
    {EINTR, "interrupted by a signal"},
    {EINVAL, "an argument is wrong"},
    {EIO, "the network reported an error"},
    {EMFILE, "too many files are open"},
    {EMSGSIZE, "too large"},
    {ENAMETOOLONG, "the name is too long"},
    {ENODEV, "no such fabric or device"},
    {ENOENT, "there is no such thing"},
    {ENOMEM, "out of memory"},
    {ENOSPC, "no room left"},
    {ENOSYS, "not available on this system"},
    {ENOTCONN, "not connected"},
    {ENOTRECOVERABLE, "the object was lost with a dead peer"},
    {ENOTUNIQ, "two nodes claim the same name or number"},
    {EOPNOTSUPP, "not supported by this fabric"},
    {EOVERFLOW, "a number is too large"},
    {EOWNERDEAD, "the last owner died while it held the lock"},
    {EPERM, "not permitted"},
    {EPIPE, "the other side has closed"},
    {EPROTO, "the peer speaks another protocol or version"},
    {ERANGE, "out of range"},
    {ESHUTDOWN, "the node or object is closing"},
    {ESTALE, "the address belongs to an earlier life of its node"},
    {ETIMEDOUT, "the deadline has passed"},
    {EXDEV, "the objects belong to different nodes or channels"},
};

static _Thread_local struct {
    const char *sentence; /* NULL: none yet; else `text` or something that lives for ever */
    char text[REMO__SENTENCE_MAX];
} last_error;

/* Codes are accepted with either sign; what has no positive form is no errno code. */
static int errno_of(int code) {
    return code == INT_MIN ? INT_MAX : abs(code);
}

const char *remo_last_error(void) {
    return last_error.sentence ? last_error.sentence : "";
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

/* Replace the sentence. It was formatted elsewhere first, because its arguments may be the old one. */
static void sentence_set(const char *text) {
    memcpy(last_error.text, text, strlen(text) + 1);
    last_error.sentence = last_error.text;
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
    sentence_set(text);
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
    sentence_set(text);
    errno = saved_errno;
    return code;
}

int remo__fail_static(int code, const char *sentence) {
    assert(code < 0);
    last_error.sentence = sentence;
    return code;
}
