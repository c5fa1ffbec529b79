# SPDX-License-Identifier: MIT
"""Every operator that torch's OpInfo differentiates on the CPU, under each policy, against torch alone.

    python python/tests/operators_of_torch.py               # all of them, a few minutes
    python python/tests/operators_of_torch.py softmax amax  # those whose names begin so

Inputs are OpInfo's own, made larger so that what is saved is encoded, and the same with hard numbers: ties, a few
infinities, a few of the lowest number, all tiny, all huge, rows of unlike scale. `lossless` has to have torch's bits. A
policy that loses something must have no NaN or infinity that torch has not, and no gradient that is off by more than
5 % (relative squared error). It counts what lost something, too: what loses nothing proves nothing.
"""
import argparse
import contextlib
import faulthandler
import sys
import time
import warnings

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import adacc

POLICIES = ("lossless", "bf16", "int8", "tolerated")
MOST = 0.05
# Inputs of +-9 saturate attention: what is left of the gradients of queries and keys are differences in which the
# rounding of values counts, which nothing here can see. Counted apart.
SATURATED = ("nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward",
             "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu")
LARGEST = 200_000  # elements of a sample
# Draw other numbers each time, or have no gradients to compare.
SKIPPED = ("empty", "new_empty", "bernoulli", "normal", "multinomial", "svd_lowrank", "pca_lowrank", "rand", "uniform",
           "cauchy", "exponential", "geometric", "log_normal")


def operators():
    """OpInfo's, with larger samples."""
    import importlib
    import pkgutil
    from torch.testing._internal import common_methods_invocations as invocations
    from torch.testing._internal import opinfo
    modules = [invocations]
    for found in pkgutil.walk_packages(opinfo.__path__, opinfo.__name__ + "."):
        with contextlib.suppress(ImportError):
            modules.append(importlib.import_module(found.name))
    for module in modules:
        for name, size in (("XS", 6), ("S", 20), ("M", 24), ("L", 48)):
            if isinstance(getattr(module, name, None), int):
                setattr(module, name, size)
    return [op for op in invocations.op_db if op.supports_autograd and torch.float32 in op.dtypes
            and not op.name.startswith(SKIPPED)]


def ties(x):
    return x.round()


def some(value):
    def change(x):
        places = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.01
        return torch.where(places, torch.full_like(x, value), x)
    return change


def rows(x):
    if x.dim() < 2:
        return x * torch.logspace(-4, 0, x.numel()).view(x.shape)
    return x * torch.logspace(-4, 0, x.shape[0]).view((-1,) + (1,) * (x.dim() - 1))


HARD = {
    "ordinary": lambda x: x,
    "ties": ties,
    "-inf": some(float("-inf")),
    "lowest": some(torch.finfo(torch.float32).min),
    "1e-30": lambda x: x * 1e-30,
    "1e30": lambda x: x * 1e30,
    "rows": rows,
}


def leaves_of(sample, change):
    """The sample's arguments with those that ask for a gradient changed, and these."""
    flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    leaves = []
    for i, x in enumerate(flat):
        if isinstance(x, torch.Tensor) and x.requires_grad and x.dtype == torch.float32 and \
                x.layout == torch.strided:
            flat[i] = change(x.detach().clone()).requires_grad_()
            leaves.append(flat[i])
    return flat, spec, leaves


class Weigh(torch.autograd.Function):
    """The sum of y, each element by a weight of its own (equal ones would cancel in norms and softmax). Saves
    nothing that could be encoded."""

    @staticmethod
    def forward(ctx, y):
        ctx.like = y.shape, y.dtype
        return y.new_zeros(())

    @staticmethod
    def backward(ctx, grad):
        shape, dtype = ctx.like
        return torch.randn(shape, generator=torch.Generator().manual_seed(11)).to(dtype)


def gradients(op, flat, spec, leaves, around):
    """Nobody but autograd holds what op is given and returns: the inputs are copies of the leaves."""
    def loss():
        fresh = [x * 1 if any(x is leaf for leaf in leaves) else x for x in flat]
        given, args, kwargs = tree_unflatten(fresh, spec)
        del fresh
        out = op(given, *args, **kwargs)
        del given, args, kwargs
        parts = []
        for y in tree_flatten(out)[0]:
            if not isinstance(y, torch.Tensor) or not y.requires_grad or y.layout != torch.strided:
                continue
            y = torch.view_as_real(y) if y.is_complex() else y
            parts.append(Weigh.apply(y))
        return parts
    torch.manual_seed(7)
    with around:
        parts = loss()
    return torch.autograd.grad(parts, leaves, allow_unused=True) if parts else None


