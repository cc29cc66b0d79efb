/* mutant.h - the places in the floors where a step can be left out (base/mutant.h), as they were found in
 * this build. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sim/fault.h"

/* The n-th name, sorted, without repetition; NULL: no more. */
const char *sim_mutant_at(uint32_t n);
/* Switch one on (NULL: none); false: there is none of this name. */
bool sim_mutant_set(const char *name);
/* Does it belong to this object? Names begin with the object's; those of lower floors ("fence_", "cell_",
 * "op_") concern many. */
bool sim_mutant_concerns(const char *name, const char *object);

/* Where the lack of a step is known to show soonest; NULL: anywhere. */
struct sim_hint {
    const char *mutant, *object, *test, *profile;
    enum sim_fault_kind fault;
};
const struct sim_hint *sim_mutant_hint(const char *name, const char *object);
