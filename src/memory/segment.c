/* segment.c - implements segment.h: creates, checks and maps shared memory.
 *
 * A created segment has all its space, so an access never fails for lack of memory. The order of the calls
 * decides whether the kernel uses huge pages (segment.h). */
#include "memory/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "memory/available.h"

/* Missing in the headers of Debian 12. An older kernel rejects them; the code continues without. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE_BYTES REMO__SEGMENT_ALIGN_BYTES
#define STEP_BYTES (UINT64_C(64) << 20) /* allocated between two checks of free memory */
#define STEP_TIMEOUT_NS \
    (400 * REMO__NS_PER_MS) /* for the huge pages of one step: 13 ms each, 0.2 ms is usual */
#define INTERRUPTED_MAX 100 /* signals tolerated in one step */
#define MIB(bytes) ((unsigned long long)((bytes) >> 20))

static uint64_t page_bytes(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- creating the file ---- */

static const char *remedy(int code) {
    return code == -EMFILE ? "; raise the limit that ulimit -n shows" : "";
}

static int file_fail(const char *what) {
    int code = -errno;
    return remo__fail(code, "cannot create a shared memory file%s: %s%s", what, strerror(-code),
                      remedy(code));
}

static int memfd_open(unsigned int flags) {
    int fd = memfd_create("remo", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | flags);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("remo", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    return fd;
}

static int dir_open(const char *dir, int *ret_fd) {
    struct statfs fs;
    if (statfs(dir, &fs) != 0) {
        int code = -errno;
        return remo__fail(code, "cannot use the memory directory %s: %s", dir, strerror(-code));
    }
    if (fs.f_type != TMPFS_MAGIC && fs.f_type != HUGETLBFS_MAGIC)
        return remo__fail(-EINVAL,
                          "cannot use the memory directory %s: neither a tmpfs nor a hugetlbfs; choose "
                          "/dev/shm, or set none",
                          dir);
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        int code = -errno;
        return remo__fail(code, "cannot create a file in the memory directory %s: %s%s", dir, strerror(-code),
                          remedy(code));
    }
    *ret_fd = fd;
    return 0;
}

/* A signal makes fallocate fail and undo its work, so retry. */
static int space_allocate(int fd, uint64_t offset, uint64_t bytes) {
    int rc, tries = 0;
    do
        rc = fallocate(fd, 0, (off_t)offset, (off_t)bytes);
    while (rc != 0 && errno == EINTR && ++tries < INTERRUPTED_MAX);
    return rc;
}

/* A fully allocated memfd of reserved huge pages, or -1: the caller then uses ordinary pages. */
static int hugetlb_create(uint64_t bytes) {
    if (bytes % HUGE_BYTES != 0 || remo__memory_huge_pages_free(HUGE_BYTES) < bytes / HUGE_BYTES)
        return -1;
    int fd = memfd_open(MFD_HUGETLB | MFD_HUGE_2MB);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)bytes) != 0 || space_allocate(fd, 0, bytes) != 0) {
        close(fd); /* another process has taken the pages */
        return -1;
    }
    return fd;
}

/* ---- allocating its space ---- */

static int memory_check(uint64_t step, uint64_t bytes) {
    uint64_t available = remo__memory_available();
    uint64_t usable = available - remo__min(available, REMO__MEMORY_SPARE_BYTES);
    if (usable >= step)
        return 0;
    return remo__fail(
        -ENOSPC,
        "cannot allocate a segment of %llu MiB: only %llu MiB of memory are available; "
        "make the arena smaller, stop other programs, or raise the memory limit of the container",
        MIB(bytes), MIB(usable));
}

static int allocate_fail(int fd, const char *dir, uint64_t bytes) {
    int code = -errno;
    struct statfs fs = {0};
    if (code != -ENOSPC || fstatfs(fd, &fs) != 0)
        return remo__fail(code, "cannot allocate a segment of %llu MiB: %s", MIB(bytes), strerror(-code));
    return remo__fail(
        -ENOSPC,
        "cannot allocate a segment of %llu MiB: %s has %llu MiB free; enlarge it "
        "(mount -o remount,size=...), make the arena smaller, or choose another memory directory",
        MIB(bytes), dir ? dir : "shared memory", MIB((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize));
}

/* Try to back the whole 2 MiB units of [at, at + bytes) by huge pages. The kernel touches the pages, so a
 * full filesystem is an error and no SIGBUS. In fragmented memory the kernel may search for long: return
 * false then, so that the rest of the segment uses small pages. */
static bool make_huge(char *at, uint64_t bytes) {
    uint64_t whole = bytes & ~(HUGE_BYTES - 1), start = remo__now_ns();
    for (uint64_t i = 0; i < whole; i += HUGE_BYTES) {
        if (madvise(at + i, page_bytes(), MADV_POPULATE_WRITE) != 0)
            return false;
    }
    if (madvise(at, whole, MADV_COLLAPSE) != 0)
        return false;
    return remo__now_ns() - start < STEP_TIMEOUT_NS;
}

static int allocate_steps(int fd, const char *dir, uint64_t bytes, char *at, bool *ret_huge) {
    bool huge = bytes >= HUGE_BYTES;
    for (uint64_t done = 0; done < bytes; done += STEP_BYTES) {
        uint64_t step = remo__min(STEP_BYTES, bytes - done);
        int rc = memory_check(step, bytes);
        if (rc < 0)
            return rc;
        huge = huge && make_huge(at + done, step);
        if (space_allocate(fd, done, step) != 0)
            return allocate_fail(fd, dir, bytes);
    }
    *ret_huge = huge;
    return 0;
}

static int allocate(int fd, const char *dir, uint64_t bytes, bool *ret_huge) {
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0 || ftruncate(fd, (off_t)bytes) != 0)
        return file_fail("");
    if (fs.f_type == HUGETLBFS_MAGIC) {
        if (bytes % (uint64_t)fs.f_bsize != 0)
            return remo__fail(-EINVAL,
                              "the pages of %s have %llu bytes, and a segment of %llu bytes is not a "
                              "multiple; change the segment size",
                              dir, (unsigned long long)fs.f_bsize, (unsigned long long)bytes);
        *ret_huge = true;
        return space_allocate(fd, 0, bytes) == 0 ? 0 : allocate_fail(fd, dir, bytes);
    }
    int rc = memory_check(bytes, bytes);
    if (rc < 0)
        return rc;
    char *at = remo__segment_reserve(bytes);
    if (!at)
        return -ENOMEM;
    rc = remo__segment_map(at, bytes, fd) ? allocate_steps(fd, dir, bytes, at, ret_huge) : -ENOMEM;
    munmap(at, bytes);
    return rc;
}

