// The wall clock of a process that has this preloaded: ours, and what the file says it is ahead.
// The clocks that nobody sets stay as they are.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead; // microseconds

__attribute__((constructor)) static void begin(void) {
	const char *name = getenv("CLOCK_FILE");
	int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (file < 0)
		return;
	void *page = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
	if (page != MAP_FAILED)
		ahead = page;
	close(file);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
	int failed = (int)syscall(SYS_clock_gettime, clock, t); // Not the C library's, which may ask us.
	if (failed || !ahead || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return failed;
	int64_t now = (int64_t)t->tv_sec * 1000000 + t->tv_nsec / 1000 + *ahead;
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
