#!/bin/bash
# SPDX-License-Identifier: MIT
# The camera on a device: it adapts by the points that it states, in places that the offline half never saw,
# and never calls malloc.
# Usage: tiny_camera_test.sh TINY_CAMERA [COUNT_MALLOC_LIBRARY [SOME_PROGRAM_THAT_ALLOCATES]]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/device_program.sh"

for arguments in 0 many "1 2"; do
  status=0
  # shellcheck disable=SC2086  # two arguments
  output=$("$program" $arguments 2>&1) || status=$?
  [[ $status -eq 2 && $output == "usage: tiny_camera"* ]] || die "exit status $status for $arguments"
done

run_program 2
static_bytes memory
pattern='s/^mean: before \([0-9.]*\) %, after \([0-9.]*\) %, \([0-9.]*\) points more, .*(stated: 5)$'
read -r before after gain < <(sed -n "$pattern/\1 \2 \3/p" <<<"$output") || die "no mean"
awk "BEGIN { exit !($gain >= 5 && $after - $before >= 4.8 && $after > 70) }" || die "gain $gain"
[[ $(grep -c '^place [12]: before [0-9.]* %, after [0-9.]* %$' <<<"$output") -eq 2 ]] || die "places"
# A choice was to be made: something learns, and something does not.
learning=$(sed -n 's/^learning: the last layer, and of the convolutions//p' <<<"$output" | wc -w)
[[ $learning -ge 1 && $learning -lt 10 ]] || die "$learning tensors learn"
never_called_malloc
echo "$gain points more in $bytes bytes, $learning tensors and the last layer learn"
