/* pause.h - stops a process. A signal takes effect some time after kill returns: on a busy machine the
 * threads of the process run on for milliseconds. */
#pragma once

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

/* Return the state of a thread as in /proc/PID/task/THREAD/stat, or 'X' if it has ended. */
static inline char thread_state(pid_t pid, const char *thread) {
    char path[64], line[256], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", (int)pid, thread);
    FILE *file = fopen(path, "r");
    if (!file)
        return state;
    const char *name_end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (name_end)
        state = name_end[2];
    fclose(file);
    return state;
}

/* Return whether a thread of the process may still run. */
static inline bool process_runs(pid_t pid) {
    char path[32];
    bool runs = false;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    if (!threads)
        return false;
    for (const struct dirent *entry; !runs && (entry = readdir(threads));)
        runs = entry->d_name[0] != '.' && strchr("RSD", thread_state(pid, entry->d_name));
    closedir(threads);
    return runs;
}

/* Stop a process, and return 0 when all its threads have stopped; or -1 if there is no such process. */
static inline int process_pause(pid_t pid) {
    const struct timespec rest = {.tv_nsec = 1000000};
    int rc = kill(pid, SIGSTOP);
    while (rc == 0 && process_runs(pid))
        nanosleep(&rest, NULL);
    return rc;
}
