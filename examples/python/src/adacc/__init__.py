# SPDX-License-Identifier: MIT
"""What PyTorch saves for backward, in fewer bytes.

    with adacc.saved_tensors("tolerated"):
        loss = model(x)
    loss.backward()

README.md says more; the work is done by the C++ library's adapter/torch.hpp.
"""
from __future__ import annotations

from typing import Any, Callable, List, Optional, Union

import torch
from torch.utils.checkpoint import checkpoint as _torch_checkpoint

try:
    from . import _native
except ImportError as why:
    raise ImportError(
        f"adacc's native part does not load into torch {torch.__version__}; it has to be built "
        f"against the torch that runs: pip install --no-build-isolation --force-reinstall "
        f"--no-deps examples/python ({why})") from why

if _native.built_for.split("+")[0] != torch.__version__.split("+")[0]:
    raise ImportError(
        f"adacc was built for torch {_native.built_for}, and this is {torch.__version__}: "
        f"pip install --no-build-isolation --force-reinstall --no-deps examples/python")

SavedTensor = _native.SavedTensor
Statistics = _native.Statistics
Policy = Union[str, Callable[[SavedTensor], str]]

__all__ = ["saved_tensors", "checkpoint", "memory", "Policy", "SavedTensor", "Statistics"]


class saved_tensors:
    """While it is entered, what operators on this thread save waits in fewer bytes.

    policy: "tolerated" (8 bits for attention and what is not in the table, 4 for linear layers,
    norms and GELU), "int8", "int4", "bf16", "lossless" (gradients keep their bits), "as_is"; or a
    callable that is given a SavedTensor once for each storage and returns the name of a form:
    "int8", "int4", "bf16", "lossless", "as_is".

    least_bytes: what has a smaller storage is kept as it is.

    An object may be entered again and again; its statistics go on. The innermost one holds.
    """

    def __init__(self, policy: Policy = "tolerated", *, least_bytes: int = 64 * 1024) -> None:
        self._store = _native.SavedStore(policy, least_bytes)
        self._entered: List[Any] = []

    def __enter__(self) -> saved_tensors:
        operators = _native.Operators()
        hooks = torch.autograd.graph.saved_tensors_hooks(self._store.pack, self._store.unpack)
        hooks.__enter__()
        operators.enter()
        self._entered.append((operators, hooks))
        return self

    def __exit__(self, kind: Optional[type], *rest: object) -> None:
        operators, hooks = self._entered.pop()
        operators.exit()
        hooks.__exit__(kind, *rest)
        if kind is None:
            self._store.settle()

    @property
    def statistics(self) -> Statistics:
        """Counts since this object was made."""
        return self._store.statistics()


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """function(*args, **kwargs), computed again in backward instead of saved.

    This is torch.utils.checkpoint.checkpoint(use_reentrant=False). Under saved_tensors the inputs,
    which are all that it saves, are encoded like everything else.
    """
    return _torch_checkpoint(function, *args, use_reentrant=False, **kwargs)


class memory:
    """Bytes of tensors on the CPU, counted by an allocator that takes the place of torch's.

    Scratch of MKL and oneDNN is not among them, nor what was allocated before count().
    """

    @staticmethod
    def count() -> None:
        """Starts to count, for the rest of the process."""
        _native.install_memory_count()

    @staticmethod
    def live() -> int:
        return _native.live_bytes()

    @staticmethod
    def peak() -> int:
        """The most since reset_peak()."""
        return _native.peak_bytes()

    @staticmethod
    def reset_peak() -> None:
        _native.reset_peak()
