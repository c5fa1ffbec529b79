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
refuses --layers -- --layers 0
refuses --threads -- --threads x
refuses --nonsense -- --nonsense
refuses nowhere -- "${small[@]}" --out nowhere/memory.svg
explains layers heads channels seq batch threads out
finish
