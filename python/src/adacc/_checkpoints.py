# SPDX-License-Identifier: MIT
"""Checkpoints that a budget plans: adacc's, and torch.utils.checkpoint's while a budget is entered.

Others hold torch.utils.checkpoint.checkpoint by its own name (transformers does), so the module's
attribute is not enough: within a budget the function itself has another code, which asks the budget of the
thread that calls. Where a thread has none, torch's own code runs.
"""
from __future__ import annotations

import functools
import inspect
import threading
import types
from typing import Any, Callable, Dict, List, Tuple

import torch
import torch.utils.checkpoint

from . import _native

# Those of checkpoint() rather than of its function.
_OF_CHECKPOINT = ("preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop")


def _in_place_of_torchs(function=None, *args, **kwargs):  # type: ignore[no-untyped-def]
    """The code of torch's checkpoint() while a budget is entered. Its globals are those of torch's module."""
    from adacc._checkpoints import torch_checkpoint_within_budget
    return torch_checkpoint_within_budget(function, *args, **kwargs)


def _function_of(checkpoint: Any) -> Any:
    """The plain function inside of decorators; None if somebody has put something else in its place."""
    function = inspect.unwrap(checkpoint)
    is_plain = isinstance(function, types.FunctionType) and not function.__code__.co_freevars
    return function if is_plain else None


_target = _function_of(torch.utils.checkpoint.checkpoint)


def _copy_of_torchs() -> Callable[..., Any]:
    """torch's checkpoint() whose code never changes."""
    if _target is None:
        return torch.utils.checkpoint.checkpoint
    copy = types.FunctionType(_target.__code__, _target.__globals__, _target.__name__, _target.__defaults__)
    copy.__kwdefaults__ = _target.__kwdefaults__
    disable = getattr(torch, "_disable_dynamo", None)
    return disable(copy) if disable is not None else copy


_torch_checkpoint = _copy_of_torchs()


class PlansTorchCheckpoints:
    """From enter to exit of whichever thread, torch's checkpoints ask the budget of their thread."""

    _lock = threading.Lock()
    _entered = 0
    _code: Any = None

    @classmethod
    def enter(cls) -> None:
        with cls._lock:
            if cls._entered == 0 and _target is not None:
                cls._code, _target.__code__ = _target.__code__, _in_place_of_torchs.__code__
            cls._entered += 1

    @classmethod
    def exit(cls) -> None:
        with cls._lock:
            cls._entered -= 1
            if cls._entered == 0 and _target is not None:
                _target.__code__ = cls._code


def _unplanned(function: Callable[..., Any], is_planned: bool) -> Callable[..., Any]:
    """function, inside of which no checkpoint is planned.

    In a planned one those inside are plain calls, also when it runs again after the budget's end.
    """

    @functools.wraps(function, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        scope = _native.Unplanned()
        scope.enter(is_planned)
        if is_planned:
            PlansTorchCheckpoints.enter()
        try:
            return function(*args, **kwargs)
        finally:
            if is_planned:
                PlansTorchCheckpoints.exit()
            scope.exit()
    return run


def _planned(function: Callable[..., Any], args: Tuple[Any, ...], options: Dict[str, Any],
             kwargs: Dict[str, Any]) -> Any:
    """As the plan of this thread's budget says."""
    block = _native.PlannedBlock()
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    how = block.enter(tensors)
    try:
        run = _unplanned(function, True)
        if how == "again":
            return _torch_checkpoint(run, *args, use_reentrant=False, **options, **kwargs)
        if how == "recorded":
            block.record(tensors, _again(run, args, kwargs))
        return run(*args, **kwargs)
    finally:
        block.exit()


def _again(run: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Callable[..., None]:
    """Calls run with other tensors in the places of those among args, which it does not hold."""
    others = [None if isinstance(arg, torch.Tensor) else (arg,) for arg in args]

    def again(tensors: List[torch.Tensor], collect: Callable[[torch.Tensor], torch.Tensor]) -> None:
        given = iter(tensors)
        with torch.autograd.graph.saved_tensors_hooks(collect, lambda value: value):
            run(*[next(given) if other is None else other[0] for other in others], **kwargs)
    return again


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """function(*args, **kwargs), computed again in backward instead of saved.

    This is torch.utils.checkpoint.checkpoint(use_reentrant=False). Under saved_tensors the inputs,
    which are all that it saves, are encoded like everything else. Under a budget its plan says
    whether the function is computed again; of checkpoints within one another the outermost counts.
    """
    options = {name: kwargs.pop(name) for name in _OF_CHECKPOINT if name in kwargs}
    if not torch.is_grad_enabled() or _native.within_block():
        return function(*args, **kwargs)
    if not _native.has_planner():
        return _torch_checkpoint(_unplanned(function, False), *args, use_reentrant=False, **options, **kwargs)
    return _planned(function, args, options, kwargs)


def torch_checkpoint_within_budget(function: Any, *args: Any, **kwargs: Any) -> Any:
    """torch.utils.checkpoint.checkpoint() while some thread is in a budget."""
    is_ours = torch.is_grad_enabled() and (_native.has_planner() or _native.within_block())
    if function is None or not is_ours:
        return _torch_checkpoint(function, *args, **kwargs)
    own = dict(kwargs)
    options = {name: own.pop(name) for name in _OF_CHECKPOINT if name in own}
    defaults = getattr(inspect.unwrap(_torch_checkpoint), "__kwdefaults__", None) or {}
    reentrant = own.pop("use_reentrant", None)
    if reentrant is None:
        reentrant = defaults.get("use_reentrant") is not False
    # Its author says what is saved; and what torch refuses, torch says.
    by_themselves = ("context_fn" in options or options.get("debug") or
                     own.pop("respect_saved_tensors_hooks", None) is not None)
    if reentrant:
        # Then torch has no gradient for what the function reads beside its inputs.
        asks = any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
        by_themselves = by_themselves or bool(own) or not asks
    if by_themselves:
        return _torch_checkpoint(_unplanned(function, False), *args, **kwargs)
    if _native.within_block():
        return function(*args, **own)
    return _planned(function, args, options, own)
