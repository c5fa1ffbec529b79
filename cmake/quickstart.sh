#!/usr/bin/env bash
# From a fresh Debian 12 clone to a result in one command:
#
#   bash cmake/quickstart.sh train   build, train one model under several policies and budgets,
#                                    print a table, write a report page
#   bash cmake/quickstart.sh test    build and run all tests: g++, clang++-16 (with a minute of
#                                    fuzzing), ASan and UBSan, TSan
#
# Packages that are missing are installed with apt-get, as root or through sudo without a password;
# otherwise the one line that installs them is printed. ADACC_REFERENCE_DIR in the environment names
# the folder of llm.c's reference run; its test is skipped without.
set -euo pipefail
export LC_ALL=C  # numbers with a point, in every locale

# The model that `train` trains; at STEPS steps each policy takes about half a minute on two cores.
MODEL=(--layers 6 --heads 6 --channels 192 --context 128 --seq 128 --batch 8 --lr 1e-3 --warmup 20
       --min-lr 1e-4 --clip 1 --seed 1)
STEPS=${QUICKSTART_STEPS:-270}
# Name and options of each run.
RUNS=("retain:--policy retain"
      "recompute:--policy recompute"
      "auto 50%:--budget 50%"
      "auto 30%:--budget 30%")

cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=$(nproc)

usage() {
  echo "usage: bash cmake/quickstart.sh train|test" >&2
  exit 2
}

installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# need package...: installs those that are missing, or says how to.
need() {
  if ! command -v dpkg-query >/dev/null; then
    echo "quickstart: this is no Debian system; it needs what these Debian packages hold: $*"
    return
  fi
  local missing=() package
  for package in "$@"; do
    installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local install="apt-get install -y --no-install-recommends ${missing[*]}"
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! { command -v sudo && sudo -n true; } >/dev/null 2>&1; then
      echo "quickstart: packages are missing; install them with this line and start again:" >&2
      echo "  sudo apt-get update && sudo $install" >&2
      exit 1
    fi
    root=(sudo -n)
  fi
  echo "quickstart: installing ${missing[*]}"
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  # shellcheck disable=SC2086  # one word per package is meant
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive $install
}

PACKAGES=(g++ cmake ninja-build libeigen3-dev doctest-dev libcli11-dev nlohmann-json3-dev
          libbenchmark-dev liblpsolve55-dev)

# number KEY FILE: KEY's value in every line of a log, one a line.
number() {
  sed -n 's/.*"'"$1"'" *: *\([^,} ]*\).*/\1/p' "$2"
}

median() {
  sort -g | awk '{ v[NR] = $1 }
    END { if (NR) print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'
}

train() {
  need "${PACKAGES[@]}"
  cmake --preset release
  cmake --build --preset release --target train_gpt -j "$jobs"

  local logs=build/quickstart run
  mkdir -p "$logs"
  for run in "${RUNS[@]}"; do
    local name=${run%%:*} options
    read -ra options <<<"${run#*:}"
    echo
    echo "== $name"
    build/release/examples/train_gpt "${MODEL[@]}" --steps "$STEPS" --threads "$jobs" \
      "${options[@]}" --log "$logs/$name.jsonl" --report "$logs/$name.html"
  done

  echo
  printf '%-10s %10s %16s %11s\n' policy tokens/s 'activation peak' 'final loss'
  for run in "${RUNS[@]}"; do
    local name=${run%%:*} log
    log=$logs/$name.jsonl
    printf '%-10s %10.0f %12.1f MiB %11.4f\n' "$name" \
      "$(number tokens_per_s "$log" | median)" \
      "$(number activation_peak_bytes "$log" | sort -g | tail -n 1 | awk '{ print $1 / 1048576 }')" \
      "$(number loss "$log" | tail -n 20 | awk '{ sum += $1 } END { print sum / NR }')"
  done
  echo "(tokens/s is the median over $STEPS steps, final loss the mean of the last 20)"
  echo "logs and reports: $logs; open \"$logs/auto 30%.html\" in a browser"
}

# run_tests PRESET [ctest option...]: runs the preset's tests and keeps the summary for the end.
summaries=()
failed=0
run_tests() {
  local preset=$1 log=build/$1/ctest.log status=0
  shift
  echo "== tests: $preset"
  ctest --preset "$preset" -j "$jobs" "$@" 2>&1 | tee "$log" || status=$?
  [ "$status" -eq 0 ] || failed=1
  summaries+=("$preset: $(grep 'tests passed' "$log" || echo 'ctest failed')"
              "$(sed -n '/did not run:/,/^$/p; /tests FAILED:/,/^Errors/p' "$log" |
                 grep -E '^[[:space:]]+[0-9]+ - ' || true)")
}

test_all() {
  need "${PACKAGES[@]}" clang-16 libclang-rt-16-dev

  cmake --preset release "-DADACC_REFERENCE_DIR=${ADACC_REFERENCE_DIR:-}"
  cmake --build --preset release -j "$jobs"
  run_tests release

  # The compilers that `compile` tests call have been called above. This is the build that has
  # libFuzzer: the tests with the label `fuzz` run here, with ASan and UBSan of their own.
  cmake --preset clang "-DADACC_REFERENCE_DIR=${ADACC_REFERENCE_DIR:-}"
  cmake --build --preset clang -j "$jobs"
  run_tests clang -LE compile

  # The tests labelled `small`, as unity builds; under TSan those of them that have threads.
  local preset
  for preset in asan-ubsan tsan; do
    cmake --preset "$preset"
    cmake --build --preset "$preset" -j "$jobs"
    run_tests "$preset"
  done

  echo
  echo "== summary"
  printf '%s\n' "${summaries[@]}" | sed '/^$/d'
  exit "$failed"
}

[ $# -eq 1 ] || usage
case $1 in
  train) train ;;
  test) test_all ;;
  *) usage ;;
esac
