#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What PyTorch can do about activation memory, and what adacc's hooks do, in one table.

Every mode trains the same GPT (fp32, CPU, AdamW) from the same parameters on the same batches, in a
process of its own; the processes take turns step by step, so that a change of the machine's clock
hits all of them, and `time` is the median of a step's ratio to the plain one of the same round.

    cpu     processor seconds of a step over plain's, medians: what other work on the machine moves least.
            Threads that wait for one another spin: OMP_WAIT_POLICY=passive leaves that out
    held    bytes of tensors at the end of forward, above those at the step's start
    peak    the most within the step, above the same: activations, gradients of activations,
            workspaces and blobs. Gradients of parameters are there before the step begins
    faults  pages, of 4 KiB, that the system handed out during a step, medians: memory that malloc gave back
            to it and takes again. How many depends on the order in which a mode frees, and a hundred
            megabytes a step are some per cent of the time. --keep-heap tells glibc's malloc, in all modes,
            to keep what is freed, as allocators that trainers use instead do (jemalloc, tcmalloc)
    loss    mean of the last tenth of the steps, and what that is over plain's

Budgets record their first two steps and plan the third, which are those of the warm-up.

Bytes are counted by an allocator in the place of torch's (adacc.memory), so they are exact, and those
of inductor's buffers are among them; scratch that MKL and oneDNN take from malloc is in nobody's.

    pip install --no-build-isolation ./python
    python3 bench/peers/torch_policies.py --steps 30 --keep-heap
    python3 bench/peers/torch_policies.py --steps 300 --modes plain,int8,tolerated,int4
    python3 bench/peers/torch_policies.py --steps 16 --modes plain,budget_40%,budget_25%+blocks

The text are the sources of Python's standard library.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

# Besides these, budget_N%, int4_N% and lossless_N% for any N, with +blocks, +store or both.
MODES = {
    "plain": "as PyTorch does it",
    "lossless": "adacc, no bit changes: masks as bits, indices in bytes",
    "int8": "adacc, 8 bits",
    "tolerated": "adacc, 4 bits, attention's 8",
    "int4": "adacc, 4 bits",
    "budget_60%": "adacc, planned for 60 % of plain's peak",
    "budget_40%": "the same for 40 %",
    "budget_30%": "the same for 30 %",
    "budget_25%+blocks": "the same for 25 %, and each block is an adacc.checkpoint",
    "int4_27%": "the same for 27 %, 4 bits for all",
    "lossless_60%+blocks": "the same for 60 %, no bit changes",
    "lossless_40%+store": "the same for 40 %, tensors are sent to a file in --store",
    "checkpoint": "torch.utils.checkpoint of each block",
    "reentrant": "the same, use_reentrant=True",
    "checkpoint+int8": "adacc.checkpoint of each block, its input in 8 bits",
    "sac_products": "selective checkpointing: products and attention are saved",
    "sac_attention": "selective checkpointing: attention is saved",
    "save_on_cpu": "torch.autograd.graph.save_on_cpu (here: memory to memory)",
    "compile": "torch.compile",
    "compile_0.5": "torch.compile, activation_memory_budget 0.5",
    "compile_0.3": "torch.compile, activation_memory_budget 0.3",
    "compile_0.1": "torch.compile, activation_memory_budget 0.1",
    "blocks+tolerated": "torch.compile block by block, adacc's hooks around",
}


BUDGET = re.compile(r"(budget|int4|lossless)_(\d+%)(\+blocks)?(\+store)?")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="\n".join(f"{k:20} {v}" for k, v in MODES.items()))
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--channels", type=int, default=384)
    parser.add_argument("--seq", type=int, default=256, help="tokens per sequence (T)")
    parser.add_argument("--batch", type=int, default=4, help="sequences per step (B)")
    parser.add_argument("--steps", type=int, default=30, help="after three of warm-up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--again", action="store_true", help="plans of budgets may let operators run again")
    parser.add_argument("--store", default=".", help="a folder on a disk, for modes with +store")
    parser.add_argument("--trainer", help="the built examples/train_gpt: adacc's own trainer, retaining "
                                          "and at --trainer-budget, in turns with the others")
    parser.add_argument("--trainer-budget", default="30%")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep-heap", action="store_true", help="malloc keeps what is freed, in all modes")
    parser.add_argument("--json", help="file to write all figures to")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.names = [m for m in options.modes.split(",") if m]
    for mode in options.names:
        if mode not in MODES and not BUDGET.fullmatch(mode):
            parser.error(f"there is no mode {mode}")
    if "plain" not in options.names:
        options.names.insert(0, "plain")
    return options


