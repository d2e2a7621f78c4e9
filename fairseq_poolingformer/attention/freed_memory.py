"""Freed memory is kept for the next tensor instead of being returned to the operating system."""

from __future__ import annotations

import ctypes

# numbers of mallopt's parameters in glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Tell glibc to keep the memory that this process frees.

    Otherwise every tensor of more than 32 MiB is mapped anew, page by page, and unmapped when it is freed. In training
    on long documents on a CPU that takes 8 to 10 % of the time. What the process has once used then stays with it; see
    docs/performance.md for what that costs.

    Returns:
        Whether glibc keeps freed memory now; False where the C library is another.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl and macOS have no mallopt, Windows no CDLL(None)
        return False
    return all([set_option(_M_MMAP_MAX, 0), set_option(_M_TRIM_THRESHOLD, -1)])
