#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Host time of hooks: what a pack and an unpack of adacc cost beside PyTorch's own hooks, which do nothing.

A GPT's blocks on tiny tensors, so that nearly all time is the host's, as where a GPU computes: processor time of this
thread, the least of many rounds in turns. Encoding is not in it (policy "as_is"), and so neither is a kernel's launch.

    bench/peers/torch_host_time.py [--rounds 40]
"""
import argparse
import contextlib
import time

import torch
from torch import nn
from torch.nn import functional as F

import adacc


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.heads = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), heads

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norms[0](x)).split(width, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def seconds(model, x, around):
    """Processor time of forward and of backward."""
    start = time.thread_time()
    with around:
        loss = model(x).square().mean()
    middle = time.thread_time()
    loss.backward()
    return middle - start, time.thread_time() - middle


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model, x = nn.Sequential(*(Block(16, 2) for _ in range(24))), torch.randn(1, 8, 16, requires_grad=True)
    budgets = {again: adacc.budget("100%", "as_is", least_bytes=1, again=again) for again in (False, True)}
    modes = {"no hooks": contextlib.nullcontext,
             "hooks that do nothing": lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
             "saved_tensors": lambda: adacc.saved_tensors("as_is", least_bytes=1),
             "saved_tensors, again": lambda: adacc.saved_tensors("as_is", least_bytes=1, again=True),
             "a planned step of a budget": lambda: budgets[True],
             "the same, again=False": lambda: budgets[False]}
    for budget in budgets.values():
        for _ in range(4):
            seconds(model, x, budget)
    counted = adacc.saved_tensors("as_is", least_bytes=1)
    seconds(model, x, counted)
    packed = counted.statistics.packed
    least = {name: [float("inf")] * 2 for name in modes}
    for _ in range(rounds):
        for name, make in modes.items():
            mine = seconds(model, x, make())
            least[name] = [min(pair) for pair in zip(least[name], mine)]
    beside = least["hooks that do nothing"]
    print(f"{packed} tensors packed, of {counted.statistics.storages} storages; microseconds of this thread\n")
    print("| | forward, a pack | beside | backward, an unpack | beside |\n| --- | --- | --- | --- | --- |")
    for name, mine in least.items():
        cells = [f"{1e6 * one / packed:.2f} | {1e6 * (one - base) / packed:+.2f}" for one, base in zip(mine, beside)]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
