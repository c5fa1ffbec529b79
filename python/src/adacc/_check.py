# SPDX-License-Identifier: MIT
"""What a policy does to the gradients of a model: a plain step, an encoded one, and who is to blame."""
from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import sys
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Dict, Iterator, List, Optional, Tuple, Union

import torch

from . import _native
from ._amounts import in_words
from ._modules import ModuleBytes, table

if TYPE_CHECKING:
    from . import Policy, budget

# Beside the largest gradient, one that is smaller is 0 but for rounding, in both steps.
_NEGLIGIBLE = 1e-6
_ROWS_OF_TEXT = 10

Gradients = Dict[str, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class ParameterError:
    """off: the relative squared error of the gradient; infinite where one of the two is no number."""
    name: str
    sizes: List[int]
    off: float
    largest: float  # of the plain gradient's numbers
    negligible: bool  # 0 but for rounding, as of a bias in front of a norm: only the whole's bound holds


@dataclasses.dataclass(frozen=True)
class OperatorError:
    """Of a step in which only the storages that these operators saved were encoded."""
    savers: str  # such as "addmm (mat1) + gelu (self)"
    form: str
    storages: int
    bytes: int
    off: float  # of the whole gradient
    worst: float  # of a parameter that is not negligible
    worst_parameter: str


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """str() of it says it in words."""
    policy: str
    loss: float
    off: float  # of the whole gradient
    parameters: List[ParameterError]  # worst first, negligible ones last
    operators: Optional[List[OperatorError]]  # worst first; None: nobody was to be blamed
    bound_of_whole: float
    bound_of_parameter: float
    storages: int
    encoded: int
    declined: int
    raw_bytes: int
    encoded_bytes: int
    modules: List[ModuleBytes] = dataclasses.field(default_factory=list)  # of the encoded step

    def by_module(self, depth: Optional[int] = None) -> str:
        """A table of what modules saved, the most first; depth: how many parts of a name count, None for all."""
        return table(self.modules, depth)

    @property
    def over(self) -> List[ParameterError]:
        """Parameters whose gradient is farther off than the bound."""
        return [each for each in self.parameters if not each.negligible and not each.off <= self.bound_of_parameter]

    @property
    def ok(self) -> bool:
        return self.off <= self.bound_of_whole and not self.over

    def as_dict(self) -> Dict[str, Any]:
        return {**dataclasses.asdict(self), "ok": self.ok}

    def __str__(self) -> str:
        counted = [each for each in self.parameters if not each.negligible]
        rest = len(self.parameters) - len(counted)
        lines = [f"adacc.check under {self.policy}: the whole gradient is {_off(self.off)} off (bound "
                 f"{self.bound_of_whole:g})" +
                 (f", the worst of {len(counted)} parameters {_off(counted[0].off)} (bound "
                  f"{self.bound_of_parameter:g})" if counted else "") + ": " +
                 ("within the bounds" if self.ok else f"over a bound; {len(self.over)} parameters are"),
                 f"off is the squared error by the gradient's square; {self.encoded} of {self.storages} saved "
                 f"storages wait encoded, {in_words(self.raw_bytes)} in {in_words(self.encoded_bytes)}; "
                 f"{self.declined} forms were declined" +
                 (f"; {rest} gradients are 0 but for rounding, and have no bound" if rest else ""),
                 f"{'off':>10}  parameter"]
        lines += [f"{_off(each.off):>10}  {each.name} {each.sizes}" + (" (0 but for rounding)"
                                                                         if each.negligible else "")
                  for each in self.parameters[:_ROWS_OF_TEXT]]
        if len(self.parameters) > _ROWS_OF_TEXT:
            lines.append(f"{'':>10}  and {len(self.parameters) - _ROWS_OF_TEXT} that are less off")
        if self.operators is not None:
            lines.append(f"{'off':>10}  {'worst':>10}  encoded alone: what these operators saved")
            lines += [f"{_off(each.off):>10}  {_off(each.worst):>10}  {each.savers}: {each.storages} as {each.form}, "
                      f"{in_words(each.bytes)}" + (f"; worst {each.worst_parameter}" if each.worst > 0 else "")
                      for each in self.operators[:_ROWS_OF_TEXT]]
            if not self.operators:
                lines.append(f"{'':>10}  nothing loses anything")
        return "\n".join(lines)


def _off(value: float) -> str:
    return "not finite" if math.isinf(value) else f"{value:.3g}"


def _squares(mine: torch.Tensor, exact: torch.Tensor) -> Tuple[float, float]:
    """Squares of the error, and of what is exact. The former is infinite if the two are not finite alike."""
    mine, exact = (x.to_dense() if x.layout != torch.strided else x for x in (mine, exact))
    if mine.is_complex():
        mine, exact = torch.view_as_real(mine), torch.view_as_real(exact)
    if not torch.equal(mine.isfinite(), exact.isfinite()):
        return math.inf, 0.0
    one, other = (x.double().nan_to_num(0, 0, 0) for x in (mine, exact))
    return float((one - other).square().sum()), float(other.square().sum())


def _relative(wrong: float, square: float) -> float:
    return wrong / square if square > 0 else (0.0 if wrong == 0 else math.inf)


def _compare(mine: Gradients, exact: Gradients) -> Tuple[float, List[ParameterError]]:
    """The whole gradient's error, and each one's: the worst first, negligible ones last."""
    sizes = {name: float(grad.detach().abs().nan_to_num(0, 0, 0).max()) if grad.layout == torch.strided and
             grad.numel() > 0 else math.sqrt(_squares(grad, grad)[1]) for name, grad in exact.items()}
    least = _NEGLIGIBLE * max(sizes.values(), default=0.0)
    rows, wrong, square = [], 0.0, 0.0
    for name, grad in exact.items():
        one = _squares(mine[name], grad)
        wrong, square = wrong + one[0], square + one[1]
        negligible = sizes[name] <= least and math.isfinite(one[0])
        rows.append(ParameterError(name, list(grad.shape), _relative(*one), sizes[name], negligible))
    rows.sort(key=lambda each: (each.negligible, -each.off, each.name))
    return _relative(wrong, square), rows


class _Trial:
    """Steps of a model, each of which begins with the same state."""

    def __init__(self, model: torch.nn.Module, loss_fn: Callable[[torch.nn.Module], torch.Tensor]) -> None:
        self._model, self._loss_fn = model, loss_fn
        for name, each in model.named_parameters():
            if isinstance(each, torch.nn.parameter.UninitializedParameter):
                raise ValueError(f"adacc.check: the parameter {name} has no sizes yet; run the model once before")
            if getattr(each, "_post_accumulate_grad_hooks", None):
                raise ValueError(f"adacc.check: the parameter {name} has a hook that runs once its gradient is "
                                 f"there, such as an optimizer's, which could change the model; check before it "
                                 f"is registered")
        self._parameters = {name: each for name, each in model.named_parameters() if each.requires_grad}
        if not self._parameters:
            raise ValueError("adacc.check: no parameter of the model asks for a gradient")
        self._versions = {name: each._version for name, each in model.named_parameters()}
        self._gradients = {name: each.grad for name, each in self._parameters.items()}
        self._buffers = [(module, name, buffer, None if buffer is None else buffer.detach().clone())
                         for module in model.modules() for name, buffer in module._buffers.items()]
        self._generators = list(_generators())
        self.loss: Optional[float] = None

    def restore(self) -> None:
        """The state at the beginning, but for gradients."""
        with torch.no_grad():
            for module, name, buffer, value in self._buffers:
                module._buffers[name] = buffer
                if buffer is not None and value is not None and not buffer.is_inference():
                    buffer.copy_(value)
        for restore in self._generators:
            restore()

    def close(self) -> None:
        self.restore()
        for name, each in self._parameters.items():
            each.grad = self._gradients[name]

    def gradients(self, around: ContextManager[Any]) -> Gradients:
        self.restore()
        for each in self._parameters.values():
            each.grad = None
        with around:
            loss = self._loss_fn(self._model)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            what = f"a tensor of {list(loss.shape)}" + ("" if loss.requires_grad else " without a graph") \
                if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
            raise TypeError(f"adacc.check: loss_fn(model) returned {what}; a loss is a tensor of one element that "
                            f"depends on the parameters, in front of backward()")
        value = float(loss.detach())
        # Codecs touch backward alone: a step of the same loss_fn has the same loss.
        same = self.loss is None or value == self.loss or (math.isnan(value) and math.isnan(self.loss)) or \
            abs(value - self.loss) <= 1e-4 * abs(self.loss)
        if not same:
            raise ValueError(f"adacc.check: the loss was {self.loss:g} and then {value:g}, though codecs do not "
                             f"touch forward: loss_fn has to take the same batch each time, and to draw random "
                             f"numbers from the global generators")
        self.loss = value
        loss.backward()
        for name, each in self._model.named_parameters():
            if each._version != self._versions[name]:
                raise ValueError(f"adacc.check: a step changed the parameter {name}; loss_fn has to compute the loss "
                                 f"alone, without an optimizer")
        found = {name: each.grad for name, each in self._parameters.items()}
        for each in self._parameters.values():
            each.grad = None
        return {name: grad for name, grad in found.items() if grad is not None}


def _generators() -> Iterator[Callable[[], Any]]:
    """For each global generator of random numbers, what sets it back."""
    state = torch.get_rng_state()
    yield lambda: torch.set_rng_state(state)
    if torch.cuda.is_initialized():
        of_devices = torch.cuda.get_rng_state_all()
        yield lambda: torch.cuda.set_rng_state_all(of_devices)
    of_python = random.getstate()
    yield lambda: random.setstate(of_python)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        of_numpy = numpy.random.get_state()
        yield lambda: numpy.random.set_state(of_numpy)


def _savers(tensor: _native.SavedTensor) -> str:
    pairs = {(name.removeprefix("aten::"), role) for name, role in zip(tensor.savers, tensor.roles)}
    return " + ".join(sorted(f"{name or 'unknown'} ({role})" if role else name or "unknown" for name, role in pairs))


def _blame(trial: _Trial, exact: Gradients, form_of: Callable[[_native.SavedTensor], str],
           under: Callable[[Callable[[_native.SavedTensor], str]], ContextManager[Any]]) -> List[OperatorError]:
    """Storages by who saved them, each kind encoded alone."""
    kinds: Dict[Tuple[str, str], List[int]] = {}

    def note(tensor: _native.SavedTensor) -> str:
        kinds.setdefault((_savers(tensor), form_of(tensor)), []).append(tensor.bytes)
        return "as_is"
    trial.gradients(under(note))
    rows = []
    for (savers, form), sizes in kinds.items():
        if form in ("as_is", "lossless"):
            continue

        def alone(tensor: _native.SavedTensor, savers: str = savers, form: str = form) -> str:
            return form if _savers(tensor) == savers and form_of(tensor) == form else "as_is"
        off, errors = _compare(trial.gradients(under(alone)), exact)
        worst = errors[0]
        rows.append(OperatorError(savers, form, len(sizes), sum(sizes), off,
                                  0.0 if worst.negligible else worst.off, worst.name))
    return sorted(rows, key=lambda each: (-each.worst, -each.off, each.savers))


def _planned_step(trial: _Trial, around: budget) -> Gradients:
    """Gradients of a budget's first step by a plan; it records the steps before, if it has not yet."""
    least = around.report.planned
    for _ in range(around._recorded_steps + 2):
        gradients = trial.gradients(around)
        if around.report.planned > least:
            return gradients
    raise RuntimeError(f"adacc.check: the budget planned no step of this model ({around.report})")


def check(model: torch.nn.Module, loss_fn: Callable[[torch.nn.Module], torch.Tensor],
          policy: Union[Policy, budget] = "tolerated", *, least_bytes: int = 64 * 1024, bound_of_whole: float = 0.01,
          bound_of_parameter: float = 0.05, blame: Optional[bool] = None) -> CheckReport:
    """Compares gradients of a plain step with those of a step under saved_tensors(policy), or of a budget.

    loss_fn(model) returns the loss of one batch, the same each time: lambda model: model(**batch).loss.
    Gradients, buffers (running statistics) and the global generators of random numbers are afterwards
    as they were. Besides what the step itself takes there are gradients twice, and buffers.

    policy: as of saved_tensors; or a budget, of which a planned step is compared. One that is new records and plans
    here, on this batch, and goes on from there. It has its own least_bytes.

    blame: whether each kind of operator that saved something is then encoded alone, a step for each, as the policy
    has it (of a budget, the most that it may plan); None: if a bound is passed.
    """
    from . import budget, saved_tensors

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"adacc.check: the first argument is a torch.nn.Module, not a {type(model).__name__}")
    if not callable(loss_fn):
        raise TypeError(f"adacc.check: loss_fn is called with the model and returns the loss; it is a "
                        f"{type(loss_fn).__name__}")
    outside = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignores_tracing: None)
    if outside(False) is not None or _native.has_planner():
        raise RuntimeError("adacc.check: hooks for saved tensors are entered around it, so that no step would be "
                           "plain; call it outside of saved_tensors, budget and the like")
    planned: Optional[budget] = None
    if isinstance(policy, budget):
        planned, form, least_bytes = policy, policy._policy, policy._least_bytes
    else:
        form = policy
    hooks = saved_tensors(form, least_bytes=least_bytes, modules=True)
    trial = _Trial(model, loss_fn)
    try:
        exact = trial.gradients(contextlib.nullcontext())
        off, parameters = _compare(trial.gradients(hooks) if planned is None else _planned_step(trial, planned), exact)
        name = form if isinstance(form, str) else getattr(form, "__name__", repr(form))
        rows: List[_native.ModuleBytes] = hooks._store.modules()
        storages, encoded, declined = (getattr(hooks.statistics, of) for of in ("storages", "encoded", "declined"))
        if planned is not None:
            name = f"a budget of {in_words(planned.report.budget_bytes)} ({name})"
            rows = planned.report.modules
            storages = sum(each.storages for each in planned.report.shares)
            encoded = storages - sum(each.storages for each in planned.report.shares if each.policy == "retain")
        report = CheckReport(name, trial.loss or 0.0, off, parameters, None, bound_of_whole, bound_of_parameter,
                             storages, encoded, declined, sum(each.raw_bytes for each in rows),
                             sum(each.waiting_bytes for each in rows),
                             [ModuleBytes(each.module, each.storages, each.raw_bytes, each.waiting_bytes)
                              for each in rows])
        if blame or (blame is None and not report.ok):
            def form_of(tensor: _native.SavedTensor) -> str:
                return _native.ready_form(form, tensor) if isinstance(form, str) else str(form(tensor))
            operators = _blame(trial, exact, form_of,
                               lambda alone: saved_tensors(alone, least_bytes=least_bytes))
            report = dataclasses.replace(report, operators=operators)
        return report
    finally:
        trial.close()
