/* mutant.h - the mutants compiled into this build: steps of the library that can be left out
 * (base/mutant.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sim/world/fault.h"

/* Return the n-th name, sorted and without repetition; NULL: no more. */
const char *sim_mutant_at(uint32_t n);
/* Activate a mutant (NULL: none). Returns false if there is no such mutant. */
bool sim_mutant_set(const char *name);
/* Return whether a mutant belongs to this object. Names begin with the object's name; those of
 * lower layers ("fence_", "cell_", "node_") belong to an object that shows them. */
bool sim_mutant_concerns(const char *name, const char *object);

/* The case that shows a mutant soonest. */
struct sim_hint {
    const char *mutant, *object, *test, *profile;
    enum sim_fault_kind fault;
};
const struct sim_hint *sim_mutant_hint(const char *name, const char *object);
/* Return the n-th hint; NULL: no more. */
const struct sim_hint *sim_hint_at(uint32_t n);
