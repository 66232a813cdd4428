// The wall clock of a process that has this preloaded: ours, and what the file says it is ahead, or the
// instant at which the file says it stands. The clocks that nobody sets stay as they are.
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

static const volatile struct {
	int64_t ahead, stands; // microseconds; 0: it runs
} *set;

__attribute__((constructor)) static void begin(void) {
	const char *name = getenv("CLOCK_FILE");
	int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (file < 0)
		return;
	void *page = mmap(NULL, sizeof *set, PROT_READ, MAP_SHARED, file, 0);
	if (page != MAP_FAILED)
		set = page;
	close(file);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
	int failed = (int)syscall(SYS_clock_gettime, clock, t); // Not the C library's, which may ask us.
	if (failed || !set || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return failed;
	int64_t now = set->stands;
	if (!now)
		now = (int64_t)t->tv_sec * 1000000 + t->tv_nsec / 1000 + set->ahead;
	t->tv_sec = now / 1000000;
	t->tv_nsec = now % 1000000 * 1000;
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
	if (t)
		*t = now.tv_sec;
	return now.tv_sec;
}

// Without its flags, no server counts the processor's own clock in place of the wall clock, as Valkey 9 does.
static FILE *open_but_cpuinfo(const char *name, const char *path, const char *mode) {
	if (strcmp(path, "/proc/cpuinfo") == 0) {
		errno = ENOENT;
		return NULL;
	}
	FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, name);
	return next(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) { return open_but_cpuinfo("fopen", path, mode); }

FILE *fopen64(const char *restrict path, const char *restrict mode) { return open_but_cpuinfo("fopen64", path, mode); }
