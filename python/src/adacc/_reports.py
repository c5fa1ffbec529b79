# SPDX-License-Identifier: MIT
"""Reports and statistics of the native part as dicts, and in words."""
from __future__ import annotations

from typing import Any, Dict, Optional

from . import _native
from ._amounts import in_words
from ._modules import table


def as_dict(report: Any) -> Dict[str, Any]:
    """Numbers, texts and lists of dicts, by name: for loggers and json."""
    values = {}
    for name, member in vars(type(report)).items():
        if isinstance(member, property):
            value = getattr(report, name)
            values[name] = [as_dict(each) for each in value] if isinstance(value, list) else value
    return values


def _words_of_statistics(mine: _native.Statistics) -> str:
    return (f"Statistics: {mine.encoded} of {mine.storages} storages encoded, {in_words(mine.raw_bytes)} in "
            f"{in_words(mine.encoded_bytes)}; {mine.packed} tensors saved, {mine.unpacked} read; left alone: "
            f"{mine.parameters} of parameters, {mine.small} small, {mine.others} of other kinds; "
            f"{mine.declined} forms declined, {mine.unlike_rows} encoded for rows of unlike scale; on devices "
            f"{mine.exact_rows} rows kept exactly, {mine.uncertified} forms that failed")


def _words_of_share(mine: _native.BudgetShare) -> str:
    return f"{mine.storages} under {mine.policy} ({in_words(mine.bytes)})"


def _by_module(mine: _native.BudgetReport, depth: Optional[int] = None) -> str:
    """A table of what modules saved in the recorded step, and how it waits in a planned one, the most first."""
    return table(mine.modules, depth)


for _type in (_native.Statistics, _native.BudgetReport, _native.BudgetShare, _native.ModuleBytes):
    setattr(_type, "as_dict", as_dict)
setattr(_native.BudgetReport, "by_module", _by_module)
setattr(_native.Statistics, "__repr__", _words_of_statistics)
setattr(_native.BudgetShare, "__repr__", _words_of_share)
