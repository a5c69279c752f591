"""How many threads libllama should use where the user doesn't say."""

import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def default_threads() -> int:
    """One thread for each physical core that this process may run on, but one.

    Two threads on one core's hyperthreads, or more threads than a container's quota allows, wait
    for each other at every barrier of the graph. So they do when anything else runs: with a thread
    on each core of a busy two-core machine, decoding was seen to become 5 to 100 times slower. The
    core that is left is for that, HTTP among it.
    """
    if not hasattr(os, "sched_getaffinity"):
        logical = os.cpu_count() or 2
        return max(1, (logical // 2 if os.name == "nt" else logical) - 1)
    usable = os.sched_getaffinity(0)
    cores = {_siblings(cpu) for cpu in usable}
    return max(1, min(len(cores), _quota() or len(cores)) - 1)


def _siblings(cpu: int) -> str:
    """A name for the core that a logical CPU belongs to; its own number if nobody tells."""
    try:
        return (_CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota() -> int | None:
    """CPUs' worth of time that the container gives us; None if it is not limited."""
    try:
        quota, period = _QUOTA.read_text().split()
        return None if quota == "max" else int(quota) // int(period)
    except (OSError, ValueError):
        return None
