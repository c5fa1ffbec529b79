# SPDX-License-Identifier: MIT
"""What PyTorch saves for backward, in fewer bytes.

    with adacc.saved_tensors("tolerated"):
        loss = model(x)
    loss.backward()

or, of all the bytes that a training step has in use at its peak,

    budget = adacc.budget("40%")
    for batch in batches:
        with budget:
            loss = model(batch)
        loss.backward()

and check(model, loss_fn) says what that does to gradients. README.md says more; the work is done by the
C++ library's adapter/torch.hpp.
"""
from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import inspect
import os
import pathlib
import warnings
from typing import TYPE_CHECKING, Any, Callable, ContextManager, List, Optional, Tuple, TypeVar, Union

import torch


def _of_another_torch(built_for: str, why: str) -> ImportError:
    return ImportError(
        f"adacc is built for torch {built_for}, and this is torch {torch.__version__}{why}: install a wheel of adacc "
        f"that was built for this one, or build it: pip install --no-build-isolation --force-reinstall --no-deps, and "
        f"the folder python of a checkout or an sdist")


try:
    from . import _native
except ImportError as why:
    try:
        _built_for = next(each.removeprefix("torch") for each in importlib.metadata.requires("adacc") or []
                          if each.startswith("torch"))
    except (importlib.metadata.PackageNotFoundError, StopIteration):
        _built_for = "of another version"
    raise _of_another_torch(_built_for.replace("==", ""), f", which does not load it ({why})") from why

# Releases of a minor version have one binary interface.
if _native.built_for.split(".")[:2] != torch.__version__.split(".")[:2]:
    raise _of_another_torch(_native.built_for, "")

# Tensors on CUDA devices are encoded if the wheel brings kernels (setup.py), and else pass as they are.
_kernels = pathlib.Path(__file__).with_name("kernels.fatbin")
has_cuda_kernels: bool = (torch.version.cuda is not None and _kernels.is_file() and
                          _native.use_cuda_kernels(_kernels.read_bytes()))

from . import _reports as _reports  # as_dict and words of the native part's types
from ._amounts import auto_amount as _auto_amount
from ._amounts import auto_amount_of as _auto_amount_of
from ._check import CheckReport, OperatorError, ParameterError, check
from ._checkpoints import PlansTorchCheckpoints as _PlansTorchCheckpoints
from ._checkpoints import checkpoint
from ._modules import name_of_module as _name_of_module
from ._modules import table as _table_of_modules

if TYPE_CHECKING:
    from ._trainer import Callback as Callback

__version__: str = _native.version
SavedTensor = _native.SavedTensor
Statistics = _native.Statistics
BudgetReport = _native.BudgetReport
Policy = Union[str, Callable[[SavedTensor], str]]
_Device = Union[str, torch.device]
_Function = TypeVar("_Function", bound=Callable[..., Any])

__all__ = ["saved_tensors", "budget", "check", "checkpoint", "context_fn", "memory", "BudgetReport", "CheckReport",
           "OperatorError", "ParameterError", "Policy", "SavedTensor", "Statistics"]


def __getattr__(name: str) -> Any:
    """adacc.Callback, which needs transformers: imported when somebody asks for it."""
    if name == "Callback":
        from ._trainer import Callback
        return Callback
    raise AttributeError(f"module 'adacc' has no attribute '{name}'")


class _Hooks:
    """What a store is given on this thread, from enter to exit, as often as one likes."""

    def __init__(self, store: _native.SavedStore, of: Optional[_native.MemoryBudget] = None, *,
                 names_modules: bool = True) -> None:
        self._store, self._of = store, of
        self._module_name = _name_of_module if names_modules else None
        self._entered: List[Tuple[_native.Scope, Any]] = []

    def enter(self) -> None:
        scope = _native.Scope()
        hooks = torch.autograd.graph.saved_tensors_hooks(self._store.pack, self._store.unpack)
        hooks.__enter__()
        try:
            scope.enter(self._of, self._store, self._module_name)
        except BaseException:
            hooks.__exit__(None, None, None)
            raise
        if self._of is not None:
            _PlansTorchCheckpoints.enter()
        self._entered.append((scope, hooks))

    def exit(self, *how: Any) -> None:
        if not self._entered:
            raise RuntimeError("adacc: left more often than entered")
        scope, hooks = self._entered.pop()
        if self._of is not None:
            _PlansTorchCheckpoints.exit()
        try:
            scope.exit()
        finally:
            hooks.__exit__(*how)


