/* folder.c - the folder of a job: mode 0700, removed at the end, or swept by a later launcher.
 * Launcher and guard hold a lock (flock) on the file `lock` in the folder; a folder with a free lock has no
 * launcher. A sweep can take the lock of a new folder first. Therefore its maker checks, with the lock held,
 * that the path still names the locked file. */
#include "cli/launch/folder.h"

#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "bootstrap/roster/ended.h"

#define FOLDER_SPREAD "/tmp" /* on every host */
#define FOLDER_BYTES_MAX 90u /* so that the paths of the sockets fit */
#define FOLDER_TRIES 8       /* a sweep may be faster than the lock */
#define NAME_DIGITS 16u      /* of a job's name: r and so many hexadecimal digits */

/* ---- removing ---- */

static int remove_one(const char *path, const struct stat *file, int type, struct FTW *level) {
    (void)file;
    (void)type;
    (void)level;
    remove(path);
    return 0;
}

void launch_folder_remove(const char *folder) {
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

void launch_folder_close(struct launch_job *job) {
    if (job->folder_made)
        launch_folder_remove(job->folder);
    if (job->lock_fd >= 0)
        close(job->lock_fd);
    job->folder_made = false;
    job->lock_fd = -1;
}

/* ---- sweeping ---- */

static bool is_job_folder(const char *name) {
    static const char prefix[] = "remo-r";
    size_t skip = sizeof prefix - 1;
    return strncmp(name, prefix, skip) == 0 && strlen(name) == skip + NAME_DIGITS
           && strspn(name + skip, "0123456789abcdef") == NAME_DIGITS;
}

static bool is_ours(int fd, mode_t type) {
    struct stat file;
    return fd >= 0 && fstat(fd, &file) == 0 && file.st_uid == geteuid() && (file.st_mode & S_IFMT) == type;
}

/* A folder without a lock file is not swept: on another host the folder of a live job has none, and the shell
 * there removes it. */
static void sweep_one(int base_fd, const char *base, const char *name) {
    char path[PATH_MAX];
    int lock = -1, folder = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (is_ours(folder, S_IFDIR))
        lock = openat(folder, "lock", O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (is_ours(lock, S_IFREG) && flock(lock, LOCK_EX | LOCK_NB) == 0
        && snprintf(path, sizeof path, "%s/%s", base, name) < (int)sizeof path)
        launch_folder_remove(path);
    if (lock >= 0)
        close(lock);
    if (folder >= 0)
        close(folder);
}

static void sweep(const char *base) {
    DIR *folder = opendir(base);
    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (is_job_folder(entry->d_name))
            sweep_one(dirfd(folder), base, entry->d_name);
    }
    closedir(folder);
}

/* ---- making ---- */

static const char *folder_base(const struct launch_job *job) {
    const char *own = getenv("XDG_RUNTIME_DIR");
    struct stat file;
    if (job->spread || !own || own[0] != '/' || strlen(own) + sizeof job->name > FOLDER_BYTES_MAX)
        return FOLDER_SPREAD;
    return stat(own, &file) == 0 && S_ISDIR(file.st_mode) && access(own, W_OK | X_OK) == 0 ? own
                                                                                           : FOLDER_SPREAD;
}

/* Lock the folder. Returns -EAGAIN if a sweep removed it first. */
static int folder_lock(struct launch_job *job) {
    char path[PATH_MAX + 8];
    struct stat held, named;
    snprintf(path, sizeof path, "%s/lock", job->folder);
    job->lock_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (job->lock_fd < 0)
        return errno == ENOENT ? -EAGAIN : -errno;
    if (flock(job->lock_fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    if (fstat(job->lock_fd, &held) != 0 || stat(path, &named) != 0 || held.st_ino != named.st_ino)
        return -EAGAIN;
    return 0;
}

static int folder_try(struct launch_job *job, const char *base) {
    snprintf(job->name, sizeof job->name, "r%08x%08x", randombytes_random(), randombytes_random());
    snprintf(job->folder, sizeof job->folder, "%s/remo-%s", base, job->name);
    if (mkdir(job->folder, 0700) != 0)
        return -errno;
    job->folder_made = true;
    int rc = folder_lock(job);
    if (rc != 0)
        launch_folder_close(job);
    return rc;
}

static int key_make(struct launch_job *job) {
    char path[PATH_MAX + 8];
    randombytes_buf(job->key, sizeof job->key);
    snprintf(path, sizeof path, "%s/key", job->folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), rc = fd < 0 ? -errno : 0;
    if (fd >= 0 && write(fd, job->key, sizeof job->key) != (ssize_t)sizeof job->key)
        rc = errno ? -errno : -EIO;
    if (fd >= 0 && close(fd) != 0)
        rc = -errno;
    return rc == 0 ? 0 : remo__fail(rc, "cannot write the key file %s: %s", path, strerror(-rc));
}

int launch_folder_open(struct launch_job *job) {
    const char *base = folder_base(job);
    sweep(base);
    if (strcmp(base, FOLDER_SPREAD) != 0)
        sweep(FOLDER_SPREAD);
    int rc = -EAGAIN;
    for (int i = 0; i < FOLDER_TRIES && rc == -EAGAIN; i++)
        rc = folder_try(job, base);
    if (rc != 0)
        return remo__fail(rc,
                          "cannot make the job's folder %s: %s; set XDG_RUNTIME_DIR to a folder that can be "
                          "written to",
                          job->folder, strerror(-rc));
    return key_make(job);
}

/* ---- ends ---- */

void launch_folder_note_end(const struct launch_job *job, const char *line) {
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/" REMO__ENDED_FILE, job->folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return; /* peers then wait for the join timeout */
    ssize_t ignored = write(fd, line, strlen(line));
    (void)ignored;
    close(fd);
}
