// A clock for a server under test, which is preloaded: the time of day is what a file says, in microseconds since 1970,
// and stands still in between. The monotonic clock, by which the server waits, stays the machine's.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *now_us;

__attribute__((constructor)) static void map(void) {
	const char *path = getenv("DELAYBRIDGE_TEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0) return;
	void *at = mmap(0, sizeof *now_us, PROT_READ, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED) now_us = at;
	close(fd);
}

int clock_gettime(clockid_t id, struct timespec *t) {
	if (!now_us || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return syscall(SYS_clock_gettime, id, t);
	int64_t us = *now_us;
	t->tv_sec = us / 1000000;
	t->tv_nsec = us % 1000000 * 1000;
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t) *t = now.tv_sec;
	return now.tv_sec;
}

// Without its flags, no server counts the processor's own clock in place of the time of day, as Valkey 9 does.
static FILE *open_but_cpuinfo(const char *name, const char *path, const char *mode) {
	if (strcmp(path, "/proc/cpuinfo") == 0) {
		errno = ENOENT;
		return 0;
	}
	FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, name);
	return next(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) { return open_but_cpuinfo("fopen", path, mode); }
FILE *fopen64(const char *restrict path, const char *restrict mode) { return open_but_cpuinfo("fopen64", path, mode); }
