#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What PyTorch on a GPU can do about activation memory, and what adacc's hooks do, in one table.

    python3 bench/peers/torch_policies_cuda.py --size 1.5B --batch 8
    python3 bench/peers/torch_policies_cuda.py --size 124M --rows plain,tolerated,budget_30% --rounds 3
    python3 bench/peers/torch_policies_cuda.py --rehearse          # tiny; also on support/ptxrun/torch, without a GPU

GPT-2 of random weights and tokens, fp32 parameters under bf16 autocast, AdamW, one process. The loss is formed
--loss-rows tokens at a time, by a checkpoint of PyTorch's, in all rows (0: at once). Rows take turns: in each round each
row begins with the same parameters, warms up, and trains for --steps steps, whose times are between two events of the
device; the host is one step ahead.

    ms      median of the steps' times over all rounds
    ratio   median over rounds of the row's time to that of the first row (plain)
    held    bytes at the end of forward above those at the step's begin, where gradients and AdamW's moments are there
    peak    the most within forward and backward, above the same (torch.cuda.max_memory_allocated)
    in all  the most of all tensors
    loss    of the first and of the last step

A row that does not fit, has no time left (--row-seconds, of each turn) or is not there in this build says so. Each
turn is a line in --json, as soon as it is over. Rows:

    plain               as PyTorch does it
    compiled            each block by torch.compile
    checkpoint          torch.utils.checkpoint of each block
    save_on_cpu         torch.autograd.graph.save_on_cpu(pin_memory=True)
    torch_N%            the whole model by torch.compile, with activation_memory_budget N
    lossless, int8, int4, tolerated     adacc.saved_tensors
    again_P             P of these, with operators run again where their inputs are saved anyway
    checkpoint_P        adacc.checkpoint of each block, inputs by P
    compiled_P          each block by torch.compile, within adacc.saved_tensors
    budget_N%           adacc.budget, and each block an adacc.checkpoint
"""
import argparse
import contextlib
import gc
import inspect
import json
import re
import signal
import statistics
import sys
import time

SIZES = {"124M": (12, 12, 768), "350M": (24, 16, 1024), "774M": (36, 20, 1280), "1.5B": (48, 25, 1600)}
DEFAULT_ROWS = ("plain,checkpoint,save_on_cpu,torch_50%,lossless,int8,tolerated,int4,again_lossless,again_tolerated,"
                "checkpoint_tolerated,budget_50%,budget_30%,budget_20%")
POLICY = "lossless|int8|int4|tolerated|bf16"
ROW = re.compile(rf"plain|compiled|checkpoint|save_on_cpu|torch_\d+%|budget_\d+%|((again|checkpoint|compiled)_)?({POLICY})")


class NotThere(Exception):
    """A row that this machine or this build cannot run."""


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=__doc__.partition("Rows:")[2],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="1.5B")
    parser.add_argument("--layers", type=int, help="fewer or more than --size has")
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--loss-rows", type=int, default=1024)
    parser.add_argument("--rows", default=DEFAULT_ROWS)
    parser.add_argument("--steps", type=int, default=6, help="of each turn, after --warm")
    parser.add_argument("--warm", type=int, default=3, help="a budget records its first two steps")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--row-seconds", type=float, default=60)
    parser.add_argument("--json", metavar="FILE", help="add a line of JSON to it for each turn")
    parser.add_argument("--no-cast-cache", action="store_true",
                        help="autocast holds no casts of weights (cache_enabled=False), in all rows")
    parser.add_argument("--rehearse", action="store_true", help="a tiny model: times mean nothing")
    options = parser.parse_args()
    options.shape = SIZES[options.size]
    if options.rehearse:
        options.size, options.shape, options.vocab, options.seq = "tiny", (2, 4, 128), 97, 64
        options.batch, options.loss_rows, options.steps, options.rounds = 4, 128, 2, min(options.rounds, 2)
    if options.layers:
        options.shape = (options.layers, *options.shape[1:])
    options.names = [name for name in options.rows.split(",") if name]
    for name in options.names:
        if not ROW.fullmatch(name):
            parser.error(f"there is no row {name}")
    return options


OPTIONS = parse_options()

try:
    import torch
except ImportError as error:
    print(f"torch_policies_cuda: skipped, no torch here ({error})")
    sys.exit(77)
if not torch.cuda.is_available():
    print("torch_policies_cuda: skipped, torch finds no CUDA device")
    sys.exit(77)

import torch.nn.functional as F
from torch import nn
from torch.utils import checkpoint as torch_checkpoint

import gpt

try:
    import ptxrun_torch
except ImportError:
    ptxrun_torch = None  # a GPU
try:
    import adacc
except ImportError as error:
    adacc, no_adacc = None, str(error)


class Model(gpt.Gpt):
    """The benchmarks' GPT with a vocabulary of its own, and its loss by parts."""

    def __init__(self, options):
        shape = argparse.Namespace(seq=options.seq, **dict(zip(("layers", "heads", "channels"), options.shape)))
        super().__init__(shape, vocabulary=options.vocab)
        self.loss_rows = options.loss_rows

    def part_of_loss(self, x, targets):
        return F.cross_entropy(F.linear(x, self.wte.weight), targets, reduction="sum")

    def loss(self, x, targets):
        x, targets = self.lnf(x).flatten(0, 1), targets.flatten()
        if self.loss_rows == 0:
            return self.part_of_loss(x, targets) / len(x)
        parts = [torch_checkpoint.checkpoint(self.part_of_loss, *part, use_reentrant=False)
                 for part in zip(x.split(self.loss_rows), targets.split(self.loss_rows))]
        return torch.stack(parts).sum() / len(x)


