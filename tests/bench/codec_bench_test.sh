#!/bin/bash
# SPDX-License-Identifier: MIT
# The smallest cases of one codec, with one thread and with two.
# Usage: codec_bench_test.sh CODEC_BENCH
source "$(dirname "$0")/../examples/command_line.sh" "$1"

"$program" --benchmark_filter='code/int8_outlier/clean/64KiB/' >out 2>err || complain "it failed: $(cat err)"
for direction in encode decode; do
  for threads in 1 2; do
    grep -qE "^$direction/int8_outlier/clean/64KiB/threads:$threads/.* bits_per_element=8\.6875 .*over_memcpy=" out ||
      complain "no row for $direction with $threads threads: $(cat out)"
  done
done
grep -q 'ERROR' out && complain "a case failed: $(cat out)"
"$program" --nonsense >out 2>err && complain "it takes an option that nobody knows"
finish
