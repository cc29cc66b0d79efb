/* machine.c - checks of processors, memory and limits of this process.
 * Each check tries or reads what a node would use. */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/doctor/doctor.h"
#include "memory/available.h"
#include "memory/segment.h"

#define GIB (UINT64_C(1) << 30)
#define PROBE_BYTES (UINT64_C(16) << 20) /* the smallest segment of an arena */
#define MEMORY_LOW_BYTES GIB
#define FILES_LOW 1024u /* sockets and segments of 64 nodes */
#define PROCESSES_LOW 512u
#define UNLIMITED_FROM (UINT64_C(1) << 60) /* the kernel writes such values for "unlimited" */

/* Read the first line of a file, without its end; "" if it cannot be read. */
static void read_line(const char *path, char *ret_line, unsigned line_bytes) {
    FILE *file = fopen(path, "re");
    ret_line[0] = '\0';
    if (!file)
        return;
    if (!fgets(ret_line, (int)line_bytes, file))
        ret_line[0] = '\0';
    ret_line[strcspn(ret_line, "\n")] = '\0';
    fclose(file);
}

/* Return bytes, or a count without unit, of a line of /proc/meminfo; 0 if it is missing. */
static uint64_t meminfo(const char *name) {
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t value = 0;
    size_t length = strlen(name);
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            value = strtoull(line + length + 1, NULL, 10);
            value *= strstr(line, " kB") ? 1024 : 1;
            break;
        }
    if (file)
        fclose(file);
    return value;
}

static void check_kernel(struct doctor *doctor) {
    struct utsname name;
    int major = 0, minor = 0;
    if (uname(&name) != 0 || sscanf(name.release, "%d.%d", &major, &minor) != 2)
        return;
    if (major < 5 || (major == 5 && minor < 3))
        doctor_say(doctor, DOCTOR_NOTE, "kernel", "Use Linux 5.3 or newer",
                   "%s %s, %s: older than what Remo is tested on", name.sysname, name.release, name.machine);
    else
        doctor_say(doctor, DOCTOR_OK, "kernel", "", "%s %s, %s", name.sysname, name.release, name.machine);
}

static bool is_virtual(void) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[4096];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file))
        found = strncmp(line, "flags", 5) == 0 && strstr(line, " hypervisor");
    if (file)
        fclose(file);
    return found;
}

static void check_processors(struct doctor *doctor) {
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)online;
    char quota[64];
    read_line("/sys/fs/cgroup/cpu.max", quota, sizeof quota);
    if (usable < online)
        doctor_say(doctor, DOCTOR_CHANGE, "processors",
                   "Start Remo without taskset, or widen the container's processors", "%d of %ld may be used",
                   usable, online);
    else
        doctor_say(doctor, DOCTOR_OK, "processors", "",
                   "%d; with more nodes than that, waiting nodes yield instead of spinning", usable);
    if (quota[0] && strncmp(quota, "max", 3) != 0)
        doctor_say(doctor, DOCTOR_CHANGE, "processor quota",
                   "Lift cpu.max of the control group, or expect pauses",
                   "the control group allows %s (time and period in us)", quota);
    if (is_virtual())
        doctor_say(
            doctor, DOCTOR_NOTE, "virtual machine", "",
            "waking a process on another processor goes through the hypervisor: tens of us instead of a few");
}

/* Check the memory that can be allocated, including limits of control groups. */
static void check_memory(struct doctor *doctor) {
    struct sysinfo info = {0};
    sysinfo(&info);
    uint64_t available = remo__memory_available(), total = (uint64_t)info.totalram * info.mem_unit,
             idle = meminfo("MemAvailable");
    bool low = available < MEMORY_LOW_BYTES, held_back = available + GIB < idle;
    doctor_say(doctor, low ? DOCTOR_CHANGE : DOCTOR_OK, "memory",
               held_back ? "The control group limits it: raise its memory.max if objects do not fit"
               : low     ? "End large programs, or open smaller objects"
                         : "",
               "%.1f of %.1f GiB may be used", (double)available / (double)GIB, (double)total / (double)GIB);
}

