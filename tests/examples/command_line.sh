# SPDX-License-Identifier: MIT
# What tests of a command line share. `source` it with the path of the program: it goes to a folder
# of its own, and defines $program, complain, refuses, refuses_empty_values, explains and finish.
set -u
export LC_ALL=C
program=$(realpath "$1")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failures=0

complain() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# refuses WORDS... -- ARGS...: the program must exit with 2 after one line with all the words.
refuses() {
  local words=()
  while [ "$1" != -- ]; do words+=("$1"); shift; done
  shift
  "$program" "$@" >out 2>err
  local status=$? lines
  lines=$(wc -l <err)
  [ "$status" -eq 2 ] || complain "status $status, not 2: $*"
  [ "$lines" -eq 1 ] || complain "$lines lines, not 1: $*: $(cat err)"
  local word
  for word in "${words[@]}"; do
    grep -qF -- "$word" err || complain "'$word' is not in '$(cat err)': $*"
  done
}

# refuses_empty_values: of every option that --help lists with a value, in one line that names it.
refuses_empty_values() {
  local option
  for option in $("$program" --help | sed -n 's/^ *\(--[a-z0-9-]*\) \(TEXT\|U*INT\|FLOAT\).*/\1/p'); do
    refuses "$option" -- "$option" ''
    refuses "$option" -- "$option="
  done
}

# explains OPTIONS...: --help must name each of them.
explains() {
  "$program" --help >out 2>err || complain "--help fails"
  local option
  for option in "$@"; do
    grep -q -- "--$option" out || complain "--help does not explain --$option"
  done
}

# Ends the test: with 1 if anything was complained about.
finish() {
  [ "$failures" -eq 0 ] && echo "all good"
  exit "$((failures > 0))"
}
