#!/bin/bash
# SPDX-License-Identifier: MIT
# first_gpt_test.sh PROGRAM: a run that is saved and resumed ends where one in a piece does; a budget holds.
set -u
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
for i in $(seq 400); do echo "line $i of a text that says what it says, $((i * 7919 % 1000)) times"; done >"$folder/text"

whole=$("$program" "$folder/text" 6 100) || fail "six steps: $whole"
"$program" "$folder/text" 3 100 "$folder/run" >"$folder/first" || fail "three steps: $(cat "$folder/first")"
rest=$("$program" "$folder/text" 3 100 "$folder/run") || fail "three more: $rest"
grep -q 'goes on from .*, after 3 steps' <<<"$rest" || fail "not resumed: $rest"
held_out() { sed -n 's/^step *6 .*held out //p' <<<"$1"; }
[ -n "$(held_out "$whole")" ] && [ "$(held_out "$whole")" = "$(held_out "$rest")" ] || fail "other losses: $whole $rest"
[ "$(sed '1,/^activations/d' <<<"$whole")" = "$(sed '1,/^activations/d' <<<"$rest")" ] || fail "other text: $rest"

got=$("$program" "$folder/text" 2 30) || fail "30 %: $got"
read -r bytes all < <(sed -n 's/^activations \([0-9]*\) bytes, and \([0-9]*\) if .*/\1 \2/p' <<<"$got")
[ "$bytes" -le $((all * 30 / 100)) ] || fail "30 %: $bytes of $all"

got=$("$program" "$folder/none" 2>&1) && fail "a missing file was read"
grep -q "$folder/none" <<<"$got" || fail "a missing file: $got"
got=$("$program" "$folder/text" 2 1 2>&1) && fail "1 % was met"
grep -q 'no plan fits into a budget of' <<<"$got" || fail "1 %: $got"
for arguments in "" "--help" "$folder/text 2x" "$folder/text 99999999999" "$folder/text 2 30%"; do
  got=$("$program" $arguments 2>&1)
  [ $? = 2 ] || fail "taken: $arguments"
  grep -q '^usage: ' <<<"$got" || fail "usage: $arguments: $got"
done
got=$(timeout 60 "$program" "$folder/text" 1000000 100 "$folder/none/run" 2>&1)
[ $? = 1 ] || fail "trained for a checkpoint that cannot be written"
grep -q "$folder/none/run: cannot be written" <<<"$got" || fail "a checkpoint: $got"
echo passed
