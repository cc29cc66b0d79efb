/* threads_fence.c - implements threads_fence.h by the system call membarrier. A process registers for its
 * fast form once; a call before that fails with EPERM. */
#include "base/threads_fence.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool membarrier(int command) {
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

bool remo__threads_fence(void) {
    if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
        return true;
    return errno == EPERM && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
           && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

bool remo__machine_fence_register(void) {
    return membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
           && membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

void remo__machine_fence(void) {
    (void)membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED); /* fails only without memory: it has succeeded once */
}
