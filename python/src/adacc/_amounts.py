# SPDX-License-Identifier: MIT
"""The amount that "auto" stands for. All others the native part reads (io/budget.hpp)."""
from __future__ import annotations

import os
import pathlib
from typing import Dict, Iterator, List, Tuple

import torch

# Scratch of libraries is not counted, and an allocator's heap is larger than what is in use.
_TENTHS_OF_AUTO = 9


def in_words(amount: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if amount >= size:
            return f"{amount / size:.1f} {unit}"
    return f"{amount / 2**10:.1f} KiB"


def auto_amount(proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> Tuple[int, str]:
    """Nine tenths of what the tightest limit leaves to this process, and the sentence that says so."""
    left: List[Tuple[int, str]] = []
    available = _numbers(pathlib.Path(proc, "meminfo")).get("MemAvailable")
    if available is not None:
        left.append((available * 1024, "free memory"))
    resident = _resident_bytes(proc)
    for limit, held in _group_limits(pathlib.Path(proc, "self/cgroup"), pathlib.Path(groups)):
        held = max(held, resident)
        left.append((limit - held, f"the control group's {in_words(limit)} without the {in_words(held)} in use"))
    if not left:
        raise RuntimeError("adacc: 'auto' needs /proc/meminfo or a control group's limit, and there is neither; "
                           "say bytes, such as '4GiB', or a share, such as '40%'")
    least, source = min(left)
    if least <= 0:
        raise RuntimeError(f"adacc: 'auto' finds nothing left: {source}; say bytes or a share, such as '40%'")
    amount = max(1, least * _TENTHS_OF_AUTO // 10)
    return amount, f"auto: {in_words(amount)} are nine tenths of {in_words(least)}, {source}"


def auto_amount_of(device: torch.device) -> Tuple[int, str]:
    """auto_amount() of a CUDA device: what is free there, and what torch's allocator holds without use."""
    if device.type == "cpu":
        return auto_amount()
    free, _ = torch.cuda.mem_get_info(device)
    idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    amount = max(1, (free + idle) * _TENTHS_OF_AUTO // 10)
    return amount, f"auto: {in_words(amount)} are nine tenths of {in_words(free + idle)}, free memory of {device}"


def _group_limits(mine: pathlib.Path, groups: pathlib.Path) -> Iterator[Tuple[int, int]]:
    """Limit and use of each control group of this process that has a limit, versions 1 and 2."""
    for line in _text(mine).splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            top, names = groups, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            top, names = groups / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # Limits of parents hold, too. In a container the path may be the host's; the top is there.
        folder = top / path.lstrip("/")
        for each in [folder, *folder.parents]:
            limit = _text(each / names[0]).strip()
            # Without a limit version 2 says "max", and version 1 a number next to 2^63.
            if limit.isdigit() and int(limit) < 2**60:
                in_use = _text(each / names[1]).strip()
                cached = _numbers(each / "memory.stat").get(names[2], 0)
                yield int(limit), max(0, int(in_use) - cached) if in_use.isdigit() else 0
            if each == top:
                break


def _resident_bytes(proc: str) -> int:
    fields = _text(pathlib.Path(proc, "self/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def _numbers(path: pathlib.Path) -> Dict[str, int]:
    rows = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
