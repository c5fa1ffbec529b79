#!/bin/bash
# SPDX-License-Identifier: MIT
# The army in a tiny setting: it stays within its bytes, takes nothing from the heap online, gives the
# same answers twice, and is saved and loaded; and what is wrong with bad input.
# Usage: anole_test.sh ANOLE
source "$(dirname "$0")/command_line.sh" "$1"

sizes=(--known 8 --unseen 3 --clips 3 --frames 8 --hints 2 --visited 3 --visit 30)
tiny=("${sizes[@]}" --shared-epochs 4 --own-epochs 2 --selector-epochs 3 --large-rates 0.008 --no-times)
run() { "$program" "${tiny[@]}" "$@" >out 2>err || complain "status $?: $*: $(cat err)"; }
answers() { grep -x " *answers [0-9a-f]\{16\}" out || complain "no answers: $(cat out)"; }
# number PATTERN: the first number in the first place that fits it
number() { grep -o "$1" out | head -n 1 | grep -o '[0-9][0-9]*' | head -n 1; }

refuses_empty_values
explains digits seeds cue models known unseen clips hints budget bytes told slice head-rate save load picture

run --models 3 --bytes 110% --save army --picture stream.svg
cp out first
usual=$(answers)
run --models 3 --bytes 110%
cmp -s out first || complain "the same seed prints something else: $(diff out first)"
run --models 3 --bytes 110% --load army
[ "$(answers)" = "$usual" ] || complain "the army that was saved gives other answers"
run --models 3 --bytes 110% --seed 2
[ "$(answers)" != "$usual" ] || complain "another seed gives the same answers"

# All stays within the budget. With room for one model each switch makes another one go, whichever
# models a processor's rounding makes the selector choose.
cp first out
resident=$(number 'resident [0-9]*') budget=$(number 'of a budget of [0-9]*')
[ "${resident:-1}" -le "${budget:-0}" ] || complain "$resident bytes of a budget of $budget"
"$program" "${tiny[@]}" --models 4 --bytes 1KiB >out 2>err && complain "1 KiB held a model"
one=$(grep -o '([0-9]* bytes)' err | grep -o '[0-9]*' | tail -n 2 | paste -sd+)
run --models 4 --bytes "$((one))"B
[ "$(number 'resident [0-9]*')" -le "$((one))" ] || complain "more than $((one)) bytes"
[ "$(number '[0-9]* evictions')" -gt 0 ] || complain "no model had to go: $(cat out)"
[ "$(number '[0-9]* updates of heads')" -gt 0 ] || complain "no head learned: $(cat out)"
# A sanitizer's malloc is its own: then nothing is counted.
if grep -q "calls of the heap" out; then
  grep -q "army was at work: 0$" out || complain "it called malloc: $(cat out)"
fi
grep -q "<polyline .*points='[0-9., ]\{50,\}'/>" stream.svg || complain "no line in the picture"

# Digits: none of the real ones here, but as many, with a pattern for each.
awk 'BEGIN { for (n = 0; n < 1797; ++n) { for (i = 0; i < 64; ++i) printf "%d,", (i * (n % 10 + 1)) % 17; print n % 10 } }' >digits.csv
run --models 2 --bytes 200% --digits digits.csv --seeds 2
grep -q "^large  .* ± " out || complain "no table of two seeds: $(cat out)"

# Bad input.
refuses "holds no model" "10.0 KiB" "one takes" -- --bytes 10KiB
refuses "no more than" -- --bytes 1GiB
refuses "army" "has 3 compact models; --models says 4" -- --models 4 --bytes 150% --load army
refuses "army" "linear" "(10, 24)" "(6, 24)" -- --models 3 --bytes 150% --load army --digits digits.csv
refuses "nowhere" "cannot be opened" -- --load nowhere
echo "this is no file of tensors, but text" >text
refuses "text" "safetensors" -- --load text
refuses "no plan fits" "smallest that can be met" -- "${sizes[@]}" --budget 1%
refuses "nowhere" "cannot be opened" -- --digits nowhere
refuses "text: line 1, number 1" "from 0 to 16" -- --digits text
head -n 5 digits.csv >short
refuses "short: has 5 digits" "1797" -- --digits short
sed '7s/,[0-9]*,/,17,/' digits.csv >large
refuses "large: line 7, number 2" -- --digits large
cat digits.csv short >long
refuses "long" "more than 1797" -- --digits long
gzip -c digits.csv >packed
refuses "packed" "compressed" -- --digits packed
refuses "nowhere/army" "cannot be written" -- --save nowhere/army
refuses "nowhere/stream" "cannot be written" -- --picture nowhere/stream
refuses "no scenes" -- --visited 0 --unseen 0
refuses "--models" -- --models 0
refuses "--cue" -- --cue nan
finish