def judge(mine, exact):
    """"", or what is wrong; and the largest error."""
    worst = 0.0
    for a, b in zip(mine, exact):
        if b is None:
            continue
        finite = b.isfinite()
        if not a[finite].isfinite().all():
            return "no number where torch has one", float("inf")
        error = float((a - b)[finite].double().square().sum())
        whole = float(b[finite].double().square().sum())
        if error > 0:
            worst = max(worst, error / whole if whole > 0 else float("inf"))
    return (f"off by {worst:.2g}" if worst > MOST else ""), worst


def same_bits(mine, exact):
    return all((a is None) == (b is None) and (a is None or torch.equal(a.nan_to_num(7, 8, 9), b.nan_to_num(7, 8, 9)))
               for a, b in zip(mine, exact))


class Count:
    def __init__(self):
        self.operators = self.cases = 0
        self.lossy = {policy: set() for policy in POLICIES}
        self.lossy_cases = dict.fromkeys(POLICIES, 0)
        self.wrong = []
        self.saturated = []
        self.not_run = set()


def check(op, samples, hard, count):
    name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
    ran = False
    torch.manual_seed(0)
    try:
        taken = []
        for sample in op.sample_inputs("cpu", torch.float32, requires_grad=True):
            if sum(x.numel() for x in tree_flatten((sample.input, sample.args))[0]
                   if isinstance(x, torch.Tensor)) <= LARGEST:
                taken.append(sample)
            if len(taken) == samples:
                break
    except Exception:
        count.not_run.add(name)
        return
    for number, sample in enumerate(taken):
        for kind in hard:
            flat, spec, leaves = leaves_of(sample, HARD[kind])
            if not leaves:
                continue
            try:
                exact = gradients(op, flat, spec, leaves, contextlib.nullcontext())
                if exact is None or not same_bits(gradients(op, flat, spec, leaves, contextlib.nullcontext()), exact):
                    continue  # torch's own gradients differ from run to run
            except Exception:
                continue  # torch refuses such an input
            ran = True
            count.cases += 1
            for policy in POLICIES:
                where = f"{name} [{number}] {kind}, {policy}"
                try:
                    mine = gradients(op, flat, spec, leaves, adacc.saved_tensors(policy, least_bytes=1))
                except Exception as why:
                    count.wrong.append(f"{where}: {str(why).splitlines()[0]}")
                    continue
                if policy == "lossless":
                    if not same_bits(mine, exact):
                        count.wrong.append(f"{where}: other bits")
                    continue
                why, error = judge(mine, exact)
                if why:
                    known = op.name in SATURATED and why.startswith("off")
                    (count.saturated if known else count.wrong).append(f"{where}: {why}")
                if error > 0:
                    count.lossy[policy].add(name)
                    count.lossy_cases[policy] += 1
    count.operators += ran
    if not ran:
        count.not_run.add(name)


def run(names=(), samples=4, hard=tuple(HARD), exactly=False, show=False):
    count = Count()
    warnings.simplefilter("ignore")
    for op in operators():
        wanted = op.name in names if exactly else not names or op.name.startswith(tuple(names))
        if not wanted:
            continue
        start = time.monotonic()
        check(op, samples, hard, count)
        if show and time.monotonic() - start > 10:
            print(f"  {op.name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="how operators' names begin (all of them)")
    parser.add_argument("--samples", type=int, default=4, help="of each operator, at most (4)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    faulthandler.enable()
    count = run(arguments.names, arguments.samples, show=True)
    for line in count.wrong:
        print(line)
    for line in count.saturated:
        print(f"saturated attention: {line}")
    print(f"torch {torch.__version__}: {count.operators} operators, {count.cases} cases under each of "
          f"{', '.join(POLICIES)}; not run: {len(count.not_run)}")
    for policy in POLICIES[1:]:
        print(f"{policy}: {len(count.lossy[policy])} operators lost something, in {count.lossy_cases[policy]} cases: "
              f"{' '.join(sorted(count.lossy[policy]))}")
    print(f"wrong: {len(count.wrong)}")
    return 1 if count.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