int remo__segment_create(const char *dir, uint64_t bytes, int *ret_fd, bool *ret_huge) {
    if (bytes == 0 || bytes % page_bytes() != 0 || bytes > INT64_MAX)
        return remo__fail(-EINVAL, "a segment of %llu bytes is not a multiple of the page size, %llu bytes",
                          (unsigned long long)bytes, (unsigned long long)page_bytes());
    bool huge = true;
    int rc = 0, fd = dir ? -1 : hugetlb_create(bytes);
    if (fd < 0) {
        if (dir)
            rc = dir_open(dir, &fd);
        else if ((fd = memfd_open(0)) < 0)
            rc = file_fail("");
        if (rc < 0)
            return rc;
        rc = allocate(fd, dir, bytes, &huge);
        if (rc < 0)
            goto fail;
    }
    /* A file in a tmpfs cannot be sealed; remo__segment_check requires the same user instead. */
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0 && !dir) {
        rc = file_fail(" that is sealed");
        goto fail;
    }
    *ret_fd = fd;
    *ret_huge = huge;
    return 0;
fail:
    close(fd);
    return rc;
}

/* ---- mapping ---- */

int remo__segment_check(int fd, uint64_t offset, uint64_t bytes) {
    struct stat status;
    struct statfs fs;
    if (fstat(fd, &status) != 0 || fstatfs(fd, &fs) != 0)
        return remo__fail(-EINVAL, "a peer's segment has no usable file: %s", strerror(errno));
    if (fs.f_type != TMPFS_MAGIC && fs.f_type != HUGETLBFS_MAGIC)
        return remo__fail(-EINVAL, "a peer's segment is not shared memory");
    uint64_t page = fs.f_type == HUGETLBFS_MAGIC ? (uint64_t)fs.f_bsize : page_bytes();
    if (bytes == 0 || offset % page != 0 || bytes % page != 0)
        return remo__fail(-EINVAL,
                          "a peer's segment of %llu bytes at %#llx does not fit its pages of %llu bytes",
                          (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)page);
    if ((uint64_t)status.st_size < bytes || (uint64_t)status.st_blocks * 512 < bytes)
        return remo__fail(-EINVAL, "a peer's segment of %llu bytes has %llu bytes, %llu of them allocated",
                          (unsigned long long)bytes, (unsigned long long)status.st_size,
                          (unsigned long long)status.st_blocks * 512);
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals >= 0 && (seals & F_SEAL_SHRINK))
        return 0;
    if (status.st_uid != geteuid() || status.st_nlink != 0 || (seals >= 0 && !(seals & F_SEAL_SEAL)))
        return remo__fail(-EACCES,
                          "cannot map a peer's segment: another process could shrink it; memory that is not "
                          "sealed must be an unlinked file of the same user");
    return 0;
}

void *remo__segment_map(void *at, uint64_t bytes, int fd) {
    void *mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
    if (mapped == MAP_FAILED) {
        remo__fail(-errno, "cannot map a segment of %llu MiB: %s; see ulimit -v and vm.max_map_count",
                   MIB(bytes), strerror(errno));
        return NULL;
    }
    madvise(mapped, bytes, MADV_HUGEPAGE); /* an error means small pages, which also work */
    return mapped;
}

void remo__segment_populate(void *at, uint64_t bytes) {
    if (bytes <= REMO__SEGMENT_POPULATE_MAX_BYTES)
        madvise(at, bytes,
                MADV_POPULATE_READ); /* pages of a shared mapping become writable too; faster than writing */
}

void *remo__segment_reserve(uint64_t bytes) {
    uint64_t size = remo__align_up(bytes, page_bytes());
    char *raw = mmap(NULL, size + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
        remo__fail(-ENOMEM,
                   "cannot reserve %llu MiB of address space: %s; make the arenas smaller, or see ulimit -v",
                   MIB(bytes), strerror(errno));
        return NULL;
    }
    char *at = (char *)remo__align_up((uintptr_t)raw, HUGE_BYTES);
    if (at > raw)
        munmap(raw, (size_t)(at - raw));
    munmap(at + size, (size_t)(raw + HUGE_BYTES - at));
    return at;
}