# --- a process for each mode ----------------------------------------------------------------------
class Child:
    def __init__(self, options, mode):
        import contextlib

        import adacc
        import torch
        from gpt import VOCABULARY, Gpt
        from torch.utils import checkpoint as torch_checkpoint

        adacc.memory.count()
        self.adacc, self.torch, self.options = adacc, torch, options
        torch.set_num_threads(options.threads)
        torch.manual_seed(options.seed)
        self.model = Gpt(options)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, weight_decay=0.0)
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.around = contextlib.nullcontext
        self.budget = None
        self.forward = self.model
        assert VOCABULARY == 256
        files = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        self.text = torch.tensor(list(b"".join(f.read_bytes() for f in files)), dtype=torch.uint8)
        self.choose(mode, torch_checkpoint)

    def choose(self, mode, torch_checkpoint):
        torch, adacc = self.torch, self.adacc
        if mode in ("lossless", "int8", "tolerated", "int4"):
            hooks = adacc.saved_tensors(mode)
            self.around = lambda: hooks
        elif BUDGET.fullmatch(mode):
            policy, share, blocks, store = BUDGET.fullmatch(mode).groups()
            self.budget = adacc.budget(share, "tolerated" if policy == "budget" else policy,
                                       store=self.options.store if store else None, again=self.options.again)
            self.around = lambda: self.budget
            if blocks:
                self.model.run = adacc.checkpoint
        elif mode in ("checkpoint", "reentrant"):
            self.model.run = lambda block, x: torch_checkpoint.checkpoint(
                block, x, use_reentrant=mode == "reentrant")
        elif mode == "checkpoint+int8":
            hooks = adacc.saved_tensors("int8")
            self.around = lambda: hooks
            self.model.run = adacc.checkpoint
        elif mode.startswith("sac_"):
            aten = torch.ops.aten
            saved = [aten._scaled_dot_product_flash_attention_for_cpu.default]
            if mode == "sac_products":
                saved += [aten.mm.default, aten.addmm.default]

            def contexts():
                return torch_checkpoint.create_selective_checkpoint_contexts(saved)
            self.model.run = lambda block, x: torch_checkpoint.checkpoint(
                block, x, use_reentrant=False, context_fn=contexts)
        elif mode == "save_on_cpu":
            self.around = torch.autograd.graph.save_on_cpu
        elif mode.startswith("compile"):
            if "_" in mode:
                import torch._functorch.config
                torch._functorch.config.activation_memory_budget = float(mode.split("_")[1])
            self.forward = torch.compile(self.model)
        elif mode == "blocks+tolerated":
            for i, block in enumerate(self.model.blocks):
                self.model.blocks[i] = torch.compile(block)
            hooks = adacc.saved_tensors("tolerated")
            self.around = lambda: hooks

    def step(self, number):
        torch, options, memory = self.torch, self.options, self.adacc.memory
        draw = torch.Generator().manual_seed(options.seed * 1000003 + number)
        starts = torch.randint(0, len(self.text) - options.seq - 1, (options.batch,), generator=draw)
        rows = torch.stack([self.text[s:s + options.seq + 1] for s in starts]).long()
        tokens, targets = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
        del rows
        memory.reset_peak()
        pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        before, start, cpu = memory.live(), time.perf_counter(), time.process_time()
        with self.around():
            loss = self.forward(tokens, targets)
        held = memory.live() - before
        loss.backward()
        peak = memory.peak() - before
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - pages
        made = {"seconds": seconds, "cpu": cpu, "faults": pages, "held": held, "peak": peak,
                "loss": loss.item()}
        if self.budget is not None:
            report = self.budget.report
            made["report"] = str(report)
            made["predicted"] = report.planned_ratio
        return made


def child(options):
    runner = Child(options, options.child)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(runner.step(int(line))), flush=True)


# --- the parent, which lets them take turns -------------------------------------------------------
KEEP_HEAP = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
             "MALLOC_TOP_PAD_": str(256 << 20)}


class Turn:
    def __init__(self, mode, keep_heap):
        self.process = subprocess.Popen([sys.executable, *sys.argv, "--child", mode],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(KEEP_HEAP if keep_heap else {})})
        self.steps = []
        self.answer("ready")

    def answer(self, what):
        line = self.process.stdout.readline()
        if not line or (what and line.strip() != what):
            sys.exit(f"a mode's process ended: {line}")
        return line

    def step(self, number):
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        self.steps.append(json.loads(self.answer(None)))


