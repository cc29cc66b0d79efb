/* library.h - load a shared library on first use.
 *
 * Model:   a library is a table of functions, each with the symbol version of the headers that Remo was
 *          compiled with. Loading fills the table; stubs in Remo call the functions through it.
 * Signals: a library may replace signal handlers while it loads, or while it loads its own plug-ins; Remo
 *          restores them. (libfabric loads libinfinipath, whose constructor replaces the handlers of SIGSEGV,
 *          SIGBUS, SIGILL, SIGABRT, SIGINT and SIGTERM by a handler that calls exit(1).)
 * Threads: any. */
#ifndef REMO_BASE_LIBRARY_H
#define REMO_BASE_LIBRARY_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/bits.h"

struct remo__library_symbol {
    const char *name;
    const char *version; /* NULL: the library has no symbol versions */
    void *pointer;       /* of the function pointer in the table */
};

struct remo__library {
    const char *name;
    const char *package;      /* Debian's name */
    const char *const *files; /* tried in this order; NULL ends the list */
    const struct remo__library_symbol *symbols;
    size_t symbol_count;
    bool is_loaded;
};

/* Load the library and fill its table; without effect if it is loaded. It stays loaded until the process
 * ends.
 * Errors: -ENODEV (the library, or one of its functions, is not installed). */
int remo__library_load(struct remo__library *library);

struct remo__signals {
    struct sigaction actions[_NSIG];
    bool is_saved[_NSIG];
};

/* Save the action of every signal; restore the changed actions. The pair holds a process-wide lock: a second
 * thread would otherwise save handlers that a library has just installed. */
void remo__signals_save(struct remo__signals *ret_signals);
void remo__signals_restore(const struct remo__signals *signals);

/* ---- lists of symbols: they generate the table, the symbol names and the stubs ----
 *
 * A list is a macro LIST(CALL, LOAD) of lines KIND(TYPE, NAME, PARAMETERS, ARGUMENTS). KIND is LOAD for a
 * function that may load plug-ins, CALL for all others. */

/* Use before the library's header: the linker then sees each NAME declared there as remo__NAME. Remo's stubs
 * do not clash with the library in a program that links both. Macros could not do this: inline functions of
 * the header call the library too, and the header defines some functions as macros. */
#define REMO__LIBRARY_RENAME(type, name, parameters, arguments) \
    REMO__LIBRARY_PRAGMA(redefine_extname name remo__##name)
#define REMO__LIBRARY_PRAGMA(text) _Pragma(#text)

/* `struct { LIST(REMO__LIBRARY_MEMBER, REMO__LIBRARY_MEMBER) } table;` */
#define REMO__LIBRARY_MEMBER(type, name, parameters, arguments) type(*name) parameters;
#define REMO__LIBRARY_SYMBOL(type, name, parameters, arguments) {#name, NULL, &table.name},
/* For a library with symbol versions: src/fabric/symbols finds the versions that the linker chooses. */
#define REMO__LIBRARY_SYMBOL_VERSION(type, name, parameters, arguments) \
    {#name, REMO__VERSION_##name, &table.name},

/* Parentheses around a name prevent expansion as a macro of the library's header. */
#define REMO__LIBRARY_CALL(type, name, parameters, arguments) \
    type(name) parameters {                                   \
        return (table.name)arguments;                         \
    }
#define REMO__LIBRARY_LOAD(type, name, parameters, arguments) \
    type(name) parameters {                                   \
        struct remo__signals signals;                         \
        remo__signals_save(&signals);                         \
        type result = (table.name)arguments;                  \
        remo__signals_restore(&signals);                      \
        return result;                                        \
    }

#endif
