/* A disk that fails: LD_PRELOAD library that lets writes and syncs of files below a prefix fail or stall.
 *
 * FAKE_DISK_PREFIX   paths that begin with it are on the failing disk
 * FAKE_DISK_CONTROL  file that says what happens, read at every call: "<fault> <call> <first>"
 *                    fault  ok, enospc (statvfs then says that no block is free), eio, stall
 *                    call   write (pwrite, pwrite64, write), sync (fsync, fdatasync), any
 *                    first  the fault begins with the first, second, ... such call since the control file changed
 * FAKE_DISK_FAULTS   file that gets one byte a fault, so that a test can see that faults happened
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum call { WRITE = 1, SYNC = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char current[64];
static long calls;

static int ours(int fd)
{
    const char *prefix = getenv("FAKE_DISK_PREFIX");
    char link[64], path[4096];
    ssize_t length;
    if (prefix == NULL)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return strncmp(path, prefix, strlen(prefix)) == 0;
}

static void control(char *text, size_t size)
{
    const char *path = getenv("FAKE_DISK_CONTROL");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t length = fd < 0 ? 0 : syscall(SYS_read, fd, text, size - 1);
    text[length > 0 ? length : 0] = 0;
    if (fd >= 0)
        syscall(SYS_close, fd);
}

static void count_fault(void)
{
    const char *path = getenv("FAKE_DISK_FAULTS");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        syscall(SYS_write, fd, "x", 1);
        syscall(SYS_close, fd);
    }
}

/* Returns 0 where the call may go on, else the errno that it fails with. */
static int fault(int fd, enum call call)
{
    int saved = errno, result = 0, counted = 0, stalled = 0;
    if (!ours(fd)) {
        errno = saved;
        return 0;
    }
    for (;;) {
        char text[64], what[16] = "ok", which[16] = "any";
        long first = 1;
        int meant;
        control(text, sizeof text);
        sscanf(text, "%15s %15s %ld", what, which, &first);
        meant = strcmp(which, "any") == 0 || strcmp(which, call == WRITE ? "write" : "sync") == 0;
        pthread_mutex_lock(&lock);
        if (strcmp(text, current) != 0) {
            strcpy(current, text);
            calls = 0;
            counted = 0;
        }
        if (meant && !counted) {
            calls++;
            counted = 1;
        }
        meant = meant && calls >= first;
        pthread_mutex_unlock(&lock);
        if (!meant || strcmp(what, "stall") != 0) {
            if (meant && strcmp(what, "enospc") == 0)
                result = ENOSPC;
            if (meant && strcmp(what, "eio") == 0)
                result = EIO;
            break;
        }
        if (!stalled)
            count_fault();
        stalled = 1;
        struct timespec pause = {0, 5000000};
        nanosleep(&pause, NULL);
    }
    if (result)
        count_fault();
    errno = saved;
    return result;
}

#define NEXT(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))
#define FAIL(fd, call)                \
    do {                              \
        int error = fault(fd, call);  \
        if (error) {                  \
            errno = error;            \
            return -1;                \
        }                             \
    } while (0)

ssize_t write(int fd, const void *data, size_t size)
{
    FAIL(fd, WRITE);
    return NEXT(ssize_t, "write", int, const void *, size_t)(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    FAIL(fd, WRITE);
    return NEXT(ssize_t, "pwrite", int, const void *, size_t, off_t)(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    FAIL(fd, WRITE);
    return NEXT(ssize_t, "pwrite64", int, const void *, size_t, off64_t)(fd, data, size, offset);
}

int fsync(int fd)
{
    FAIL(fd, SYNC);
    return NEXT(int, "fsync", int)(fd);
}

int fdatasync(int fd)
{
    FAIL(fd, SYNC);
    return NEXT(int, "fdatasync", int)(fd);
}

int statvfs(const char *path, struct statvfs *space)
{
    const char *prefix = getenv("FAKE_DISK_PREFIX");
    char text[64];
    int result = NEXT(int, "statvfs", const char *, struct statvfs *)(path, space);
    control(text, sizeof text);
    if (result == 0 && prefix && strncmp(path, prefix, strlen(prefix)) == 0 && strncmp(text, "enospc", 6) == 0)
        space->f_bavail = space->f_bfree = 0;
    return result;
}

int statvfs64(const char *path, struct statvfs64 *space) __attribute__((alias("statvfs")));
