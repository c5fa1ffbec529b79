# SPDX-License-Identifier: MIT
"""The name of the module that runs, as named_modules() has it, and tables by module.

Names are looked up when something is saved, in the calls that are under way: no hook is registered with a module, so
that nothing is slower or otherwise compiled where nobody asks.
"""
from __future__ import annotations

import dataclasses
import sys
import types
import weakref
from typing import Dict, Iterable, List, Optional, Union

import torch

from . import _native
from ._amounts import in_words

_ROWS_OF_TEXT = 30
_call = getattr(torch.nn.Module, "_call_impl", torch.nn.Module.__call__)
_CODE = getattr(_call, "__code__", None)
_names: weakref.WeakKeyDictionary[torch.nn.Module, Dict[int, str]] = weakref.WeakKeyDictionary()


def name_of_module() -> str:
    """Of the innermost module whose forward runs on this thread; "" if there is none.

    It is the name that the outermost one knows it by; that itself is called by its class.
    """
    running: List[torch.nn.Module] = []
    frame: Optional[types.FrameType] = sys._getframe()
    while frame is not None:
        if frame.f_code is _CODE:
            running.append(frame.f_locals["self"])
        frame = frame.f_back
    if not running:
        return ""
    root = running[-1]
    names = _names.get(root)
    if names is None:
        names = _names[root] = {id(module): name for name, module in root.named_modules()}
    # What the outermost one does not know was made on the way: it belongs to the one around it.
    return next((names[id(each)] for each in running if names.get(id(each))), type(root).__name__)


@dataclasses.dataclass(frozen=True)
class ModuleBytes:
    """What a module saved, as the native part has it."""
    module: str  # empty: what was saved in none
    storages: int
    raw_bytes: int
    waiting_bytes: int


Rows = Iterable[Union[ModuleBytes, _native.ModuleBytes]]


def by_depth(rows: Rows, depth: Optional[int]) -> Dict[str, List[int]]:
    """Storages, bytes as they are and bytes as they wait, of modules with the same first `depth` parts of a name."""
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 1):
        raise ValueError(f"adacc: depth is how many parts of a module's name count, 1 or more, or None for all; "
                         f"it is {depth!r}")
    sums: Dict[str, List[int]] = {}
    for row in rows:
        mine = sums.setdefault(".".join(row.module.split(".")[:depth]), [0, 0, 0])
        for i, value in enumerate((row.storages, row.raw_bytes, row.waiting_bytes)):
            mine[i] += value
    return sums


def table(rows: Rows, depth: Optional[int] = None) -> str:
    """Modules in words, the one with the most bytes first."""
    sums = sorted(by_depth(rows, depth).items(), key=lambda item: (-item[1][1], item[0]))
    lines = [f"{'saved':>10} {'waiting':>10} {'storages':>9}  module"]
    lines += [f"{in_words(raw):>10} {in_words(waiting):>10} {storages:>9}  {name or '(in none)'}"
              for name, (storages, raw, waiting) in sums[:_ROWS_OF_TEXT]]
    rest = sums[_ROWS_OF_TEXT:]
    if rest:
        lines.append(f"{in_words(sum(each[1][1] for each in rest)):>10} "
                     f"{in_words(sum(each[1][2] for each in rest)):>10} {sum(each[1][0] for each in rest):>9}  "
                     f"in {len(rest)} others; by_module(depth) adds modules up")
    return "\n".join(lines)