class Row:
    """How a row runs the model."""

    def __init__(self, name, model):
        self.name, self.model, self.budget = name, model, None
        self.forward, self.around = model, contextlib.nullcontext
        self.made = False

    def make(self):
        """Before the first turn."""
        how, _, of = self.name.rpartition("_")
        needs = how in ("budget", "again") or re.fullmatch(POLICY, of)
        if needs and adacc is None:
            raise NotThere(f"no adacc here ({no_adacc})")
        if needs and not adacc.has_cuda_kernels:
            raise NotThere("this build of adacc has no kernels for CUDA")
        if ptxrun_torch is not None and (how in ("torch", "compiled") or of == "compiled"):
            raise NotThere("compiled kernels are machine code, which the executor does not run")
        self.run = lambda block, x: block(x)
        if self.name == "checkpoint":
            self.run = lambda block, x: torch_checkpoint.checkpoint(block, x, use_reentrant=False)
        elif self.name == "save_on_cpu":
            self.around = lambda: torch.autograd.graph.save_on_cpu(pin_memory=ptxrun_torch is None)
        elif how == "torch":
            import torch._functorch.config as config
            if not hasattr(config, "activation_memory_budget"):
                raise NotThere("this torch has no activation_memory_budget")
            config.activation_memory_budget = float(of[:-1]) / 100
            self.forward = torch.compile(self.model)
        elif how == "budget":
            more = {"device": "cuda"} if "device" in inspect.signature(adacc.budget.__init__).parameters else {}
            self.budget = adacc.budget(of, on_refusal="least", **more)
            self.around = lambda: self.budget
            self.run = adacc.checkpoint
        elif re.fullmatch(POLICY, of):
            more = {}
            if how == "again":
                if "again" not in inspect.signature(adacc.saved_tensors.__init__).parameters:
                    raise NotThere("this adacc does not run operators again")
                more["again"] = True
            hooks = adacc.saved_tensors(of, **more)
            self.around = lambda: hooks
            if how == "checkpoint":
                self.run = adacc.checkpoint
        if of == "compiled" or how == "compiled":
            compiled = [torch.compile(block) for block in self.model.blocks]
            of_block = dict(zip(self.model.blocks, compiled))
            self.run = lambda block, x: of_block[block](x)
        self.made = True

    def check(self, peak):
        """Behind a turn whose peak it was: whether a budget planned the device's memory."""
        if self.budget is None:
            return
        report = self.budget.report
        if report.planned == 0:
            raise NotThere(f"no step was planned: {report}")
        if report.plain_bytes < peak / 2:
            raise NotThere("budgets leave CUDA tensors alone in this build of adacc")


class Training:
    def __init__(self, options):
        self.options = options
        with torch.device("cuda"):
            self.model = Model(options)
            more = {} if ptxrun_torch is None else {"foreach": False}
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, weight_decay=0.0,
                                               fused=ptxrun_torch is None, **more)
            torch.manual_seed(1)
            words = 1 / torch.arange(1, options.vocab + 1, device="cpu")
            count = (options.steps + options.warm) * options.batch * (options.seq + 1)
            text = torch.multinomial(words, count, replacement=True)
            self.text = text.cuda().view(-1, options.batch, options.seq + 1)
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()  # its moments are there from now on

    @torch.no_grad()
    def start(self):
        """The parameters of each turn's begin."""
        torch.manual_seed(2)
        torch.cuda.manual_seed(2)
        for name, parameter in self.model.named_parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.02)
            else:
                parameter.fill_(float(name.endswith("weight")))
            parameter.grad.zero_()
            for moment in self.optimizer.state[parameter].values():
                moment.zero_()

    def turn(self, row):
        """One turn's line. The time is up by an exception of the alarm's."""
        if not row.made:
            row.make()
        self.start()
        self.model.run = row.run
        losses, events, held, peak, in_all = [], [], 0, 0, 0
        for step, text in enumerate(self.text):
            tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            begin.record()
            with row.around(), torch.autocast("cuda", torch.bfloat16, cache_enabled=not self.options.no_cast_cache):
                loss = row.forward(tokens, targets)
            between = torch.cuda.memory_allocated()
            loss.backward()
            most = torch.cuda.max_memory_allocated()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=False)
            end.record()
            losses.append(loss.detach())
            del loss, tokens, targets
            if events:
                events[-1][1].synchronize()
            events.append((begin, end))
            if step >= self.options.warm:
                held, peak = max(held, between - before), max(peak, most - before)
                in_all = max(in_all, torch.cuda.max_memory_allocated())
        torch.cuda.synchronize()
        row.check(peak)
        ms = [begin.elapsed_time(end) for begin, end in events[self.options.warm:]]
        return {"ms": ms, "held": held, "peak": peak, "in_all": in_all,
                "losses": [loss.item() for loss in losses],
                "report": str(row.budget.report) if row.budget is not None else ""}


