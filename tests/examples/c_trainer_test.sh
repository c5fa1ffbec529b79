#!/bin/bash
# SPDX-License-Identifier: MIT
# c_trainer_test.sh BEFORE AFTER SOURCE: the trainer in C prints the same losses with adacc as without,
# under every lossless plan, and stays within the budget; what adacc takes of its source is little.
set -u
before=$1 after=$2 source=$3
shape=(6 2 32 32 2 5)  # layers, heads, channels, length, batch, steps
fail() { echo "FAILED: $*"; exit 1; }

expected=$("$before" "${shape[@]}") || fail "the trainer without adacc"
whole=$(sed -n 's/.*scratch: \([0-9]*\) bytes.*/\1/p' <<<"$expected")
losses() { grep '^step'; }
[ "$(losses <<<"$expected" | wc -l)" = 5 ] || fail "five steps: $expected"

for percent in 100 60 40 25; do
  got=$("$after" "${shape[@]}" $percent 2>&1) || fail "$percent %: $got"
  [ "$(losses <<<"$got")" = "$(losses <<<"$expected")" ] || fail "$percent % changes losses: $got"
  bytes=$(sed -n 's/.*scratch: \([0-9]*\) bytes.*/\1/p' <<<"$got")
  [ "$bytes" -le $((whole * percent / 100 + whole / 50)) ] || fail "$percent % of $whole: $bytes bytes"
done

# With codecs it learns as well.
got=$("$after" "${shape[@]}" 25 0.01 2>&1) || fail "codecs: $got"
awk -v a="$(losses <<<"$expected" | tail -1)" -v b="$(losses <<<"$got" | tail -1)" 'BEGIN {
  split(a, x); split(b, y); d = x[4] - y[4]; exit !(d < 0.02 && d > -0.02) }' || fail "codecs: $got"

# Numbers are read whole, with a point whatever the locale is.
for wrong in 0,01 1e-2 -1 . 0.0.1 ''; do
  got=$("$after" "${shape[@]}" 25 "$wrong" 2>&1) && fail "a tolerance of '$wrong' was taken: $got"
  [ "$got" = "argument 8 is $wrong; expected a number such as 0.01" ] || fail "'$wrong': $got"
done
got=$("$after" 6 2x 2>&1) && fail "2x heads were taken: $got"
[ "$got" = "argument 2 is 2x; expected a whole number" ] || fail "2x: $got"

got=$("$after" "${shape[@]}" 1 2>&1) && fail "1 % was met: $got"
grep -q 'no plan fits into a budget of .*smallest.* is' <<<"$got" || fail "1 %: $got"

# The lines between #ifdef WITH_ADACC (or the #else of its opposite) and their ends.
lines=$(awk '/^#ifn?def WITH_ADACC/ {mine = /#ifdef/; inside = 1; next}
             /^#else/ && inside {mine = !mine; next}
             /^#endif/ && inside {inside = 0; next}
             inside && mine {n++} END {print n}' "$source")
[ "$lines" -le 60 ] || fail "$lines lines of the trainer are adacc's"
echo "passed: $lines lines"
