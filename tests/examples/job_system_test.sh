#!/bin/bash
# SPDX-License-Identifier: MIT
# Learning on an engine's job system: the bits do not depend on how many workers there are, nor on
# where frames cut the steps.
# Usage: job_system_test.sh JOB_SYSTEM
source "$(dirname "$0")/command_line.sh" "$1"

learn() { "$program" "$@" >out 2>err || complain "status $?: $*: $(cat out err)"; }
loss() { sed -n "s/.*loss \([0-9.]*\), then \([0-9.]*\)$/\\$1/p" out | sort -u; }

refuses_empty_values
explains workers updates hidden slice
learn --updates 16
grep -qx "the weights have the same bits each time: yes" out || complain "no word on the bits: $(cat out)"
[ "$(grep -c " jobs stolen" out)" -eq 3 ] || complain "not 1, 2 and 4 workers: $(cat out)"
grep -q " 0 tiles" out && complain "no tile ran as a job: $(cat out)"
[ "$(loss 2 | wc -l)" -eq 1 ] || complain "losses differ: $(cat out)"
awk -v first="$(loss 1)" -v last="$(loss 2)" 'BEGIN { exit !(last < 0.5 * first) }' ||
  complain "the loss did not halve: $(cat out)"
whole=$(loss 2)
learn --updates 16 --workers 3 --slice 0.2
[ "$(loss 2)" = "$whole" ] || complain "shorter slices give the loss $(loss 2), not $whole"
learn --updates 6 --workers 2 2 2 --hidden 5
grep -q "bits each time: yes" out || complain "two workers, two results: $(cat out)"

refuses "--workers" "-1" -- --workers -1
refuses "--workers" -- --workers 0
refuses "--updates" "-3" -- --updates -3
refuses "--slice" -- --slice nan
refuses "--nonsense" -- --nonsense
finish
