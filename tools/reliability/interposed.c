/* Put before the C library (LD_PRELOAD): the n-th call that changes a file in one folder fails,
   writes only a part, or is the last thing that the process does. See calls.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, KILL, TORN, SHORT, FAIL };

static char room[4096];
static long at;
static int how, code;
static atomic_long calls;
static char kinds[1 << 16];
static atomic_int armed;

void faults_arm(const char *folder, long number, int kind, int error)
{
    snprintf(room, sizeof room, "%s", folder);
    at = number, how = kind, code = error;
    memset(kinds, 0, sizeof kinds);
    atomic_store(&calls, 0), atomic_store(&armed, 1);
}

void faults_disarm(void) { atomic_store(&armed, 0); }

/* A letter for each call so far. */
const char *faults_kinds(void) { return kinds; }

static int is_inside(const char *path) { return path && (path[0] != '/' || !strncmp(path, room, strlen(room))); }

static int is_open_inside(int file)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return path[0] == '/' && is_inside(path);
}

static int is_due(char kind)
{
    long before = atomic_fetch_add(&calls, 1);
    if (before < (long)sizeof kinds - 1)
        kinds[before] = kind;
    return before + 1 == at && how != COUNT;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* True if the call must fail, with errno set. */
static int fails(void)
{
    if (how == KILL || how == TORN)
        die();
    if (how != FAIL)
        return 0;
    errno = code;
    return 1;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define STEP(kind, inside) if (atomic_load(&armed) && (inside) && is_due(kind) && fails()) return -1

/* Calls that write: some of the bytes may get there. */
#define WRITES(name, parameters, given, part)                                    \
    ssize_t name parameters                                                     \
    {                                                                           \
        REAL(name);                                                             \
        if (atomic_load(&armed) && is_open_inside(file) && is_due('w')) {           \
            if (how == TORN || how == SHORT) {                                  \
                ssize_t done = real part;                                       \
                if (how == TORN)                                                \
                    die();                                                      \
                return done;                                                    \
            }                                                                   \
            if (fails())                                                        \
                return -1;                                                      \
        }                                                                       \
        return real given;                                                      \
    }

WRITES(write, (int file, const void *from, size_t size), (file, from, size), (file, from, (size + 1) / 2))
WRITES(pwrite, (int file, const void *from, size_t size, off_t to), (file, from, size, to), (file, from, (size + 1) / 2, to))
WRITES(pwrite64, (int file, const void *from, size_t size, off64_t to), (file, from, size, to), (file, from, (size + 1) / 2, to))
WRITES(writev, (int file, const struct iovec *parts, int count), (file, parts, count), (file, parts, count > 1 ? 1 : count))
WRITES(sendfile, (int file, int from, off_t *begin, size_t size), (file, from, begin, size), (file, from, begin, (size + 1) / 2))
WRITES(sendfile64, (int file, int from, off64_t *begin, size_t size), (file, from, begin, size), (file, from, begin, (size + 1) / 2))
WRITES(copy_file_range, (int from, off64_t *begin, int file, off64_t *to, size_t size, unsigned int flags),
       (from, begin, file, to, size, flags), (from, begin, file, to, (size + 1) / 2, flags))

#define CALL(kind, name, parameters, given, inside) \
    int name parameters { REAL(name); STEP(kind, inside); return real given; }

CALL('s', fsync, (int file), (file), is_open_inside(file))
CALL('s', fdatasync, (int file), (file), is_open_inside(file))
CALL('t', ftruncate, (int file, off_t size), (file, size), is_open_inside(file))
CALL('t', ftruncate64, (int file, off64_t size), (file, size), is_open_inside(file))
CALL('r', rename, (const char *from, const char *to), (from, to), is_inside(to))
CALL('l', link, (const char *from, const char *to), (from, to), is_inside(to))
CALL('l', symlink, (const char *from, const char *to), (from, to), is_inside(to))
CALL('u', unlink, (const char *path), (path), is_inside(path))
CALL('d', rmdir, (const char *path), (path), is_inside(path))
CALL('m', mkdir, (const char *path, mode_t mode), (path, mode), is_inside(path))
CALL('c', chmod, (const char *path, mode_t mode), (path, mode), is_inside(path))
CALL('u', unlinkat, (int folder, const char *path, int flags), (folder, path, flags), is_open_inside(folder))

#define OPENS(name)                                               \
    int name(const char *path, int flags, ...)                    \
    {                                                             \
        REAL(name);                                               \
        va_list rest;                                             \
        va_start(rest, flags);                                    \
        mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                             \
        STEP('o', (flags & (O_CREAT | O_TRUNC)) && is_inside(path)); \
        return real(path, flags, mode);                           \
    }

OPENS(open)
OPENS(open64)
