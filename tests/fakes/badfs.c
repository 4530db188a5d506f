/* A kernel that fails on request, for LD_PRELOAD: the n-th open, read, listing or statvfs below a folder fails or hangs.
 *
 * BADFS names a file of 4096 bytes that is mapped, so that what a test writes there counts at once: one line
 * `GENERATION CALL NTH ERRNO PREFIX`. CALL is open, read, list or statvfs; NTH counts from 1 within a generation, 0 is every
 * call; ERRNO 0 hangs for ever. Each fault that happened is appended to the file `$BADFS.log` as `CALL PATH`.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static char paths[1024][256]; /* of descriptors opened below the prefix */
static long generation = -1, seen;

/* Return the rule, NULL where there is none. Straight to the kernel: these calls must not come back here. */
static const char *rule(void) {
    static const char *mapped;
    const char *file = getenv("BADFS");
    if (!mapped && file) {
        int descriptor = (int)syscall(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC, 0);
        if (descriptor < 0) return NULL;
        void *found = mmap(NULL, 4096, PROT_READ, MAP_SHARED, descriptor, 0);
        syscall(SYS_close, descriptor);
        if (found != MAP_FAILED) mapped = found;
    }
    return mapped;
}

static void report(const char *call, const char *path) {
    char name[PATH_MAX], line[PATH_MAX + 32];
    snprintf(name, sizeof name, "%s.log", getenv("BADFS"));
    int size = snprintf(line, sizeof line, "%s %s\n", call, path);
    long descriptor = syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor >= 0) {
        syscall(SYS_write, descriptor, line, (size_t)size);
        syscall(SYS_close, descriptor);
    }
}

/* Return 1 with errno set where this call is to fail. */
static int fails(const char *call, const char *path) {
    char wanted[16], prefix[PATH_MAX] = "";
    long now, nth;
    int code;
    const char *line = rule();
    if (!line || !path || sscanf(line, "%ld %15s %ld %d %4095s", &now, wanted, &nth, &code, prefix) != 5) return 0;
    if (now != generation) {
        generation = now;
        seen = 0;
    }
    if (strcmp(call, wanted) || strncmp(path, prefix, strlen(prefix))) return 0;
    if (nth && ++seen != nth) return 0;
    report(call, path);
    if (!code) for (;;) pause();
    errno = code;
    return 1;
}

static int opened(int descriptor, const char *path) {
    if (descriptor >= 0 && descriptor < 1024) snprintf(paths[descriptor], sizeof paths[0], "%s", path);
    return descriptor;
}

#define OPEN(NAME)                                                                              \
    int NAME(const char *path, int flags, ...) {                                                \
        va_list rest;                                                                           \
        va_start(rest, flags);                                                                  \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;                       \
        va_end(rest);                                                                           \
        if (fails("open", path)) return -1;                                                     \
        int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #NAME); \
        return opened(real(path, flags, mode), path);                                           \
    }
OPEN(open)
OPEN(open64)

ssize_t read(int descriptor, void *into, size_t size) {
    ssize_t (*real)(int, void *, size_t) = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    if (descriptor >= 0 && descriptor < 1024 && paths[descriptor][0] && fails("read", paths[descriptor])) return -1;
    return real(descriptor, into, size);
}

int close(int descriptor) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
    if (descriptor >= 0 && descriptor < 1024) paths[descriptor][0] = 0;
    return real(descriptor);
}

DIR *opendir(const char *path) {
    DIR *(*real)(const char *) = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
    return fails("list", path) ? NULL : real(path);
}

#define STATVFS(NAME, KIND)                                                                     \
    int NAME(const char *path, struct KIND *into) {                                             \
        int (*real)(const char *, struct KIND *) = (int (*)(const char *, struct KIND *))dlsym(RTLD_NEXT, #NAME); \
        return fails("statvfs", path) ? -1 : real(path, into);                                  \
    }
STATVFS(statvfs, statvfs)
STATVFS(statvfs64, statvfs64)
