/* segment.c - unit tests of segments: allocation, seals, checks of peers' segments, huge pages.
 * A request beyond the available memory must fail with a sentence, never with a SIGBUS. */
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "memory/available.h"
#include "memory/segment.h"

#include "unit.h"

#define MIB (UINT64_C(1) << 20)

static void test_allocated(void **state) {
    (void)state;
    static const uint64_t sizes[] = {4096, 3 * 4096, 2 * MIB, 6 * MIB + 4096, 130 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int fd;
        bool huge;
        struct stat status;
        assert_int_equal(remo__segment_create(NULL, sizes[i], &fd, &huge), 0);
        assert_int_equal(fstat(fd, &status), 0);
        assert_int_equal(status.st_size, sizes[i]);
        assert_true((uint64_t)status.st_blocks * 512 >= sizes[i]);
        assert_int_equal(remo__segment_check(fd, 0, sizes[i]), 0);
        assert_int_equal(ftruncate(fd, 0), -1); /* sealed */
        assert_int_equal(ftruncate(fd, (off_t)sizes[i] + 4096), -1);
        char *map = remo__segment_map(NULL, sizes[i], fd);
        assert_non_null(map);
        remo__segment_populate(map, sizes[i]);
        assert_int_equal(map[0], 0);
        map[sizes[i] - 1] = 1;
        munmap(map, sizes[i]);
        close(fd);
    }
}

/* The bytes of this process that are mapped by huge pages of shared memory. */
static uint64_t huge_mapped(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    unsigned long long kib = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "ShmemPmdMapped: %llu", &kib) == 1)
            break;
    }
    if (file)
        fclose(file);
    return kib << 10;
}

static void test_huge(void **state) {
    (void)state;
    int fd;
    bool huge;
    if (getenv("MESON_EXE_WRAPPER")) {
        print_message("SKIPPED: an emulator does not tell which pages are huge\n");
        skip();
    }
    assert_int_equal(remo__segment_create(NULL, 32 * MIB, &fd, &huge), 0);
    if (!huge || remo__memory_huge_pages_free(2 * MIB) > 0) { /* /proc counts reserved pages elsewhere */
        close(fd);
        print_message("SKIPPED: this kernel gives no transparent huge pages for shared memory\n");
        skip();
    }
    char *at = remo__segment_reserve(32 * MIB);
    assert_non_null(at);
    assert_int_equal((uintptr_t)at % REMO__SEGMENT_ALIGN_BYTES, 0);
    assert_ptr_equal(remo__segment_map(at, 32 * MIB, fd), at);
    remo__segment_populate(at, 32 * MIB);
    assert_true(huge_mapped() >= 32 * MIB);
    munmap(at, 32 * MIB);
    close(fd);
}

/* ---- reserved huge pages, which few machines have ---- */

static struct {
    uint64_t reserved;           /* pages; 0: the machine decides */
    uint32_t files;              /* created */
    uint32_t hugetlb_files;      /* of these, with MFD_HUGETLB; here they are ordinary */
    uint32_t failing_fallocates; /* the next ones fail */
} pages;

uint64_t __real_remo__memory_huge_pages_free(uint64_t page_bytes);
uint64_t __wrap_remo__memory_huge_pages_free(uint64_t page_bytes);
uint64_t __wrap_remo__memory_huge_pages_free(uint64_t page_bytes) {
    return pages.reserved > 0 ? pages.reserved : __real_remo__memory_huge_pages_free(page_bytes);
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags) {
    bool is_hugetlb = pages.reserved > 0 && (flags & MFD_HUGETLB);
    if (is_hugetlb)
        flags &= ~(unsigned)(MFD_HUGETLB | MFD_HUGE_2MB);
    int fd = __real_memfd_create(name, flags);
    pages.hugetlb_files += fd >= 0 && is_hugetlb;
    pages.files += fd >= 0;
    return fd;
}

int __real_fallocate64(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t bytes) {
    if (pages.failing_fallocates == 0)
        return __real_fallocate64(fd, mode, offset, bytes);
    pages.failing_fallocates--;
    errno = ENOSPC;
    return -1;
}

/* Create a segment, and check how many files this took. Only the file of the segment remains open. */
static void check_files(uint64_t bytes, uint32_t hugetlb_files, uint32_t files) {
    int fd, lowest = dup(1);
    bool huge;
    struct stat status;
    close(lowest);
    pages.files = pages.hugetlb_files = 0;
    assert_int_equal(remo__segment_create(NULL, bytes, &fd, &huge), 0);
    assert_int_equal(pages.hugetlb_files, hugetlb_files);
    assert_int_equal(pages.files, files);
    assert_int_equal(fd, lowest);
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(status.st_size, bytes);
    assert_true((uint64_t)status.st_blocks * 512 >= bytes);
    assert_true(huge || hugetlb_files == 0 || files == 2);
    close(fd);
}

/* A program may have closed its standard input. */
static void test_descriptor_0(void **state) {
    (void)state;
    int input = dup(0);
    close(0);
    errno = EINVAL; /* of an earlier call */
    check_files(4096, 0, 1);
    assert_int_equal(dup2(input, 0), 0);
    close(input);
}