class _Decorates:
    """A context that may stand in front of a function: entered for each call of it."""

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, kind: Optional[type], *rest: object) -> None:
        raise NotImplementedError

    def __call__(self, function: _Function) -> _Function:
        name = type(self).__name__
        if not callable(function):
            raise TypeError(f"adacc: {name} decorates a function, not a {type(function).__name__}; it is made with "
                            f"parentheses: @adacc.{name}(...)")
        if any(of(function) for of in (inspect.isgeneratorfunction, inspect.iscoroutinefunction,
                                       inspect.isasyncgenfunction)):
            raise TypeError(f"adacc: {name} decorates functions that compute when they are called; "
                            f"{function.__name__} is a generator or a coroutine: use 'with' inside of it")

        @functools.wraps(function, updated=())
        def within(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)
        return within  # type: ignore[return-value]


class saved_tensors(_Decorates):
    """While it is entered, what operators on this thread save waits in fewer bytes.

    policy: "tolerated" (8 bits for attention and what is not in the table, 4 for linear layers,
    norms and GELU), "int8", "int4", "bf16", "lossless" (gradients keep their bits), "as_is"; or a
    callable that is given a SavedTensor once for each storage and returns the name of a form:
    "int8", "int4", "bf16", "lossless", "as_is".

    least_bytes: what has a smaller storage is kept as it is.

    again: outputs of casts (autocast's of weights, too), GELU, SiLU, products by element and norms are dropped where
    the operator's inputs are saved anyway. The operator runs again in backward, with equal bits; under "lossless", too.
    What a callable keeps "as_is" is kept.

    modules: whether by_module() has a table; a callable is told modules in any case.

    An object may be entered again and again; its statistics go on. The innermost one holds. In front of
    a function, @saved_tensors("int8") is entered for each call.
    """

    def __init__(self, policy: Policy = "tolerated", *, least_bytes: int = 64 * 1024, again: bool = False,
                 modules: bool = False) -> None:
        self._store = _native.SavedStore(policy, least_bytes, again)
        self._hooks = _Hooks(self._store, names_modules=modules or not isinstance(policy, str))

    def __enter__(self) -> saved_tensors:
        self._hooks.enter()
        return self

    def __exit__(self, kind: Optional[type], *rest: object) -> None:
        self._hooks.exit(kind, *rest)
        if kind is None:
            self._store.settle()

    @property
    def statistics(self) -> Statistics:
        """Counts since this object was made."""
        return self._store.statistics()

    def by_module(self, depth: Optional[int] = None) -> str:
        """Bytes since this object was made, by the module that saved them, the most first.

        depth: how many parts of a module's name count; None: all.
        """
        return _table_of_modules(self._store.modules(), depth)


class context_fn:
    """For the argument of this name of torch.utils.checkpoint.checkpoint (use_reentrant=False): tensors saved
    within the block wait encoded, as under saved_tensors, and no operator of the block is computed again.

        kept = adacc.context_fn("int8")
        y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False, context_fn=kept)

    So blocks that are too slow to be computed twice are encoded, and the others are computed again. One object
    serves any number of blocks. A budget does not plan such a block. torch.compile takes dispatch modes alone.

    policy, least_bytes, again: as of saved_tensors.
    """

    def __init__(self, policy: Policy = "tolerated", *, least_bytes: int = 64 * 1024, again: bool = False) -> None:
        self._saved = saved_tensors(policy, least_bytes=least_bytes, again=again)

    def __call__(self) -> Tuple[ContextManager[Any], ContextManager[Any]]:
        return self._saved, contextlib.nullcontext()

    @property
    def statistics(self) -> Statistics:
        """Counts of all blocks since this object was made."""
        return self._saved.statistics


