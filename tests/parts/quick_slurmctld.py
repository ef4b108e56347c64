"""A slurmctld that does soon what it does every few seconds: above all telling accounting of jobs that wait or run.

Slurm sends what ended at once, and the rest every five seconds, which no setting changes. Each test that looks for a running
job in accounting would wait for that. `environment(folder)` lets it wait half a second at most; nothing else about it changes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.parts import find_program

_LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
typedef int (*wait_t)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
  wait_t next = (wait_t)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");  /* dlsym may find the one before */
  if (!next) next = (wait_t)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  struct timespec soon;
  clock_gettime(CLOCK_REALTIME, &soon);
  soon.tv_nsec += 500000000;
  if (soon.tv_nsec >= 1000000000) { soon.tv_nsec -= 1000000000; soon.tv_sec += 1; }
  int later = until->tv_sec > soon.tv_sec || (until->tv_sec == soon.tv_sec && until->tv_nsec > soon.tv_nsec);
  return next(condition, mutex, later ? &soon : until);
}
"""


def environment(folder: Path) -> dict[str, str]:
    """What slurmctld's environment has more; nothing where there is no C compiler, and the tests wait longer."""
    if find_program("cc") is None:
        return {}
    source, library = folder / "quick.c", folder / "quick.so"
    source.write_text(_LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True, timeout=60)
    return {"LD_PRELOAD": str(library)}
