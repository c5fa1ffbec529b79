# SPDX-License-Identifier: MIT
"""python -m adacc: what a report of an error should say of the environment."""
from __future__ import annotations

import os
import platform
import sys
from typing import Dict

import torch

from . import __version__, _native
from ._amounts import auto_amount


def environment() -> Dict[str, str]:
    return {
        "adacc": f"{__version__}, built for torch {_native.built_for}, {_native.instructions} instructions",
        "torch": torch.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
        "processor": torch.backends.cpu.get_cpu_capability() if hasattr(torch.backends, "cpu")
        else platform.machine(),
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} processors"
                   f" (OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS', 'is not set')})",
        "allocator": _allocator(),
        "memory": _memory(),
    }


def _allocator() -> str:
    """Of malloc, on which torch's allocator on the CPU rests."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            mapped = maps.read()
    except OSError:
        return "not known"
    return next((name for name in ("jemalloc", "tcmalloc", "mimalloc") if f"lib{name}" in mapped),
                "malloc of " + " ".join(part for part in platform.libc_ver() if part))


def _memory() -> str:
    try:
        return auto_amount()[1]
    except RuntimeError as why:
        return str(why)


if __name__ == "__main__":
    for subject, words in environment().items():
        print(f"{subject:<10} {words}")
