#!/bin/bash
# SPDX-License-Identifier: MIT
# The table that the compiler made: ten rows, of which the marked one fits the budget with the least
# work, and a step ran in just its bytes.
# Usage: compile_time_policies_test.sh COMPILE_TIME_POLICIES
set -euo pipefail

die() {
  echo "FAILED: $1" >&2
  echo "$output" >&2
  exit 1
}

output=$("$1") || die "exit status $?"
budget=$(sed -n 's/^\*  least work within \([0-9]*\) bytes.*/\1/p' <<<"$output")
[[ -n $budget ]] || die "no budget"
rows=$(awk '$NF == "%" { mark = $1 == "*"; print mark, $(NF-2), $(NF-1) }' <<<"$output")
[[ $(wc -l <<<"$rows") -eq 10 ]] || die "not ten rows"
[[ $(cut -d' ' -f2- <<<"$rows" | sort -u | wc -l) -ge 8 ]] || die "the rows are all alike"
# The choice, made again from what is printed.
awk -v budget="$budget" '
  $1 { chosen = $2; work = $3; ++marked }
  { all[NR] = $2; cost[NR] = $3 }
  END {
    if (marked != 1 || chosen > budget) exit 1
    for (i in all) if (all[i] <= budget && cost[i] < work) exit 1
    for (i in all) if (all[i] > budget) more = 1
    exit !more
  }' <<<"$rows" || die "the marked row is not the best"
chosen=$(awk '$1 == 1 { print $2 }' <<<"$rows")
grep -Eq "^a step of it in an arena of $chosen bytes: loss [0-9]+\.[0-9]+$" <<<"$output" ||
  die "no step in $chosen bytes"
echo "chose $chosen of $budget bytes"
