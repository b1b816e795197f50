/* A wall clock that is off by as many microseconds as a file says, which is mapped, so that it can change while the program runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *off;

__attribute__((constructor)) static void map_file(void) {
  const char *path = getenv("DIBS_TEST_CLOCK");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *p = mmap(0, sizeof *off, PROT_READ, MAP_SHARED, fd, 0);
  if (p != MAP_FAILED) off = p;
}

int clock_gettime(clockid_t id, struct timespec *t) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int failed = real(id, t);
  if (failed || !off || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return failed;
  int64_t us = (int64_t)t->tv_sec * 1000000 + t->tv_nsec / 1000 + *off;
  t->tv_nsec = us % 1000000 * 1000 + t->tv_nsec % 1000;
  t->tv_sec = us / 1000000;
  return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
  struct timespec t;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &t)) return -1;
  tv->tv_sec = t.tv_sec;
  tv->tv_usec = t.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *to) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (to) *to = t.tv_sec;
  return t.tv_sec;
}
