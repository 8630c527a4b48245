/* Preloaded into a writer: counts the system calls that change files below one directory, and kills the process at the k-th
 * of them, fails it, cuts it short, or skips a sync. Calls go to the kernel directly, so that nothing here depends on the order of libraries.
 *
 * Each call is told to the journal, a line "call K NAME PATH" and, if it is the one, " !FAULT", before it is made: the journal is
 * the one order of calls and of what the writer was told. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As in rig.py. */
/* OLD: a file system that knows no flags of renameat2. */
enum fault { COUNT, KILL_BEFORE, KILL_AFTER, FAIL, SHORT, SKIP, OLD };

static char root[4096];
static size_t root_len;
static int journal = -1;
static long at;
static enum fault fault;
static int error;
static long keep;
static int sticky;
static atomic_long calls;

void shim_arm(const char *dir, int fd, long k, int what, int number, long bytes, int from_then_on) {
    at = k;
    fault = (enum fault)what;
    error = number;
    keep = bytes;
    sticky = from_then_on;
    journal = fd;
    root_len = strlen(dir);
    memcpy(root, dir, root_len + 1);
}

static int below(const char *path) {
    return root_len && strncmp(path, root, root_len) == 0 && (path[root_len] == '/' || path[root_len] == 0);
}

/* The file of a descriptor, if it is one of ours. */
static int names(int fd, char *path, size_t size) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long len = syscall(SYS_readlinkat, AT_FDCWD, link, path, size - 1);
    if (len < 0) return 0;
    path[len] = 0;
    return below(path);
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* No call on a local file system is interrupted but these. */
static int can_be_interrupted(const char *name) {
    return strcmp(name, "mmap") != 0 && strcmp(name, "opendir") != 0 && strcmp(name, "rename") != 0 && strcmp(name, "link") != 0 && strcmp(name, "unlink") != 0 && strcmp(name, "mkdir") != 0;
}

/* Counts a call, and says what is to become of it. */
static enum fault next(const char *name, const char *path) {
    long k = atomic_fetch_add(&calls, 1) + 1;
    int hit = at > 0 && (k == at || (sticky && k > at));
    if (fault == SHORT && strncmp(name, "pwrite", 6) != 0) hit = 0;
    if (fault == SKIP && strcmp(name, "fsync") != 0 && strcmp(name, "fdatasync") != 0 && strcmp(name, "syncfs") != 0
        && strcmp(name, "msync") != 0) hit = 0;
    if (fault == FAIL && error == EINTR && !can_be_interrupted(name)) hit = 0;
    char line[4200];
    const char *names[] = {"", " !kill-before", " !kill-after", " !fail", " !short", " !skip", ""};
    int len = snprintf(line, sizeof line, "call %ld %s %s%s\n", k, name, path[root_len] ? path + root_len + 1 : ".", hit ? names[fault] : "");
    syscall(SYS_write, journal, line, (size_t)len);
    if (hit && fault == KILL_BEFORE) die();
    return hit ? fault : COUNT;
}

#define MADE(name, path, call)                       \
    do {                                             \
        enum fault now = next(name, path);           \
        if (now == FAIL) { errno = error; return -1; } \
        if (now == SKIP) return 0;                   \
        long made = call;                            \
        int kept = errno;                            \
        if (now == KILL_AFTER) die();                \
        errno = kept;                                \
        return made;                                 \
    } while (0)

static long by_fd(const char *name, int fd, long number, long a, long b, long c) {
    char path[4096];
    if (root_len && names(fd, path, sizeof path)) MADE(name, path, syscall(number, fd, a, b, c));
    return syscall(number, fd, a, b, c);
}

static long open_at(const char *path, int flags, mode_t mode) {
    if (below(path) && (flags & (O_CREAT | O_ACCMODE))) {
        MADE(flags & O_CREAT ? "create" : "open", path, syscall(SYS_openat, AT_FDCWD, path, flags, mode));
    }
    if (below(path) && (flags & O_DIRECTORY)) MADE("opendir", path, syscall(SYS_openat, AT_FDCWD, path, flags, mode));
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#define OPEN(name)                                  \
    int name(const char *path, int flags, ...) {    \
        va_list rest;                               \
        va_start(rest, flags);                      \
        mode_t mode = va_arg(rest, int);            \
        va_end(rest);                               \
        return (int)open_at(path, flags, mode);     \
    }
OPEN(open)
OPEN(open64)

static int are_zeros(const char *bytes, size_t len) {
    return len > 0 && bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

static ssize_t pwrite_at(int fd, const void *bytes, size_t len, off_t offset) {
    char path[4096];
    if (!root_len || !names(fd, path, sizeof path)) return syscall(SYS_pwrite64, fd, bytes, len, offset);
    enum fault now = next(are_zeros(bytes, len) ? "pwrite-zeros" : "pwrite", path);
    if (now == FAIL) { errno = error; return -1; }
    /* Negative: so many bytes fewer than asked for. */
    if (now == SHORT) len = keep < 0 ? len - ((size_t)-keep < len ? (size_t)-keep : len - 1) : (size_t)keep < len ? (size_t)keep : len;
    ssize_t written = syscall(SYS_pwrite64, fd, bytes, len, offset);
    if (now == KILL_AFTER) die();
    return written;
}
ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset) { return pwrite_at(fd, bytes, len, offset); }
ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t offset) { return pwrite_at(fd, bytes, len, offset); }

