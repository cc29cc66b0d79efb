/* mutant.h - mark steps that a proof needs. The simulator omits a step and checks that a test fails.
 *
 *     if (!REMO__MUTANT(lock_release_fence))
 *         rc = fence();
 * The name begins with the object's name. In normal builds the macro is the constant false.
 */
#pragma once

#include <stdbool.h>

#ifdef REMO_SIM
/* The name of the active mutant, or NULL; compared by address. */
extern const char *remo__mutant_active;

#define REMO__MUTANT(name)                                                                           \
    __extension__({                                                                                  \
        static const char remo__mutant_text[] = #name;                                               \
        static const char *const remo__mutant_entry __attribute__((section("remo_mutants"), used)) = \
            remo__mutant_text;                                                                       \
        __builtin_expect(remo__mutant_active != 0, 0) && remo__mutant_is(remo__mutant_entry);        \
    })
bool remo__mutant_is(const char *name);
#else
#define REMO__MUTANT(name) false
#endif