class Trainer:
    """adacc's own trainer for a few steps at a time; its figures are from its log."""

    def __init__(self, options, arguments):
        self.command = [options.trainer, "--layers", options.layers, "--heads", options.heads,
                        "--channels", options.channels, "--context", options.seq, "--seq", options.seq,
                        "--batch", options.batch, "--threads", options.threads, "--steps", 8, *arguments]
        self.seconds, self.peak = [], 0
        self.tokens = options.batch * options.seq

    def run(self):
        with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as log:
            subprocess.run([str(a) for a in self.command] + ["--log", log.name], check=True,
                           stdout=subprocess.DEVNULL)
            lines = [json.loads(line) for line in log]
        steps = [line for line in lines if "tokens_per_s" in line][3:]
        self.seconds.append(statistics.median(self.tokens / s["tokens_per_s"] for s in steps))
        self.peak = max(s["activation_peak_bytes"] for s in steps)


def main(options):
    warm_up = 3
    turns = {}
    for mode in options.names:
        turns[mode] = Turn(mode, options.keep_heap)
        for number in range(warm_up):
            turns[mode].step(number)
    trainers = {}
    if options.trainer:
        trainers = {"own trainer": Trainer(options, ["--policy", "retain"]),
                    f"own, {options.trainer_budget}": Trainer(options, ["--budget",
                                                                        options.trainer_budget])}
    plain_when = {name: [] for name in trainers}
    for number in range(warm_up, warm_up + options.steps):
        for turn in turns.values():
            turn.step(number)
        if number % 10 == 0:
            for name, trainer in trainers.items():
                trainer.run()
                plain_when[name].append(turns["plain"].steps[-1]["seconds"])

    plain = turns["plain"].steps[warm_up:]
    last = max(1, options.steps // 10)
    report = {}
    for mode, turn in turns.items():
        steps = turn.steps[warm_up:]
        loss = statistics.mean(s["loss"] for s in steps[-last:])
        base = statistics.mean(s["loss"] for s in plain[-last:])
        report[mode] = {
            "ms": 1e3 * statistics.median(s["seconds"] for s in steps),
            "time": statistics.median(s["seconds"] / p["seconds"] for s, p in zip(steps, plain)),
            "cpu": statistics.median(s["cpu"] for s in steps) / statistics.median(p["cpu"] for p in plain),
            "faults": statistics.median(s["faults"] for s in steps),
            "held": max(s["held"] for s in steps), "peak": max(s["peak"] for s in steps),
            "of_plain": max(s["peak"] for s in steps) / max(s["peak"] for s in plain),
            "loss": loss, "loss_gap": loss / base - 1,
            **{key: steps[-1][key] for key in ("report", "predicted") if key in steps[-1]}}
        turn.process.stdin.close()
    for name, trainer in trainers.items():
        report[name] = {
            "ms": 1e3 * statistics.median(trainer.seconds),
            "time": statistics.median(t / p for t, p in zip(trainer.seconds, plain_when[name])),
            "peak": trainer.peak, "of_plain": trainer.peak / report["plain"]["peak"]}

    print(f"{options.layers} layers, {options.channels} channels, T {options.seq}, B {options.batch}, "
          f"{options.threads} threads, {options.steps} steps")
    print(f"{'':20}{'ms':>8}{'time':>8}{'cpu':>8}{'faults':>8}{'held MiB':>10}{'peak MiB':>10}"
          f"{'of plain':>10}{'loss':>10}{'gap':>10}")
    for mode, row in report.items():
        def shown(key, pattern, scale=1.0):
            return pattern.format(row[key] * scale) if key in row else " " * len(pattern.format(0))
        print(f"{mode:20}{row['ms']:8.0f}{row['time']:8.3f}{shown('cpu', '{:8.3f}')}{shown('faults', '{:8.0f}')}"
              f"{shown('held', '{:10.1f}', 2**-20)}"
              f"{row['peak'] / 2**20:10.1f}{row['of_plain']:10.3f}{shown('loss', '{:10.5f}')}"
              f"{shown('loss_gap', '{:+10.5f}')}")
    for mode, row in report.items():
        if "report" in row:
            print(f"{mode}: {row['report']}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    OPTIONS = parse_options()
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    if OPTIONS.child:
        child(OPTIONS)
        sys.exit(0)
    try:
        import adacc  # noqa: F401
    except ImportError as why:
        print(f"torch_policies: skipped, there is no torch, or adacc is not built for it ({why})")
        sys.exit(0)
    main(OPTIONS)