class budget(_Decorates):
    """While it is entered, a training step's peak is kept within a budget of bytes.

    amount: "40%" of the peak of a step as it is, or bytes: "30MiB", "4 GB" (of 10^9), 31457280; or
    "auto": nine tenths of what the control group's limit and free memory leave when the object is made,
    which report says. The peak is that above what was in use when the step began; memory counts it, from
    the first budget on.

    policy: as of saved_tensors. What it returns is the smallest form that may be planned for a
    storage; it may also be kept as it is, or in a milder form. With "lossless" gradients keep
    their bits: then it is masks, signs and checkpoints that save memory.

    least_bytes: what has a smaller storage is kept as it is.

    recorded_steps: so many steps are recorded first, the very first one in the smallest forms and the others by a
    plan for the step before; the last one counts. Steps of
    another kind that come later (other sizes, other operators) are recorded as they come.

    on_refusal: "raise", or "least": a step that no plan brings within the budget runs in the least there is.

    store: a folder on a disk. Tensors may then also be written to a file in it (without a name, past the
    page cache, gone with the process) and read back before backward asks for them, without loss. A
    folder where that cannot be is a RuntimeError that says why; report has written_bytes, read_bytes and
    stall_seconds of the last step. Flash wears out by what is written. For a budget of a CUDA device, "pinned:8GiB":
    so much of the host's memory is pinned, and takes tensors the same way; nothing waits there but the device.

    again: as of saved_tensors: plans may drop an operator's output, and run the operator again in backward, with equal
    bits. Then the plan sees to it that the inputs wait, and with no loss that the output's readers do not tolerate.
    A parameter must not change between forward and backward then: where a cast of it was dropped, that is an error.

    device: whose memory the budget is of, and whose tensors it plans, "cpu" or "cuda:1"; without it, the device of the
    first tensors saved. Tensors on other devices are kept as they are, and report says so. On CUDA devices nothing
    waits in forward and backward, bytes are those that torch's caching allocator has given out, in units of 512, and
    forms are chosen without a look at values, so some are milder than on the CPU.

    of: "step", or "device": the amount, in bytes, is of all tensors there, those in use when a step begins included.

    Make it once and enter it for each step, or around all of them. Blocks that run through
    checkpoint() or torch.utils.checkpoint's (so transformers' gradient_checkpointing) are computed again
    if the plan says so, and else run as they are. A budget that a kind of steps cannot meet is a RuntimeError
    where such a step saves its first tensors; it says what can be. Steps of other kinds go on.
    """

    def __init__(self, amount: Union[str, int], policy: Policy = "tolerated", *,
                 least_bytes: int = 64 * 1024, recorded_steps: int = 2,
                 store: Union[str, os.PathLike[str], None] = None, on_refusal: str = "raise",
                 device: Optional[_Device] = None, of: str = "step", again: bool = True) -> None:
        if store is not None and not os.fspath(store):
            raise ValueError("adacc: store is a folder on a disk, and '' is none")
        if of not in ("step", "device"):
            raise ValueError(f"adacc: a budget is of a 'step' or of a 'device', not of {of!r}")
        self._looked_up = ""
        self._policy, self._least_bytes, self._recorded_steps = policy, least_bytes, recorded_steps
        if isinstance(amount, str) and amount.strip().lower() == "auto":
            amount, self._looked_up = _auto_amount() if device is None else _auto_amount_of(torch.device(device))
        self._budget = _native.MemoryBudget(amount, policy, least_bytes, recorded_steps,
                                            "" if store is None else os.fspath(store), on_refusal,
                                            None if device is None else str(device), of == "device", again)
        self._hooks = _Hooks(self._budget.store, self._budget)

    def __enter__(self) -> budget:
        self._budget.enter()
        try:
            self._hooks.enter()
        except BaseException:
            self._budget.leave()
            raise
        return self

    def __exit__(self, kind: Optional[type], *rest: object) -> None:
        try:
            self._hooks.exit(kind, *rest)
        finally:
            self._budget.leave()

    @property
    def report(self) -> BudgetReport:
        """As of the last step that is over; str() of it says it in words."""
        report = self._budget.report()
        report.note = "; ".join(each for each in (report.note, self._looked_up) if each)
        return report

    def __del__(self) -> None:
        made = getattr(self, "_budget", None)
        if made is None:
            return
        report = made.report()
        if report.recorded > 0 and report.budget_bytes == 0 and report.least_bytes == 0:
            warnings.warn(f"adacc: a budget went before a step was planned ({report}): make it once, "
                          f"in front of the loop over steps", stacklevel=2)


class memory:
    """Bytes of tensors on the CPU, counted by an allocator that takes the place of torch's, or on a CUDA device, as
    torch's caching allocator gives them out, in units of 512 bytes.

    Scratch of MKL and oneDNN is not among them, nor what was allocated on the CPU before count().
    """

    @staticmethod
    def count(device: _Device = "cpu") -> None:
        """Starts to count, for the rest of the process."""
        _native.count_memory(str(device))

    @staticmethod
    def live(device: _Device = "cpu") -> int:
        return _native.live_bytes(str(device))

    @staticmethod
    def peak(device: _Device = "cpu") -> int:
        """The most since reset_peak()."""
        return _native.peak_bytes(str(device))

    @staticmethod
    def reset_peak(device: _Device = "cpu") -> None:
        _native.reset_peak(str(device))
