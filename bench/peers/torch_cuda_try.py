#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whether adacc's Python package does on a GPU as it does on the executor, in a minute: peaks, times and losses of a
small GPT under each way to save memory, as a table and as lines of JSON.

    python3 bench/peers/torch_cuda_try.py                      # about 120 M parameters, bf16 autocast, batch 8 x 1024
    python3 bench/peers/torch_cuda_try.py --small              # a second; for the executor (support/ptxrun/torch)

Nothing is built: `adacc` is imported as installed. Each mode trains from the same parameters on the same tokens.

    peak     torch.cuda.max_memory_allocated() in forward and backward, above what was in use when the step began: the
             most of the last steps
    between  bytes in use between forward and backward, above the same
    ms       median of a step by CUDA events, its optimizer included; the first steps (of budgets those recorded) are
             left out
    host     median of the processor's milliseconds to queue forward and backward
    loss     the last step's, and the largest difference from plain's over all steps
    report   of a budget, what was planned and what adacc has counted

A mode that fails says so in its row, and the others go on.
"""
import argparse
import json
import statistics
import sys
import time
import traceback

try:
    import ptxrun_torch  # on the executor
except ImportError:
    pass
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import adacc


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.ln1(x)).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Gpt(nn.Module):
    """A vocabulary is small here, so blocks are most of what is saved."""

    def __init__(self, layers, width, heads, length, vocabulary=1024):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, run=lambda block, x: block(x)):
        x = self.tokens(tokens) + self.places.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = run(block, x)
        logits = self.head(self.last(x))[:, :-1]
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), tokens[:, 1:].reshape(-1))


class Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *how):
        return None


def modes():
    def again(block, x):
        return checkpoint(block, x, use_reentrant=False)

    plain = {}
    yield "plain", Nothing, plain
    yield "checkpoint", Nothing, {"run": again}
    for policy in ("lossless", "int8", "tolerated", "int4"):
        yield policy, lambda policy=policy: adacc.saved_tensors(policy), plain
    yield "int8+checkpoint", lambda: adacc.saved_tensors("int8"), {"run": again}
    for share in ("60%", "40%"):
        yield "budget " + share, lambda share=share: adacc.budget(share, on_refusal="least"), plain
    for share in ("30%", "20%"):
        yield f"budget {share}+blocks", lambda share=share: adacc.budget(share, on_refusal="least"), {"run": again}
    yield "budget 70% lossless+blocks", lambda: adacc.budget("70%", "lossless", on_refusal="least"), {"run": again}


def measure(model_of, tokens, autocast, around, forward, steps, skipped):
    torch.manual_seed(1)
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    within, losses, times, hosts, rows = around(), [], [], [], {}
    for step in range(steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        begin.record()
        start = time.process_time()
        with within, torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = model(tokens, **forward)
        between = torch.cuda.memory_allocated() - before
        loss.backward()
        host = time.process_time() - start
        peak = torch.cuda.max_memory_allocated() - before
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        losses.append(loss.detach())
        del loss
        if step >= skipped:
            times.append((begin, end))
            hosts.append(1e3 * host)
            rows.update(peak=max(peak, rows.get("peak", 0)), between=max(between, rows.get("between", 0)))
    torch.cuda.synchronize()
    rows["ms"] = statistics.median(a.elapsed_time(b) for a, b in times)
    rows["host_ms"] = statistics.median(hosts)
    rows["losses"] = [each.item() for each in losses]
    rows["reserved"] = torch.cuda.max_memory_reserved()
    if isinstance(within, adacc.budget):
        report = within.report
        rows["report"] = str(report)
        rows.update({name: value for name, value in report.as_dict().items() if isinstance(value, (int, float, str))})
    if isinstance(within, adacc.saved_tensors):
        rows["report"] = repr(within.statistics)
    return rows


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--layers", type=int, default=12)
    parse.add_argument("--width", type=int, default=768)
    parse.add_argument("--heads", type=int, default=12)
    parse.add_argument("--batch", type=int, default=8)
    parse.add_argument("--length", type=int, default=1024)
    parse.add_argument("--steps", type=int, default=12)
    parse.add_argument("--fp32", action="store_true", help="without autocast")
    parse.add_argument("--small", action="store_true")
    parse.add_argument("--only", default="", help="modes whose names begin so")
    parse.add_argument("--json", default="", help="a file for lines of JSON")
    options = parse.parse_args()
    if options.small:
        options.layers, options.width, options.heads, options.batch, options.length = 2, 64, 2, 2, 64
        options.steps, options.fp32 = 6, True
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, adacc {adacc.__version__}, kernels: "
          f"{adacc.has_cuda_kernels}", flush=True)
    torch.manual_seed(0)
    tokens = torch.randint(0, 1024, (options.batch, options.length)).cuda()

    def model_of():
        return Gpt(options.layers, options.width, options.heads, options.length).cuda()

    exact, failed, log = None, 0, open(options.json, "w") if options.json else None
    print(f"{'mode':<28} {'peak MiB':>9} {'between':>9} {'ms':>8} {'host':>7} {'loss':>8} {'off':>9}  report")
    for name, around, forward in modes():
        if name != "plain" and not name.startswith(options.only):
            continue
        torch.cuda.empty_cache()
        try:
            rows = measure(model_of, tokens, not options.fp32, around, forward, options.steps, options.steps // 2)
        except Exception as why:  # the next mode may do
            failed += 1
            traceback.print_exc(limit=4)
            print(f"{name:<28} FAILED: {str(why).splitlines()[0][:200]}", flush=True)
            continue
        exact = exact or rows["losses"]
        off = max(abs(a - b) for a, b in zip(exact, rows["losses"]))
        print(f"{name:<28} {rows['peak'] / 2**20:9.1f} {rows['between'] / 2**20:9.1f} {rows['ms']:8.2f} "
              f"{rows['host_ms']:7.2f} {rows['losses'][-1]:8.4f} {off:9.1e}  {rows.get('report', '')}", flush=True)
        if log:
            log.write(json.dumps({"mode": name, **rows}) + "\n")
            log.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
