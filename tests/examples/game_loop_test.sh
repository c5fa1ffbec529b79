#!/bin/bash
# The game on a virtual clock: the player learns, and in slices it learns what it would without.
# Usage: game_loop_test.sh GAME_LOOP
set -euo pipefail

die() {
  echo "FAILED: $1" >&2
  echo "$output" >&2
  exit 1
}

output=$("$1" --virtual-time --frames 1500) || die "exit status $?"
grep -qx "uninterrupted training gives the same losses and parameters, bit for bit: yes" \
  <<<"$output" || die "no word on the bits"
read -r early late < <(sed -n 's/.*caught \([0-9]*\) % of the first [0-9]*, \([0-9]*\) % of the last$/\1 \2/p' <<<"$output")
[[ -n ${late:-} && $late -ge 75 && $late -gt $early ]] || die "caught ${early:-?} %, then ${late:-?} %"
read -r steps first last < <(sed -n 's/^\([0-9]*\) training steps .* mean loss \([0-9.]*\) in the first 20, \([0-9.]*\) in the last$/\1 \2 \3/p' <<<"$output")
[[ -n ${last:-} && $steps -gt 500 ]] || die "${steps:-no} steps"
awk "BEGIN { exit !($last < 0.1 * $first) }" || die "the loss went from $first to $last"
grep -q "^|.*#|$" <<<"$output" || die "no paddle on the court"
again=$("$1" --virtual-time --frames 1500)
[[ $again == "$output" ]] || die "a second game on the same clock differs"

# Shorter slices cut the steps elsewhere.
output=$("$1" --virtual-time --frames 400 --slice 0.3) || die "exit status $?"
grep -q "bit for bit: yes$" <<<"$output" || die "slices of 0.3 ms give other bits"
status=0
for wrong in "--slice 99" "--slice nan" "--seed -1" "--frames 0" "--nonsense"; do
  status=0
  output=$("$1" --virtual-time $wrong 2>&1) || status=$?
  [[ $status -eq 2 && $(wc -l <<<"$output") -eq 1 ]] || die "$wrong: status $status"
done
echo "caught $early %, then $late %; loss $first, then $last"
