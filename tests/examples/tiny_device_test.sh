#!/bin/bash
# The device-sized example: it learns to the accuracy that it states, and never calls malloc.
# Usage: tiny_device_test.sh TINY_DEVICE [COUNT_MALLOC_LIBRARY [SOME_PROGRAM_THAT_ALLOCATES]]
set -euo pipefail

die() {
  echo "FAILED: $1" >&2
  echo "$output" >&2
  exit 1
}

output=$(LD_PRELOAD="${2:-}" "$1" 2>&1) || die "exit status $?"
accuracy=$(sed -n 's/^accuracy \([0-9.]*\) on 1024 fresh windows (stated: [0-9.]*)$/\1/p' <<<"$output")
stated=$(sed -n 's/^accuracy .*(stated: \([0-9.]*\))$/\1/p' <<<"$output")
[[ -n $accuracy && -n $stated ]] || die "no accuracy in the output"
awk "BEGIN { exit !($accuracy >= $stated && $stated >= 0.95) }" || die "accuracy $accuracy, stated $stated"
for fault in healthy imbalance bearing loose; do
  grep -q "^$fault  *[0-9]* of  *[0-9]*$" <<<"$output" || die "no line for $fault"
done
bytes=$(sed -n 's/^static memory for training: \([0-9]*\) of 262144 bytes.*/\1/p' <<<"$output")
[[ -n $bytes && $bytes -le 262144 ]] || die "static memory: '$bytes'"

if [[ -n ${2:-} ]]; then
  grep -qx "calls of malloc: 0" <<<"$output" || die "it called malloc"
  # The counter counts: a program that allocates shows it.
  output=$(LD_PRELOAD="$2" "$3" --version 2>&1) || die "$3 failed"
  grep -q "^calls of malloc: [1-9]" <<<"$output" || die "the counter saw no call in $3"
fi
echo "accuracy $accuracy (stated $stated) in $bytes bytes"