def bounded(seconds, call):
    """What call() returns; a TimeoutError if it takes longer."""
    def ring(*_):
        raise TimeoutError(f"stopped after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def why_not(error):
    """One line, without what it holds alive."""
    if isinstance(error, torch.OutOfMemoryError):
        return "does not fit"
    if isinstance(error, (NotThere, TimeoutError)):
        return str(error)
    return f"{type(error).__name__}: {(str(error).strip() or 'no words').splitlines()[0]}"


def one_turn(training, row):
    """The turn's line; or None, why, and whether that is no fault."""
    try:
        return bounded(training.options.row_seconds, lambda: training.turn(row)), "", True
    except Exception as error:  # noqa: BLE001: the other rows go on
        return None, why_not(error), isinstance(error, (NotThere, TimeoutError, torch.OutOfMemoryError))


def main(options):
    layers, heads, channels = options.shape
    device = torch.cuda.get_device_name() if ptxrun_torch is None else "no GPU, an executor"
    print(f"GPT-2 {options.size}: {layers} layers, {heads} heads, {channels} channels, vocabulary {options.vocab}, "
          f"T {options.seq}, B {options.batch}, loss by {options.loss_rows or 'all'} rows"
          f"{', no casts held' if options.no_cast_cache else ''}\n{device}, torch {torch.__version__}", flush=True)
    if ptxrun_torch is None:
        torch.set_float32_matmul_precision("high")
    training = Training(options)
    rows = [Row(name, training.model) for name in options.names]
    turns, reasons, failed = {row.name: [] for row in rows}, {}, False
    for round_ in range(options.rounds):
        for row in rows:
            if row.name in reasons:
                continue
            begun = time.monotonic()
            made, why, no_fault = one_turn(training, row)
            line = {"policy": row.name, "size": options.size, "batch": options.batch, "round": round_,
                    "seconds": time.monotonic() - begun}
            if made is None:
                reasons[row.name] = line["failed"] = why
                failed = failed or not no_fault
                training.optimizer.zero_grad(set_to_none=False)
                print(f"{row.name}: {why}", flush=True)
            else:
                turns[row.name].append(made)
                line.update(made)
            if options.json:
                with open(options.json, "a") as file:
                    file.write(json.dumps(line) + "\n")
            gc.collect()
            torch.cuda.empty_cache()
    print(f"{'row':24}{'ms':>9}{'ratio':>8}{'held MiB':>11}{'peak MiB':>11}{'of first':>9}{'in all MiB':>12}"
          f"{'first loss':>12}{'last':>9}")
    first = turns[rows[0].name]
    for name, mine in turns.items():
        if not mine:
            continue
        ms = [each for turn in mine for each in turn["ms"]]
        ratios = [statistics.median(turn["ms"]) / statistics.median(other["ms"]) for turn, other in zip(mine, first)]
        peak = max(turn["peak"] for turn in mine)
        share = f"{peak / max(turn['peak'] for turn in first):9.3f}" if first else f"{'-':>9}"
        print(f"{name:24}{statistics.median(ms):9.2f}{statistics.median(ratios) if ratios else float('nan'):8.3f}"
              f"{max(turn['held'] for turn in mine) / 2**20:11.1f}{peak / 2**20:11.1f}{share}"
              f"{max(turn['in_all'] for turn in mine) / 2**20:12.1f}{mine[0]['losses'][0]:12.5f}"
              f"{mine[0]['losses'][-1]:9.5f}")
    for name, mine in turns.items():
        if mine and mine[-1]["report"]:
            print(f"{name}: {mine[-1]['report']}")
    return failed


if __name__ == "__main__":
    sys.exit(main(OPTIONS))
