#!/bin/bash
# SPDX-License-Identifier: MIT
# Plans for two layers at three budgets, of which nothing fits the last, and each mechanism switched off.
# Usage: plan_bench_test.sh PLAN_BENCH
source "$(dirname "$0")/../examples/command_line.sh" "$1"

"$program" --layers 2 --budgets 60,40,5 --repeat 1 >out 2>err || complain "it failed: $(cat err)"
planned=$(grep -cE '^ +2 +(0|10)% +(60|40)% .*% .* by [a-z_]+, proven by [a-z_]+$' out)
[ "$planned" -eq 4 ] || complain "$planned plans, not 4: $(cat out)"
refused=$(grep -cE '^ +2 +(0|10)% +5% .*no plan fits into a budget of' out)
[ "$refused" -eq 2 ] || complain "$refused refusals, not 2: $(cat out)"

"$program" --ablate --layers 2 --budgets 60 --repeat 1 >out 2>err || complain "--ablate failed: $(cat err)"
grep -qE '^all +2 +0% ' out || complain "no row for all mechanisms: $(cat out)"
[ "$(grep -cE '% +0$' out)" -ge 18 ] || complain "mechanisms are missing, or refused: $(cat out)"
"$program" --solver nobody >out 2>err && complain "it takes a solver that nobody knows"
finish
