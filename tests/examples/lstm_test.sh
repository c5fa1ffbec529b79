#!/bin/bash
# SPDX-License-Identifier: MIT
# lstm_test.sh PROGRAM: lines of different lengths train to the same bits with a tape as without, within its budget.
set -u
program=$1
fail() { echo "FAILED: $*"; exit 1; }

expected=$("$program" --plain --steps 60) || fail "without a tape: $expected"
grep -q '^step 60 loss [0-9]' <<<"$expected" || fail "no loss: $expected"
for percent in 80 33; do
  got=$("$program" --steps 60 --percent $percent 2>&1) || fail "$percent %: $got"
  [ "$(grep -E '^step|=' <<<"$got")" = "$(grep -E '^step|=' <<<"$expected")" ] || fail "$percent % changes losses: $got"
  read -r bytes whole < <(sed -n 's/^activations and gradients: \([0-9]*\) bytes of \([0-9]*\)$/\1 \2/p' <<<"$got")
  [ "$bytes" -le $((whole * percent / 100)) ] || fail "$percent % of $whole: $bytes bytes"
done

got=$("$program" --steps 1 --percent 3 2>&1) && fail "3 % was met: $got"
grep -q 'no plan fits into a budget of .*limited by' <<<"$got" || fail "3 %: $got"
got=$("$program" --percent 101 2>&1) && fail "101 % was taken: $got"
got=$("$program" --what 2>&1) && fail "--what was taken: $got"
grep -q 'expected --plain, --steps N or --percent P' <<<"$got" || fail "--what: $got"
echo passed
