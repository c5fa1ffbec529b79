#!/bin/bash
# SPDX-License-Identifier: MIT
# The smallest products of each kind, once.
# Usage: gemm_bench_test.sh GEMM_BENCH
source "$(dirname "$0")/../examples/command_line.sh" "$1"

"$program" --benchmark_filter='^tile_../64x64x64' --benchmark_min_time=0.001 >out 2>err ||
  complain "it failed: $(cat err)"
for kind in nt nn tn; do
  grep -qE "^tile_$kind/64x64x64/.* ours_GFLOPs=[0-9.]+ ours_over_eigen=[0-9.]+ ours_over_peak=[0-9.]+" out ||
    complain "no row for $kind: $(cat out)"
done
"$program" --nonsense >out 2>err && complain "it takes an option that nobody knows"
finish