static void test_reserved_pages(void **state) {
    (void)state;
    pages.reserved = 2;
    check_files(4 * MIB, 1, 1);
    check_files(6 * MIB, 0, 1); /* more than are reserved */
    check_files(3 * MIB, 0, 1); /* not a multiple of the page */
    pages.failing_fallocates = 1;
    check_files(4 * MIB, 1, 2); /* another process has taken the pages */
    pages.reserved = 0;
}

static void test_refused(void **state) {
    (void)state;
    int fd = -5;
    bool huge;
    assert_int_equal(remo__segment_create(NULL, 0, &fd, &huge), -EINVAL);
    assert_int_equal(remo__segment_create(NULL, 4097, &fd, &huge), -EINVAL);
    assert_int_equal(remo__segment_create(NULL, UINT64_MAX & ~UINT64_C(4095), &fd, &huge), -EINVAL);
    assert_int_equal(remo__segment_create(NULL, UINT64_C(1) << 50, &fd, &huge), -ENOSPC);
    assert_non_null(strstr(remo_last_error(), "1073741824 MiB"));
    assert_non_null(strstr(remo_last_error(), "make the arena smaller"));
    assert_int_equal(remo__segment_create("/nowhere/at/all", 4096, &fd, &huge), -ENOENT);
    assert_int_equal(remo__segment_create("/proc", 4096, &fd, &huge), -EINVAL);
    assert_non_null(strstr(remo_last_error(), "/proc"));
    assert_int_equal(fd, -5);
    uint64_t available = remo__memory_available();
    assert_true(available > MIB && available < UINT64_C(1) << 50);
}

/* A private tmpfs of 8 MiB, if the kernel permits the mount. */
static void test_full_directory(void **state) {
    (void)state;
    char dir[] = "/dev/shm/remo-test-XXXXXX";
    if (!mkdtemp(dir))
        skip();
    if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0
        || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0
        || mount("tmpfs", dir, "tmpfs", 0, "size=8m") != 0) {
        rmdir(dir);
        print_message("SKIPPED: may not mount a tmpfs here\n");
        skip();
    }
    int fd;
    bool huge;
    assert_int_equal(remo__segment_create(dir, 16 * MIB, &fd, &huge), -ENOSPC);
    assert_non_null(strstr(remo_last_error(), dir));
    assert_non_null(strstr(remo_last_error(), "16 MiB"));
    assert_non_null(strstr(remo_last_error(), "remount"));
    assert_int_equal(remo__segment_create(dir, 6 * MIB, &fd, &huge), 0); /* the failure freed its space */
    assert_int_equal(remo__segment_check(fd, 0, 6 * MIB), 0);            /* not sealed, but of this user */
    int second;
    assert_int_equal(remo__segment_create(dir, 4 * MIB, &second, &huge), -ENOSPC);
    char *map = remo__segment_map(NULL, 6 * MIB, fd);
    assert_non_null(map);
    memset(map, 1, 6 * MIB); /* no SIGBUS */
    munmap(map, 6 * MIB);
    close(fd);
    umount(dir);
    rmdir(dir);
}

/* Invalid segments of a peer. */
static void test_check(void **state) {
    (void)state;
    assert_int_equal(remo__segment_check(-1, 0, 4096), -EINVAL);
    int fds[2], file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(remo__segment_check(fds[0], 0, 4096), -EINVAL);
    assert_int_equal(remo__segment_check(file, 0, 4096), -EINVAL);
    close(fds[0]), close(fds[1]), close(file);

    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 8192), 0);
    assert_int_equal(remo__segment_check(fd, 0, 4096), -EINVAL); /* not allocated */
    assert_int_equal(fallocate(fd, 0, 0, 8192), 0);
    assert_int_equal(remo__segment_check(fd, 0, 4096), -EACCES); /* not sealed */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(remo__segment_check(fd, 0, 8192), 0);
    assert_int_equal(remo__segment_check(fd, 4096, 4096), 0);
    assert_int_equal(remo__segment_check(fd, 0, 12288), -EINVAL); /* too short */
    assert_int_equal(remo__segment_check(fd, 0, 0), -EINVAL);
    assert_int_equal(remo__segment_check(fd, 0, 100), -EINVAL);
    assert_int_equal(remo__segment_check(fd, 100, 4096), -EINVAL);
    close(fd);

    char path[] = "/dev/shm/remo-test-XXXXXX";
    fd = mkstemp(path);
    if (fd < 0)
        skip();
    assert_int_equal(fallocate(fd, 0, 0, 4096), 0);
    assert_int_equal(remo__segment_check(fd, 0, 4096), -EACCES); /* other processes can open it by its name */
    unlink(path);
    assert_int_equal(remo__segment_check(fd, 0, 4096), 0);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocated),      cmocka_unit_test(test_huge),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_check),
        cmocka_unit_test(test_full_directory), cmocka_unit_test(test_reserved_pages),
        cmocka_unit_test(test_descriptor_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