ssize_t write(int fd, const void *bytes, size_t len) { return by_fd("write", fd, SYS_write, (long)bytes, (long)len, 0); }
int ftruncate(int fd, off_t len) { return (int)by_fd("ftruncate", fd, SYS_ftruncate, len, 0, 0); }
int ftruncate64(int fd, off64_t len) { return (int)by_fd("ftruncate", fd, SYS_ftruncate, len, 0, 0); }
int fallocate(int fd, int mode, off_t from, off_t len) { return (int)by_fd("fallocate", fd, SYS_fallocate, mode, from, len); }
int fallocate64(int fd, int mode, off64_t from, off64_t len) { return (int)by_fd("fallocate", fd, SYS_fallocate, mode, from, len); }
int fsync(int fd) { return (int)by_fd("fsync", fd, SYS_fsync, 0, 0, 0); }
int fdatasync(int fd) { return (int)by_fd("fdatasync", fd, SYS_fdatasync, 0, 0, 0); }
int syncfs(int fd) { return (int)by_fd("syncfs", fd, SYS_syncfs, 0, 0, 0); }

/* The last file that this thread mapped, and where. Nothing else in the process syncs a mapping, and it is mapped just before. */
static __thread char mapped_path[4096];
static __thread void *mapped_at;

int msync(void *address, size_t len, int flags) {
    if (root_len) MADE("msync", address == mapped_at ? mapped_path : root, syscall(SYS_msync, address, len, flags));
    return (int)syscall(SYS_msync, address, len, flags);
}

static void *map_at(void *address, size_t len, int protection, int flags, int fd, off_t offset) {
    char path[4096];
    int counted = root_len && fd >= 0 && names(fd, path, sizeof path);
    enum fault now = counted ? next("mmap", path) : COUNT;
    if (now == FAIL) { errno = error; return MAP_FAILED; }
    void *mapped = (void *)syscall(SYS_mmap, address, len, protection, flags, fd, offset);
    if (now == KILL_AFTER) die();
    if (counted && mapped != MAP_FAILED) {
        mapped_at = mapped;
        strcpy(mapped_path, path);
    }
    return mapped;
}
void *mmap(void *a, size_t len, int protection, int flags, int fd, off_t offset) { return map_at(a, len, protection, flags, fd, offset); }
void *mmap64(void *a, size_t len, int protection, int flags, int fd, off64_t offset) { return map_at(a, len, protection, flags, fd, offset); }

static long renamed(const char *from, const char *to, unsigned flags) {
    if (below(to)) MADE("rename", to, syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags));
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}
int rename(const char *from, const char *to) { return (int)renamed(from, to, 0); }
/* Every path that a store gives is absolute. */
int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    (void)from_dir, (void)to_dir;
    if (flags && fault == OLD && below(to)) { errno = EINVAL; return -1; }
    return (int)renamed(from, to, flags);
}

static long linked(const char *from, const char *to, int flags) {
    if (below(to)) MADE("link", to, syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, flags));
    return syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, flags);
}
int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    (void)from_dir, (void)to_dir;
    return (int)linked(from, to, flags);
}

static long removed(const char *path) {
    if (below(path)) MADE("unlink", path, syscall(SYS_unlinkat, AT_FDCWD, path, 0));
    return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
int unlink(const char *path) { return (int)removed(path); }

static long made_dir(const char *path, mode_t mode) {
    if (below(path)) MADE("mkdir", path, syscall(SYS_mkdirat, AT_FDCWD, path, mode));
    return syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
int mkdir(const char *path, mode_t mode) { return (int)made_dir(path, mode); }

long shim_calls(void) { return calls; }
