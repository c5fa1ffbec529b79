#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The benchmark's GPT in plain PyTorch (CPU): in fp32, with and without torch.utils.checkpoint, and in bf16.

The same model as examples/train_gpt and bench/step_bench: pre-LN GPT-2 blocks, tanh GELU, byte
vocabulary, output head tied to the token embedding, AdamW. Model FLOP are counted as there: 6 per
matrix parameter and token, plus 6 * layers * T * channels per token for causal attention. Every
step is paired with 1024 x 1024 products of torch's own, so that a change of the machine's clock
hits both sides of the ratio. --autocast adds a row with torch.autocast to bfloat16 and fused AdamW; compiled adds another
one, of torch.compile. --times processor counts the processor time of all threads, which other load on the machine
lengthens little.

    python3 bench/peers/torch_gpt.py --layers 6 --heads 6 --channels 384 --seq 256 --batch 4
"""
import argparse
import json
import resource
import statistics
import sys
import time


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--channels", type=int, default=384)
    parser.add_argument("--seq", type=int, default=256, help="tokens per sequence (T)")
    parser.add_argument("--batch", type=int, default=4, help="sequences per step (B)")
    parser.add_argument("--steps", type=int, default=10, help="measured steps, after two of warm-up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--checkpoint", choices=["off", "on", "both"], default="both",
                        help="recompute each block in backward; both interleaves the two")
    parser.add_argument("--autocast", choices=["off", "on", "compiled"], default="off",
                        help="bf16 by torch.autocast with fused AdamW; compiled: by torch.compile, too")
    parser.add_argument("--times", choices=["clock", "processor"], default="clock",
                        help="seconds of the clock, or of all threads on processors")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    options = parser.parse_args()
    for name in ("layers", "heads", "channels", "seq", "batch", "steps", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if options.channels % options.heads != 0:
        parser.error(f"--heads {options.heads} does not divide --channels {options.channels}")
    return options


OPTIONS = parse_options()

try:
    import torch
    from gpt import VOCABULARY, Gpt
    from torch.utils.checkpoint import checkpoint
except ImportError as error:
    print(f"torch_gpt: skipped, torch cannot be imported here ({error})")
    sys.exit(0)


class Run:
    """A model, its optimizer, and what was measured of it."""

    def __init__(self, options, checkpointed=False, autocast=False, compiled=False):
        torch.manual_seed(options.seed)
        self.model = Gpt(options)
        self.call = torch.compile(self.model) if compiled else self.model
        self.autocast = autocast
        self.clock = time.process_time if options.times == "processor" else time.perf_counter
        if checkpointed:
            self.model.run = lambda block, x: checkpoint(block, x, use_reentrant=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, weight_decay=0.0,
                                           fused=autocast)
        self.seconds = []
        self.losses = []

    def step(self, tokens, targets):
        start = self.clock()
        loss = self.loss(tokens, targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.seconds.append(self.clock() - start)
        self.losses.append(loss.item())

    def loss(self, tokens, targets):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            return self.call(tokens, targets)

    def saved_bytes(self, tokens, targets):
        """Bytes that autograd keeps from forward to backward, parameters and inputs not counted."""
        ours = {t.data_ptr() for t in [*self.model.parameters(), tokens, targets]}
        storages = {}

        def pack(tensor):
            storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") \
                else tensor.storage()
            if storage.data_ptr() not in ours:
                storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        # The graph lives until the sum is taken, so no two storages share an address.
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = self.loss(tokens, targets)
        total = sum(storages.values())
        del loss
        return total


def product_rate(a, b, repeats=4):
    """FLOP per second of a 1024 x 1024 product on all threads."""
    start = time.perf_counter()
    for _ in range(repeats):
        torch.mm(a, b)
    return repeats * 2 * 1024**3 / (time.perf_counter() - start)


def main(options):
    torch.set_num_threads(options.threads)
    runs = {}
    if options.checkpoint != "on":
        runs["plain"] = Run(options)
    if options.checkpoint != "off":
        runs["checkpoint"] = Run(options, checkpointed=True)
    if options.autocast != "off":
        runs["autocast"] = Run(options, autocast=True)
    if options.autocast == "compiled":
        runs["compiled"] = Run(options, autocast=True, compiled=True)
    torch.manual_seed(options.seed)
    text = torch.randint(0, VOCABULARY, (options.batch, options.seq + 1))
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)

    warm_up = 2
    rates = {name: [] for name in runs}
    for _ in range(warm_up + options.steps):
        for name, run in runs.items():
            run.step(tokens, targets)
            rates[name].append(product_rate(a, b))

    matrix_params = options.layers * 12 * options.channels**2 + VOCABULARY * options.channels
    flop_per_token = 6 * matrix_params + 6 * options.layers * options.seq * options.channels
    tokens_per_step = options.batch * options.seq
    report = {"torch": torch.__version__, "threads": options.threads, "layers": options.layers,
              "heads": options.heads, "channels": options.channels, "seq": options.seq,
              "batch": options.batch, "steps": options.steps,
              "flop_per_step": flop_per_token * tokens_per_step}
    for name, run in runs.items():
        seconds, products = run.seconds[warm_up:], rates[name][warm_up:]
        flops = [flop_per_token * tokens_per_step / s for s in seconds]
        report[name] = {
            "ms_median": 1e3 * statistics.median(seconds),
            "tokens_per_s": tokens_per_step / statistics.median(seconds),
            "model_gflops": statistics.median(flops) / 1e9,
            "sgemm_gflops": statistics.median(products) / 1e9,
            "ratio": statistics.median(f / p for f, p in zip(flops, products)),
            "saved_bytes": run.saved_bytes(tokens, targets),
            "loss": run.losses[-1],
        }
    if "plain" in runs:
        for name in runs.keys() - {"plain"}:
            report[f"{name}_time_ratio"] = statistics.median(
                c / p for c, p in zip(runs[name].seconds[warm_up:], runs["plain"].seconds[warm_up:]))
    report["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    if options.json:
        print(json.dumps(report))
        return
    print(f"torch {report['torch']}, {options.threads} threads, {options.layers} layers, "
          f"{options.heads} heads, {options.channels} channels, T {options.seq}, "
          f"B {options.batch}, median of {options.steps} steps")
    print(f"{'':12}{'tokens/s':>10}{'ms':>9}{'GFLOP/s':>9}{'sgemm':>9}{'ratio':>7}"
          f"{'saved MiB':>11}{'loss':>9}")
    for name in runs:
        r = report[name]
        print(f"{name:12}{r['tokens_per_s']:10.0f}{r['ms_median']:9.1f}{r['model_gflops']:9.1f}"
              f"{r['sgemm_gflops']:9.1f}{r['ratio']:7.3f}{r['saved_bytes'] / 2**20:11.1f}"
              f"{r['loss']:9.4f}")
    for name in runs:
        if f"{name}_time_ratio" in report:
            print(f"{name} / plain time: {report[f'{name}_time_ratio']:.2f}")
    print(f"peak RSS of the process: {report['peak_rss_bytes'] / 2**20:.0f} MiB")


main(OPTIONS)
