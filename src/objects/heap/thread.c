/* thread.c - the state of a thread in a heap (heap.h). The first call of the thread makes it, the end of the
 * thread releases what it owns, the next thread with the index inherits it, and the close of the heap frees
 * it. */
#include <stdlib.h>

#include "objects/heap/heap.h"

int remo__heap_thread(struct remo_heap *heap, struct remo__thread **ret_thread,
                      struct heap_thread **ret_state) {
    struct remo__thread *thread = remo__thread(heap->node);
    if (remo__unlikely(!thread))
        return remo__last_code();
    struct heap_thread **state = &heap->threads[thread->index];
    if (remo__unlikely(!*state)) { /* only the thread with this index uses the entry */
        *state = calloc(1, sizeof **state);
        if (!*state)
            return remo__fail(-ENOMEM, "no memory for the slabs of a thread");
    }
    *ret_thread = thread;
    *ret_state = *state;
    return 0;
}
