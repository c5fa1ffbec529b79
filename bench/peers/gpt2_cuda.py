#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""GPT-2 on a GPU: train_gpt_cuda beside PyTorch, from the same weights, on the same tokens, in one go.

    python3 bench/peers/gpt2_cuda.py build/release/examples/train_gpt_cuda --size 124M --batch 8
    python3 bench/peers/gpt2_cuda.py build/release/examples/train_gpt_cuda --size 1.5B --batch 4 --largest 256
    python3 bench/peers/gpt2_cuda.py build/release/examples/train_gpt_cuda --torch plain whole --ours retain --ncu ncu

Both hold parameters, gradients and AdamW's moments in fp32 and activations in bf16; PyTorch by
autocast, with its fused attention, its fused AdamW and torch.compile for each block and the loss.
"checkpoint" is torch.utils.checkpoint around each block. "whole" compiles the whole model at once, with
cuDNN's attention, and never waits: its time is that of all measured steps together, between two waits for the
device. Weights and tokens are drawn; tokens as uneven as those of a text (word n comes with a share of 1 / n).
All other steps wait for their losses, on both sides, unless --together is given: then each row is the mean of
its measured steps, and PyTorch's do not wait. Those of train_gpt_cuda wait when and as long as it does.

head rows is how many rows train_gpt_cuda's head computes at a time. peak is all of the device's memory that training held: PyTorch's, what its allocator had given out;
train_gpt's, what it says that it holds. What does not fit the device is a line that says so. With --largest
each way of training is asked for the largest batch that does, too, to a sixteenth, by runs of three steps. With
--ncu each way runs under Nsight Compute instead, and the kernels of one step are listed with their times.
Needs torch and safetensors. Ends with status 1 if first losses differ by more than --tolerance, relatively, or
if a run of train_gpt_cuda fails for another reason than memory.
"""
import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import kernel_times

SIZES = {"124M": (12, 12, 768), "350M": (24, 16, 1024), "774M": (36, 20, 1280), "1.5B": (48, 25, 1600)}
SEARCH_STEPS = 3  # of a run in the search for the largest batch
OURS = {"retain": ["--policy", "retain"], "recompute": ["--policy", "recompute"]}
TINY = (2, 2, 16)  # of a rehearsal


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="train_gpt_cuda")
    parser.add_argument("--size", choices=SIZES, default="124M")
    parser.add_argument("--layers", type=int, help="fewer or more than --size has")
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12, help="the last two thirds are measured")
    parser.add_argument("--ours", nargs="*", default=["retain", "recompute", "50%", "30%", "15%"],
                        help="retain, recompute, or budgets of the activations; +queued: not as CUDA graphs; "
                             "+tuned: products by time (--tune-products); +headN: the head by N rows at a time, and not "
                             "by as many as are chosen (--head-rows)")
    parser.add_argument("--torch", nargs="*", default=["plain", "checkpoint"],
                        choices=["plain", "checkpoint", "whole", "eager", "eager-checkpoint"])
    parser.add_argument("--together", action="store_true", help="means of steps that do not wait for each other")
    parser.add_argument("--ncu", metavar="PROGRAM", help="list the kernels of one step instead, by this program")
    parser.add_argument("--row-seconds", type=float, metavar="SECONDS", help="what each row may take")
    parser.add_argument("--json", metavar="FILE", help="add a line of JSON to it for each row")
    parser.add_argument("--rehearse", action="store_true",
                        help="a tiny model, PyTorch on the CPU and without a compiler: times mean nothing")
    parser.add_argument("--tolerance", type=float, default=2e-3)
    parser.add_argument("--largest", type=int, metavar="BATCH", default=0,
                        help="look for the largest batch up to this one as well")
    parser.add_argument("--folder", help="where model and tokens are kept; made where they are not")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # a run of PyTorch, in a process of its own
    options = parser.parse_args()
    options.shape = SIZES[options.size]
    if options.rehearse:
        options.shape, options.vocab, options.seq, options.batch, options.steps = TINY, 97, 16, 2, 3
        options.largest = min(options.largest, 2)
    if options.layers:
        options.shape = (options.layers, *options.shape[1:])
    return options


OPTIONS = parse_options()

try:
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file, save_file
    from torch import nn
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.checkpoint import checkpoint
except ImportError as error:
    print(f"gpt2_cuda: skipped, no torch or safetensors here ({error})")
    sys.exit(0)
if not OPTIONS.rehearse and not torch.cuda.is_available():
    print("gpt2_cuda: skipped, torch finds no CUDA device")
    sys.exit(0)
DEVICE = "cpu" if OPTIONS.rehearse else "cuda"


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(channels)
        self.c_attn = nn.Linear(channels, 3 * channels)
        self.attn_proj = nn.Linear(channels, channels)
        self.ln_2 = nn.LayerNorm(channels)
        self.c_fc = nn.Linear(channels, 4 * channels)
        self.mlp_proj = nn.Linear(4 * channels, channels)

    def forward(self, x):
        batch, seq, channels = x.shape
        split = (batch, seq, self.heads, channels // self.heads)
        q, k, v = (part.view(split).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(channels, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(batch, seq, channels))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, options):
        super().__init__()
        layers, heads, channels = options.shape
        self.wte = nn.Embedding(options.vocab, channels)
        self.wpe = nn.Embedding(options.seq, channels)
        self.h = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(channels)
        self.run = lambda block, x: block(x)

    def loss(self, x, targets):
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = self.run(block, x)
        return self.loss(x, targets)

    # Names of Hugging Face's file, whose linear layers are (in, out).
    NAMES = {"c_attn": "attn.c_attn", "attn_proj": "attn.c_proj", "c_fc": "mlp.c_fc",
             "mlp_proj": "mlp.c_proj"}

    def named(self):
        for name, parameter in self.named_parameters():
            for ours, theirs in self.NAMES.items():
                if f".{ours}." in name:
                    transposed = name.endswith("weight")
                    yield name.replace(ours, theirs), parameter, transposed
                    break
            else:
                yield name, parameter, False


def make_data(options, folder):
    """A model of random weights and tokens, where they are not already."""
    if os.path.exists(folder + "/tokens.bin"):
        return
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(1)
    layers, heads, channels = options.shape
    with torch.device(DEVICE):
        model = Gpt2(options)
        tensors = {}
        for name, parameter, transposed in model.named():
            if parameter.dim() == 2:
                shape = parameter.shape[::-1] if transposed else parameter.shape
                scale = 0.02 / (2 * layers) ** 0.5 if "c_proj" in name else 0.02
                tensors[name] = (torch.randn(shape) * scale).cpu()
            else:
                tensors[name] = parameter.detach().fill_(float("weight" in name)).cpu()
        save_file(tensors, folder + "/model.safetensors", metadata={"format": "pt"})
        words = 1 / torch.arange(1, options.vocab + 1)
        batches = max(options.steps * options.batch, SEARCH_STEPS * options.largest)
        count = batches * options.seq + 1
        tokens = torch.multinomial(words, count, replacement=True).to(torch.int32).cpu()
    with open(folder + "/config.json", "w") as file:
        json.dump({"model_type": "gpt2", "n_layer": layers, "n_head": heads, "n_embd": channels,
                   "n_positions": options.seq, "vocab_size": options.vocab,
                   "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}, file)
    with open(folder + "/tokens.new", "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253))
        file.write(tokens.to(torch.uint16).numpy().tobytes())
    os.rename(folder + "/tokens.new", folder + "/tokens.bin")


def median(values):
    return statistics.median(values[len(values) // 3:])


def device_name():
    return "no GPU, a rehearsal" if OPTIONS.rehearse else torch.cuda.get_device_name()


def wait():
    if not OPTIONS.rehearse:
        torch.cuda.synchronize()


def compiled(model, kind):
    """The model as `kind` runs it."""
    backend = "eager" if OPTIONS.rehearse else "inductor"
    if kind.startswith("whole"):
        model.compile(backend=backend)
    elif not kind.startswith("eager"):
        for block in model.h:
            block.compile(backend=backend)
        model.loss = torch.compile(model.loss, backend=backend)
    if kind.endswith("checkpoint"):
        model.run = lambda block, x: checkpoint(block, x, use_reentrant=False)


def run_torch(options, folder, kind):
    """One JSON object on stdout."""
    torch.set_float32_matmul_precision("high")
    with torch.device("meta"):
        model = Gpt2(options)
    model = model.to_empty(device=DEVICE)
    weights = load_file(folder + "/model.safetensors")
    with torch.no_grad():
        for name, parameter, transposed in model.named():
            parameter.copy_(weights[name].t() if transposed else weights[name])
    del weights
    compiled(model, kind)
    attention = contextlib.nullcontext
    if kind.startswith("whole"):
        backend = SDPBackend.MATH if OPTIONS.rehearse else SDPBackend.CUDNN_ATTENTION
        attention = lambda: sdpa_kernel(backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.0, fused=True)
    text = torch.frombuffer(bytearray(open(folder + "/tokens.bin", "rb").read()), dtype=torch.uint16)
    per_step = options.batch * options.seq
    waits = not options.together and not kind.startswith("whole")
    text = text[512:].to(torch.int64)  # behind the header
    if not waits:
        text = text.to(DEVICE)
    warm = options.steps // 3
    losses, seconds = [], []
    begun = 0.0
    for step in range(options.steps):
        if step == warm:
            wait()
            begun = time.perf_counter()
        profiled = options.ncu and step == options.steps - 1
        if profiled and not OPTIONS.rehearse:
            wait()
            torch.cuda.cudart().cudaProfilerStart()
        start = time.perf_counter()
        piece = text[step * per_step:(step + 1) * per_step + 1].to(DEVICE)
        tokens = piece[:-1].view(options.batch, options.seq)
        targets = piece[1:].view(options.batch, options.seq)
        with torch.autocast(DEVICE, torch.bfloat16), attention():
            loss = model(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        if waits:
            losses[-1].item()
        seconds.append(time.perf_counter() - start)
    wait()
    if profiled and not OPTIONS.rehearse:
        torch.cuda.cudart().cudaProfilerStop()
    together = (time.perf_counter() - begun) / (options.steps - warm)
    print(json.dumps({"losses": [loss.item() for loss in losses], "seconds": seconds,
                      "second": median(seconds) if waits else together, "waits": waits,
                      "peak": 0 if OPTIONS.rehearse else torch.cuda.max_memory_allocated(),
                      "torch": torch.__version__, "device": device_name()}))


def profiler(options, *more):
    """What a command begins with, so that the times of its kernels are written."""
    if not options.ncu:
        return []
    return [options.ncu, "--clock-control", "none", "--metrics", "gpu__time_duration.sum", "--csv", "--print-units",
            "base", *more]


def last_line(text):
    """Which names the error; Python's hints stand behind it."""
    lines = text.strip().splitlines() or ["no output"]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (errors or lines)[-1]


