#include "fabric/segment.h"

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
#include "fabric/memory.h"

/* Newer than the headers of Debian 12; an older kernel refuses them, and we go on without. */
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
#define STEP_BYTES (UINT64_C(64) << 20) /* allocated between two looks at what is free */
#define STEP_PATIENCE_NS \
    (400 * REMO__NS_PER_MS) /* for the huge pages of one step: 13 ms each, 0.2 is usual */
#define INTERRUPTED_MAX 100 /* signals endured in one step */
#define MIB(bytes) ((unsigned long long)((bytes) >> 20))

static uint64_t page_bytes(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- making the file ---- */

static int file_fail(const char *what) {
    int code = -errno;
    return remo__fail(code, "cannot make a shared memory file%s: %s%s", what, strerror(-code),
                      code == -EMFILE ? "; raise the limit that ulimit -n shows" : "");
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
        return remo__fail(code, "the memory directory %s: %s", dir, strerror(-code));
    }
    if (fs.f_type != TMPFS_MAGIC && fs.f_type != HUGETLBFS_MAGIC)
        return remo__fail(-EINVAL,
                          "the memory directory %s is neither a tmpfs nor a hugetlbfs: choose /dev/shm, or "
                          "leave it out",
                          dir);
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        int code = -errno;
        return remo__fail(code, "cannot make a file in the memory directory %s: %s", dir, strerror(-code));
    }
    *ret_fd = fd;
    return 0;
}

/* The kernel gives up, and undoes its work, when a signal comes. */
static int space_allocate(int fd, uint64_t offset, uint64_t bytes) {
    int rc, tries = 0;
    do
        rc = fallocate(fd, 0, (off_t)offset, (off_t)bytes);
    while (rc != 0 && errno == EINTR && ++tries < INTERRUPTED_MAX);
    return rc;
}

/* A memfd of reserved huge pages with all its space, or -1: then ordinary pages do. */
static int hugetlb_create(uint64_t bytes) {
    if (bytes % HUGE_BYTES != 0 || remo__memory_huge_pages_free(HUGE_BYTES) < bytes / HUGE_BYTES)
        return -1;
    int fd = memfd_open(MFD_HUGETLB | MFD_HUGE_2MB);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)bytes) != 0 || space_allocate(fd, 0, bytes) != 0) {
        close(fd); /* somebody was faster */
        return -1;
    }
    return fd;
}

/* ---- allocating its space ---- */

static int look_at_memory(uint64_t step, uint64_t bytes) {
    uint64_t available = remo__memory_available();
    uint64_t usable = available - remo__min(available, REMO__MEMORY_SPARE_BYTES);
    if (usable >= step)
        return 0;
    return remo__fail(
        -ENOSPC,
        "a segment of %llu MiB does not fit into memory, where %llu MiB may still be used: "
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
        "a segment of %llu MiB does not fit into %s, which has %llu MiB free: make it larger "
        "(mount -o remount,size=...), make the arena smaller, or choose another memory directory",
        MIB(bytes), dir ? dir : "shared memory", MIB((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize));
}

/* Try to have the whole 2 MiB pages of [at, at + bytes) come as such. Touching is done by the kernel, so that
 * a full filesystem is an error here and no SIGBUS. Where memory is fragmented the kernel may search for
 * long: then this says no, so that the rest of the segment does without. */
static bool make_huge(char *at, uint64_t bytes) {
    uint64_t whole = bytes & ~(HUGE_BYTES - 1), start = remo__now_ns();
    for (uint64_t i = 0; i < whole; i += HUGE_BYTES) {
        if (madvise(at + i, page_bytes(), MADV_POPULATE_WRITE) != 0)
            return false;
    }
    if (whole > 0 && madvise(at, whole, MADV_COLLAPSE) != 0)
        return false;
    return remo__now_ns() - start < STEP_PATIENCE_NS;
}

static int allocate_steps(int fd, const char *dir, uint64_t bytes, char *at, bool *ret_huge) {
    bool huge = bytes >= HUGE_BYTES;
    for (uint64_t done = 0; done < bytes; done += STEP_BYTES) {
        uint64_t step = remo__min(STEP_BYTES, bytes - done);
        int rc = look_at_memory(step, bytes);
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
                              "the pages of %s have %llu bytes: a segment of %llu bytes is no multiple of "
                              "that",
                              dir, (unsigned long long)fs.f_bsize, (unsigned long long)bytes);
        *ret_huge = true;
        return space_allocate(fd, 0, bytes) == 0 ? 0 : allocate_fail(fd, dir, bytes);
    }
    int rc = look_at_memory(bytes, bytes);
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
        return remo__fail(-EINVAL, "a segment of %llu bytes: it must be a multiple of the page size, %llu",
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
    /* A file in a tmpfs cannot be sealed; there, remo__segment_check asks for the same user instead. */
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

/* ---- using it ---- */

int remo__segment_check(int fd, uint64_t offset, uint64_t bytes) {
    struct stat status;
    struct statfs fs;
    if (fstat(fd, &status) != 0 || fstatfs(fd, &fs) != 0)
        return remo__fail(-EINVAL, "a peer's segment came without a usable file: %s", strerror(errno));
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
                          "a peer's segment could be shrunk while it is in use, so it is not mapped: memory "
                          "that is not sealed must be an unlinked file of the same user");
    return 0;
}

void *remo__segment_map(void *at, uint64_t bytes, int fd) {
    void *mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
    if (mapped == MAP_FAILED) {
        remo__fail(-errno, "cannot map a segment of %llu MiB: %s; see ulimit -v and vm.max_map_count",
                   MIB(bytes), strerror(errno));
        return NULL;
    }
    madvise(mapped, bytes, MADV_HUGEPAGE); /* without transparent huge pages it fails, and nothing is lost */
    return mapped;
}

void remo__segment_populate(void *at, uint64_t bytes) {
    if (bytes <= REMO__SEGMENT_POPULATE_MAX_BYTES)
        madvise(at, bytes,
                MADV_POPULATE_READ); /* a shared mapping: writable at once, and quicker than writing */
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
