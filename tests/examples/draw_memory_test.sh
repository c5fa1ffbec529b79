#!/bin/bash
# SPDX-License-Identifier: MIT
# The picture of a small GPT, and what is wrong on the command line in one line.
# Usage: draw_memory_test.sh DRAW_MEMORY
source "$(dirname "$0")/command_line.sh"

small=(--layers 2 --heads 2 --channels 32 --seq 16 --batch 2 --threads 1)
"$program" "${small[@]}" --out memory.svg >out 2>err || complain "a small picture: $(cat err)"
for policy in retain recompute int8 mixed; do
  grep -q "$policy" memory.svg || complain "$policy is not in the picture"
done
grep -q '</svg>' memory.svg || complain "the picture has no end"
grep -q "loops" memory.svg out && complain "loops of whole layers"
# Cut into parts: the loops of each policy, and what would be without.
"$program" --layers 2 --heads 2 --channels 32 --seq 64 --batch 4 --parts 4 --threads 1 --out loops.svg >out 2>err || complain "--parts: $(cat err)"
[ "$(grep -c "<g class='loops'>" loops.svg)" -eq 4 ] && [ "$(grep -c '>loops of 4 parts<' loops.svg)" -eq 4 ] &&
  [ "$(grep -c '>one part<' loops.svg)" -eq 1 ] || complain "not every policy has its loops"
awk '$3 == "MiB," && $2 <= $6 { ++n } $1 == "recompute" && $2 < 0.6 * $6 { ++n } END { exit n != 5 }' out || complain "loops save nothing: $(cat out)"
refuses --parts -- --parts 0
refuses --layers -- --layers 0
refuses --threads -- --threads x
refuses --nonsense -- --nonsense
refuses nowhere -- "${small[@]}" --out nowhere/memory.svg
refuses_empty_values
explains layers heads channels seq batch threads parts out
finish
