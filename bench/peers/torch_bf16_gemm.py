# SPDX-License-Identifier: MIT
"""PyTorch's bf16 products (oneDNN) over the shapes of bf16_gemm_bench, beside its fp32 products in turns.

    python torch_bf16_gemm.py [ROUNDS]
    ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 python torch_bf16_gemm.py     # without AMX

One thread. Weights are fp32 and rounded in the measured time, as in ours; the weight's gradient is fp32 in neither.
Prints GFLOP/s of both, and medians of the ratios of neighbours.
"""
import statistics
import sys
import time

import torch

torch.set_num_threads(1)
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
rows = 1024
totals = [[0.0] * rounds, [0.0] * rounds]
operations = 0.0


def timed(call):
    start = time.process_time()
    call()
    return time.process_time() - start


for kind in ("nt", "nn", "tn"):
    for inputs, outputs in ((384, 1152), (384, 384), (384, 1536), (1536, 384)):
        x, y, w = torch.randn(rows, inputs), torch.randn(rows, outputs), torch.randn(outputs, inputs)
        x16, y16 = x.bfloat16(), y.bfloat16()
        fp32 = {"nt": lambda: x @ w.T, "nn": lambda: y @ w, "tn": lambda: y.T @ x}[kind]
        bf16 = {"nt": lambda: x16 @ w.bfloat16().T, "nn": lambda: y16 @ w.bfloat16(),
                "tn": lambda: y16.T @ x16}[kind]
        fp32(), bf16()
        times = [[], []]
        for i in range(rounds):
            for which, call in enumerate((fp32, bf16)):
                times[which].append(timed(call))
                totals[which][i] += times[which][-1]
        flop = 2.0 * rows * inputs * outputs
        operations += flop
        median = [statistics.median(t) for t in times]
        ratio = statistics.median(a / b for a, b in zip(*times))
        print(f"{kind}/{inputs}x{outputs}: fp32 {flop / median[0] * 1e-9:.0f} GFLOP/s, "
              f"bf16 {flop / median[1] * 1e-9:.0f} GFLOP/s, ratio {ratio:.2f}")
ratio = statistics.median(a / b for a, b in zip(*totals))
print(f"all: bf16 {operations / statistics.median(totals[1]) * 1e-9:.0f} GFLOP/s, ratio {ratio:.2f}")
