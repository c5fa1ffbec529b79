# SPDX-License-Identifier: MIT
# Checks of programs for devices: to be sourced. The arguments are those of both tests:
# PROGRAM [COUNT_MALLOC_LIBRARY [SOME_PROGRAM_THAT_ALLOCATES]]
program=$1 counter=${2:-} allocates=${3:-}

die() {
  echo "FAILED: $1" >&2
  echo "$output" >&2
  exit 1
}

# Runs the program, whose output is then in $output.
run_program() {
  output=$(LD_PRELOAD="$counter" "$program" "$@" 2>&1) || die "exit status $?"
}

# static_bytes WORDS: what the output states behind these words; at most 256 KiB.
static_bytes() {
  bytes=$(sed -n "s/^$1: \([0-9]*\) of 262144 bytes.*/\1/p" <<<"$output")
  [[ -n $bytes && $bytes -le 262144 ]] || die "static memory: '$bytes'"
}

never_called_malloc() {
  [[ -n $counter ]] || return 0
  grep -qx "calls of malloc: 0" <<<"$output" || die "it called malloc"
  # The counter counts: a program that allocates shows it.
  output=$(LD_PRELOAD="$counter" "$allocates" --version 2>&1) || die "$allocates failed"
  grep -q "^calls of malloc: [1-9]" <<<"$output" || die "the counter saw no call in $allocates"
}
