#!/bin/bash
# SPDX-License-Identifier: MIT
# The device-sized example: it learns to the accuracy that it states, and never calls malloc.
# Usage: tiny_device_test.sh TINY_DEVICE [COUNT_MALLOC_LIBRARY [SOME_PROGRAM_THAT_ALLOCATES]]
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/device_program.sh"

run_program
accuracy=$(sed -n 's/^accuracy \([0-9.]*\) on 1024 fresh windows (stated: [0-9.]*)$/\1/p' <<<"$output")
stated=$(sed -n 's/^accuracy .*(stated: \([0-9.]*\))$/\1/p' <<<"$output")
[[ -n $accuracy && -n $stated ]] || die "no accuracy in the output"
awk "BEGIN { exit !($accuracy >= $stated && $stated >= 0.95) }" || die "accuracy $accuracy, stated $stated"
for fault in healthy imbalance bearing loose; do
  grep -q "^$fault  *[0-9]* of  *[0-9]*$" <<<"$output" || die "no line for $fault"
done
static_bytes "static memory for training"
never_called_malloc
echo "accuracy $accuracy (stated $stated) in $bytes bytes"