/* Create a segment as a node does. */
static void check_segment(struct doctor *doctor) {
    const char *folder = getenv("REMO_MEMORY_DIR");
    int fd;
    bool huge;
    int rc = remo__segment_create(folder && folder[0] ? folder : NULL, PROBE_BYTES, &fd, &huge);
    if (rc != 0) {
        doctor_say(doctor, DOCTOR_BAD, "shared memory", "", "%s", remo_last_error());
        return;
    }
    close(fd);
    doctor_say(doctor, DOCTOR_OK, "shared memory", "", "%s",
               folder && folder[0] ? folder : "anonymous (memfd)");
    if (huge)
        doctor_say(doctor, DOCTOR_OK, "huge pages", "", "shared memory comes in them");
    else
        doctor_say(doctor, DOCTOR_CHANGE, "huge pages",
                   "As root: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, or sysctl "
                   "vm.nr_hugepages=N; large maps become faster, since fewer pages have to be looked up",
                   "shared memory comes in small pages");
}

static void check_dev_shm(struct doctor *doctor) {
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) != 0) {
        doctor_say(doctor, DOCTOR_NOTE, "/dev/shm", "", "not there; Remo does not need it");
        return;
    }
    double free_gib = (double)shm.f_bavail * (double)shm.f_frsize / (double)GIB;
    doctor_say(doctor, DOCTOR_NOTE, "/dev/shm",
               free_gib < 1 ? "To raise it: mount -o remount,size=8G /dev/shm" : "",
               "%.2f GiB free; used only with REMO_MEMORY_DIR=/dev/shm", free_gib);
}

static void check_huge_pages(struct doctor *doctor) {
    char private_pages[160], shared_pages[160];
    uint64_t bytes = meminfo("Hugepagesize");
    read_line("/sys/kernel/mm/transparent_hugepage/enabled", private_pages, sizeof private_pages);
    read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", shared_pages, sizeof shared_pages);
    bool never = strstr(private_pages, "[never]") != NULL;
    doctor_say(doctor, DOCTOR_NOTE, "huge pages",
               never ? "As root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled" : "",
               "transparent: %s; of shared memory: %s; reserved: %llu of %llu KiB, %llu free",
               private_pages[0] ? private_pages : "none", shared_pages[0] ? shared_pages : "none",
               (unsigned long long)meminfo("HugePages_Total"), (unsigned long long)bytes / 1024,
               (unsigned long long)remo__memory_huge_pages_free(bytes));
}

static void format_limit(char ret_text[32], rlim_t limit, uint64_t unit) {
    if (limit == RLIM_INFINITY || limit >= UNLIMITED_FROM)
        snprintf(ret_text, 32, "no limit");
    else
        snprintf(ret_text, 32, "%llu", (unsigned long long)(limit / unit));
}

static void check_limits(struct doctor *doctor) {
    struct rlimit locked, files, processes;
    char text[32];
    if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0) {
        bool free_to_lock = locked.rlim_cur == RLIM_INFINITY;
        format_limit(text, locked.rlim_cur, 1024);
        doctor_say(
            doctor, free_to_lock ? DOCTOR_OK : DOCTOR_NOTE, "locked memory",
            free_to_lock
                ? ""
                : "Shared memory and TCP need none; for RDMA: ulimit -l unlimited, or memlock in limits.conf",
            "%s%s", text, free_to_lock ? "" : " KiB may be locked");
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        bool low = files.rlim_cur < FILES_LOW;
        format_limit(text, files.rlim_cur, 1);
        doctor_say(doctor, low ? DOCTOR_CHANGE : DOCTOR_OK, "open files",
                   low ? "ulimit -n 4096: a node needs a socket for every peer, and one file for each segment"
                       : "",
                   "%s", text);
    }
    if (getrlimit(RLIMIT_NPROC, &processes) == 0) {
        bool low = processes.rlim_cur < PROCESSES_LOW;
        format_limit(text, processes.rlim_cur, 1);
        doctor_say(doctor, low ? DOCTOR_CHANGE : DOCTOR_OK, "user processes",
                   low ? "ulimit -u 4096: a node has two threads of its own, and ofi adds one" : "", "%s",
                   text);
    }
}

static void check_proc(struct doctor *doctor) {
    if (access("/proc/self", F_OK) != 0)
        doctor_say(
            doctor, DOCTOR_CHANGE, "/proc", "As root: mount -t proc proc /proc",
            "not mounted: limits of control groups are unknown, and programs that find their libraries "
            "relative to themselves do not start");
}

void doctor_check_machine(struct doctor *doctor) {
    check_kernel(doctor);
    check_proc(doctor);
    check_processors(doctor);
    check_memory(doctor);
    check_segment(doctor);
    check_huge_pages(doctor);
    check_dev_shm(doctor);
    check_limits(doctor);
}
