/* mutant.c - the list of mutants, and the active one.
 * Each use of REMO__MUTANT leaves a pointer to its name in a section of the program. */
#include "sim/mutant.h"

#include <stdlib.h>
#include <string.h>

#include "base/mutant.h"

#define MUTANTS_MAX 256u

extern const char *const __start_remo_mutants[] __attribute__((weak));
extern const char *const __stop_remo_mutants[] __attribute__((weak));

const char *remo__mutant_active;

bool remo__mutant_is(const char *name) {
    return name == remo__mutant_active || strcmp(name, remo__mutant_active) == 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static uint32_t all(const char *const **ret_names) {
    static const char *names[MUTANTS_MAX];
    static uint32_t count;
    uint32_t found = 0;
    if (count == 0) {
        for (const char *const *at = __start_remo_mutants; at != __stop_remo_mutants && found < MUTANTS_MAX;
             at++)
            names[found++] = *at;
        qsort(names, found, sizeof names[0], by_name);
        for (uint32_t i = 0; i < found; i++)
            if (count == 0 || strcmp(names[i], names[count - 1]) != 0)
                names[count++] = names[i];
    }
    *ret_names = names;
    return count;
}

const char *sim_mutant_at(uint32_t n) {
    const char *const *names;
    return n < all(&names) ? names[n] : NULL;
}

bool sim_mutant_set(const char *name) {
    const char *at;
    remo__mutant_active = NULL;
    for (uint32_t i = 0; name && (at = sim_mutant_at(i)) != NULL; i++)
        if (strcmp(at, name) == 0)
            remo__mutant_active = at;
    return !name || remo__mutant_active;
}

bool sim_mutant_concerns(const char *name, const char *object) {
    static const struct {
        const char *part, *objects;
    } lower[] = {{"fence_", "region"},
                 {"cell_", "owned_var"},
                                           {"leave_", "lock queue heap"}};
    size_t length = strlen(object);
    if (strncmp(name, object, length) == 0 && name[length] == '_')
        return true;
    for (uint32_t i = 0; i < sizeof lower / sizeof lower[0]; i++)
        if (strncmp(name, lower[i].part, strlen(lower[i].part)) == 0 && strstr(lower[i].objects, object))
            return true;
    return false;
}

/* Nearly all mutants are caught at once by every case. These need a certain one. */
static const struct sim_hint hints[] = {
};

const struct sim_hint *sim_hint_at(uint32_t n) {
    return n < sizeof hints / sizeof hints[0] ? &hints[n] : NULL;
}

const struct sim_hint *sim_mutant_hint(const char *name, const char *object) {
    for (uint32_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (strcmp(hints[i].mutant, name) == 0 && strcmp(hints[i].object, object) == 0)
            return &hints[i];
    return NULL;
}
