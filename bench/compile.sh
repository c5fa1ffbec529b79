#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What adacc costs a compiler, as a table:
#
#   bash bench/compile.sh [runs]     # 5 by default; the fastest of them counts
#
# Seconds are those of the processor, user and system together, which a busy machine disturbs less
# than it does those of the clock. g++ (CXX names another) compiles with -O0, nvcc (where there is
# one) for one architecture. "over" is what the line costs beyond the line that it names.
set -euo pipefail
export LC_ALL=C
include=$(cd "$(dirname "${BASH_SOURCE[0]}")/../include" && pwd)
runs=${1:-5}
cxx=${CXX:-$(command -v g++-12 || echo g++)}
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# functors: what the layers are made of.
functors() {
  cat <<'CODE'
#include <adacc/adacc.hpp>
using namespace adacc;
template <int kind>
struct Scale {
  static constexpr auto backward_reads = kind % 4 == 0 ? reads::input : reads::output;
  float factor = 1 + kind;
  void forward(Cpu&, View<const float> x, View<float> y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = factor * x[i];
  }
  void backward(Cpu&, View<const float>, View<const float> dy, View<float> dx) const {
    for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = factor * dy[i];
  }
};
struct Sum {
  double forward(Cpu&, const LossCall<float>&) const { return 0; }
  double forward_backward(Cpu&, const LossCall<float>&) const { return 0; }
};
CODE
}

# chain LAYERS KINDS USE: a network of so many layers, of so many types of functors, under three
# policies, and what is done with it.
chain() {
  functors
  echo "using Net = Network<Sequential<"
  local i separator= policies=('' ', Retain' ', Recompute' ', Recompute')
  for ((i = 0; i < $1; ++i)); do
    echo "$separator Layer<Scale<$((i % $2))>${policies[i % 4]}>"
    separator=,
  done
  echo ">, Sum>;"
  echo "$3"
}
peak='constexpr std::size_t peak = peak_bytes<Net>(Shape(8, 16));
static_assert(peak > 8 * 16 * 4);'
step='Result<Step<>> make(const Net& net) {
  Result<Program> program = make_program(net, Shape(8, 16));
  return program ? Step<>::make(net, *program) : Result<Step<>>(program.error);
}'

: >empty.cpp
echo '#include <adacc/adacc.hpp>' >umbrella.cpp
for layers in 64 200; do
  chain $layers 4 "$peak" >peak$layers.cpp
  chain $layers 4 "$step" >step$layers.cpp
  chain $layers $layers "$step" >types$layers.cpp
  { functors; for ((i = 0; i < layers; ++i)); do echo "template struct Scale<$i>;"; done; } \
    >alone$layers.cpp
done

# seconds COMMAND...: the fewest of all runs.
seconds() {
  local run
  TIMEFORMAT='%U %S'
  for ((run = 0; run < runs; ++run)); do
    { time "$@" >/dev/null 2>errors || { cat errors >&2; exit 1; }; } 2>&1
  done | awk '{ t = $1 + $2; if (NR == 1 || t < least) least = t } END { printf "%.2f", least }'
}

# table NAME COMMAND...: compiles every source by COMMAND.
table() {
  local name=$1 empty umbrella layers alone
  shift
  empty=$(seconds "$@" empty.cpp)
  umbrella=$(seconds "$@" umbrella.cpp)
  row() { awk -v t="$2" -v o="$3" -v what="$1" -v over="$4" \
    'BEGIN { printf "%-40s %8.2f s %8.2f s over %s\n", what, t, t - o, over }'; }
  printf '\n%s\n' "$name"
  printf '%-40s %8.2f s\n' 'an empty file' "$empty"
  row 'the umbrella' "$umbrella" "$empty" 'an empty file'
  for layers in 64 200; do
    row "$layers layers, their peak as a constant" "$(seconds "$@" peak$layers.cpp)" "$umbrella" \
      'the umbrella'
    row "$layers layers and a Step of them" "$(seconds "$@" step$layers.cpp)" "$umbrella" \
      'the umbrella'
    alone=$(seconds "$@" alone$layers.cpp)
    row "$layers types of functors, in no network" "$alone" "$umbrella" 'the umbrella'
    row "$layers layers of these types, and a Step" "$(seconds "$@" types$layers.cpp)" "$alone" \
      'the functors alone'
  done
}

table "$($cxx --version | head -n 1), -O0" "$cxx" -std=c++20 -O0 "-I$include" -c -o /dev/null
if [ -n "$nvcc" ]; then
  for source in *.cpp; do cp "$source" "${source%.cpp}.cu"; done
  table "$("$nvcc" --version | grep release), -arch=sm_80" \
    "$nvcc" -std=c++20 -arch=sm_80 -x cu "-I$include" -c -o out.o
fi