def bounded(options, command):
    """The command as it ended, or as it was ended when its time was up."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=options.row_seconds)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"stopped after {options.row_seconds:.0f} s")


def peer(options, folder, kind):
    command = [*profiler(options, "--profile-from-start", "off"), sys.executable, *sys.argv, "--only", kind, "--folder",
               folder, "--batch", str(options.batch), "--steps", str(options.steps)]
    done = bounded(options, command)
    if done.returncode != 0:
        return {"failed": last_line(done.stderr), "memory": "out of memory" in done.stderr}
    report = next(line for line in reversed(done.stdout.splitlines()) if line.startswith("{"))
    return {**json.loads(report), "output": done.stdout}


def ours(options, folder, kind):
    """What train_gpt_cuda's log says."""
    log = folder + "/log.jsonl"
    if os.path.exists(log):
        os.remove(log)
    plan, *ways = kind.split("+")
    # A tiny model's floor is most of what it needs.
    how = [*OURS.get(plan, ["--budget", "90%" if options.rehearse else plan]), *(["--no-capture"] if "queued" in ways else []),
           *(["--tune-products", folder + "/products"] if "tuned" in ways else []),
           *(word for way in ways if way.startswith("head") for word in ("--head-rows", way[4:]))]
    done = bounded(
        options,
        [*profiler(options), options.program, "--device", "cuda", "--precision", "bf16", "--model", folder, "--tokens",
         folder + "/tokens.bin", "--batch", str(options.batch), "--seq", str(options.seq), "--steps",
         str(options.steps), "--lr", "3e-4", "--clip", "1", "--log", log, *how])
    if done.returncode != 0:
        why = done.stderr.strip() or done.stdout.strip()[-200:]
        return {"failed": why, "memory": "of device memory are wanted" in why}
    with open(log) as file:
        lines = [json.loads(line) for line in file]
    held = re.search(r"^in all\s+(\d+) bytes", done.stdout, re.MULTILINE)
    tile = re.search(r"^head\s+(\d+) of", done.stdout, re.MULTILINE)
    seconds = [line["ms"] / 1e3 for line in lines]
    measured = seconds[len(seconds) // 3:]
    return {"losses": [line["loss"] for line in lines], "seconds": seconds, "waits": not options.together,
            "second": statistics.mean(measured) if options.together else median(seconds),
            "peak": int(held[1]) if held else None, "head_rows": int(tile[1]) if tile else None,
            "activations": lines[-1]["activation_peak_bytes"],
            "output": done.stdout}


def largest(most, fits):
    """The largest batch up to `most` of which fits(batch) holds, to a sixteenth; 0 if not even 1 does."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def add_json(options, row):
    if options.json:
        with open(options.json, "a") as file:
            file.write(json.dumps(row) + "\n")


def list_kernels(options, folder, runs):
    """Of one step of each way of training. Whether one of ours failed."""
    failed = False
    for name, run, kind in runs:
        report = run(options, folder, kind)
        if "failed" in report:
            print(f"{name}: {report['failed']}", flush=True)
            failed = failed or run is ours
            continue
        # Only PyTorch is told when to begin: the last step of ours is what lies between two updates.
        kernels = kernel_times.read(report["output"])
        if run is ours:
            kernels = kernel_times.last_step(kernels, "adamw")
        print(f"\n{name}: one step, by kernel\n{kernel_times.table(kernels)}", flush=True)
        add_json(options, {"kernels_of": name, "size": options.size, "batch": options.batch,
                           "kernels": kernel_times.summed(kernels)})
    return failed


def search(options, folder, runs):
    """A line for each way of training. Whether one failed for another reason than memory."""
    failed = False
    print(f"\n{'largest batch':24}{'batch':>9}{'tokens/s':>10}{'peak GiB':>19}", flush=True)
    for name, run, kind in runs:
        reports = {}

        def fits(batch):
            attempt = argparse.Namespace(**vars(options))
            attempt.batch, attempt.steps = batch, SEARCH_STEPS
            reports[batch] = run(attempt, folder, kind)
            if "failed" in reports[batch] and not reports[batch]["memory"]:
                raise RuntimeError(reports[batch]["failed"])
            return "failed" not in reports[batch]

        try:
            batch = largest(options.largest, fits)
        except RuntimeError as error:
            print(f"{name:24}{error}", flush=True)
            failed = failed or run is ours
            continue
        if batch == 0:
            print(f"{name:24}{'none':>9}", flush=True)
            continue
        report = reports[batch]
        speed = batch * options.seq / report["second"]
        more = " and perhaps more" if batch == options.largest else ""
        add_json(options, {"largest": name, "batch": batch, "tokens_per_s": speed, "peak": report["peak"]})
        print(f"{name:24}{batch:9}{speed:10.0f}{(report['peak'] or 0) / 2**30:19.2f}{more}", flush=True)
    return failed


def main(options):
    folder = options.folder or tempfile.mkdtemp()
    if options.only:
        run_torch(options, folder, options.only)
        return
    failed = False
    try:
        make_data(options, folder)
        layers, heads, channels = options.shape
        print(f"GPT-2 {options.size}: {layers} layers, {heads} heads, {channels} channels, vocabulary "
              f"{options.vocab}, T {options.seq}, B {options.batch}, {options.steps} steps, bf16\n"
              f"{device_name()}, torch {torch.__version__}", flush=True)
        if not options.rehearse:
            torch.cuda.empty_cache()
        runs = [("torch " + kind, peer, kind) for kind in options.torch]
        runs += [("adacc " + kind.replace("+", " "), ours, kind) for kind in options.ours]
        if options.ncu:
            sys.exit(list_kernels(options, folder, runs))
        per_step = options.batch * options.seq
        matrices = layers * 12 * channels**2 + options.vocab * channels
        flop = per_step * (6 * matrices + 6 * layers * options.seq * channels)
        print(f"{'':24}{'ms':>9}{'tokens/s':>10}{'TFLOP/s':>9}{'peak GiB':>10}{'activations':>13}"
              f"{'head rows':>11}{'first loss':>12}{'last':>9}", flush=True)
        first = None
        for name, run, kind in runs:
            report = run(options, folder, kind)
            if "failed" in report:
                print(f"{name:24}{'does not fit: ' if report['memory'] else ''}{report['failed']}",
                      flush=True)
                failed = failed or (run is ours and not report["memory"])
                continue
            second = report["second"]
            row = {key: report.get(key) for key in ("waits", "peak", "activations", "head_rows", "losses", "seconds")}
            add_json(options, {"row": name, "size": options.size, "batch": options.batch, "ms": 1e3 * second,
                               "tokens_per_s": per_step / second, "tflops": flop / second / 1e12, **row})
            show = lambda size: f"{size / 2**30:.2f}" if size else ""
            print(f"{name:24}{1e3 * second:9.1f}{per_step / second:10.0f}{flop / second / 1e12:9.1f}"
                  f"{show(report['peak']):>10}{show(report.get('activations')):>13}"
                  f"{report.get('head_rows') or '':>11}{report['losses'][0]:12.5f}"
                  f"{report['losses'][-1]:9.5f}", flush=True)
            if first is None:
                first = report["losses"][0]
            elif abs(report["losses"][0] - first) > options.tolerance * abs(first):
                print(f"{name}: its first loss differs from {first:.5f}")
                failed = True
        if options.largest > 0:
            failed = search(options, folder, runs) or failed
    finally:
        if not options.folder:
            shutil.rmtree(folder)
    sys.exit(failed)


main(OPTIONS)
