#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# All that a GPU has to say about adacc, in one command of at most eight minutes, for a GPU that is lent for minutes:
#
#   bash bench/gpu_call.sh prepare [PROGRAM...]   where nvcc is: builds the programs into .gpu/, for sm_90
#   bash bench/gpu_call.sh run [PART...]          where the GPU is: runs the parts, or those that are named
#   bash bench/gpu_call.sh rehearse [PART...]     without a GPU: the same parts at tiny sizes, on the executor
#   bash bench/gpu_call.sh page FOLDER            a page for bench/results/, made of what a run wrote
#
# Parts, in this order, each under a limit of its own, none of which stops the next:
#   ceilings   copies within the device and over the link, one product
#   correct    the programs of tests/cuda, which compare with the CPU, and mistakes at set-up
#   probe      products under eight heuristics and three workspaces
#   steps      GPT-2 124M beside PyTorch: retain, recompute, 50, 30 and 15 %, captured or not
#   tiles      the head by 256 to 8192 rows at a time, and by as many as are chosen
#   ncu        kernels of one step of each
#   kernels    attention, layers, codecs with outliers
#   large      a Llama of 1.24 G weights, and GPT-2 1.5B beside PyTorch
#   races      compute-sanitizer's racecheck and synccheck of training steps
#   largest    the largest batches of 124M
#   torch      the Python package's tests of CUDA tensors, with PyTorch on the GPU (torch_gpu.sh)
#   policies   GPT-2 1.5B by PyTorch with this package's hooks and without (peers/torch_policies_cuda.py)
#
# Written as results come, to the folder that OUT names, or to build/gpu_call: log.txt, results.jsonl, and table.txt,
# which is also printed last. SECONDS_IN_ALL (480) bounds a run; what there is no time left for is said. Beside .gpu/
# (not in git) a run needs nothing of the build, but for PyTorch where parts compare with it.
#
# From the environment: OUT; SECONDS_IN_ALL; PYTHON, whose torch is compared with; GXX, to prepare with; CUDA_CODE
# (sm_90), to prepare for; QUICK_BUILD (build/quick), the build that has the executor's programs; TORCH_PYTHON, to prepare
# with: an interpreter with the version and the torch of the GPU's machine, for which the extension is built here; TORCH_ON,
# where that torch does not start by itself: a folder that support/ptxrun/torch/build.sh has built.
set -uo pipefail
export LC_ALL=C PYTHONUNBUFFERED=1
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

PARTS=(ceilings correct probe steps tiles ncu kernels large races largest torch policies)
# Programs of .gpu/: their targets, and places in a build. There they have the name that the place ends with.
PROGRAMS=(cuda_link_probe:bench/link_probe
          cuda_codec_run:tests/cuda/codec_run_gpu
          cuda_layers:tests/cuda/layers_gpu
          cuda_steps:tests/cuda/steps_gpu
          cuda_stash:tests/cuda/stash_gpu
          cuda_tape:tests/cuda/tape_gpu
          cuda_setup:tests/cuda/setup_gpu
          cuda_product_probe:bench/product_probe
          train_gpt_cuda:examples/train_gpt_cuda
          cuda_llama:bench/llama_cuda
          cuda_attention_bench:bench/attention_cuda_bench
          cuda_layer_bench:bench/layer_cuda_bench
          cuda_codec_bench:bench/codec_cuda_bench
          cuda_python_kernels:bench/adacc_kernels)
MOST_BYTES=$((60 << 20))  # of .gpu/, which travels
# Mistakes at set-up that a machine of one GPU can show.
MISTAKES=(head_size host_arena host_parameters short_gradients no_loss host_loss host_input products copy_to_host
          copy_to_device host_activation host_blob host_mask host_bf16 host_norm few_places host_moments
          store_of_another_stream stores)

usage() {
  sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

# ---- prepare ----

# prepare [PROGRAM...]: all of them, or those that are named, for a processor of x86-64-v3 and devices of CUDA_CODE.
# They carry the C++ library with them; CUDA's and cuBLASLt are the machine's.
prepare() {
  local entry name place targets=() size names=("${PROGRAMS[@]##*/}")
  for name in "$@"; do
    if [[ " ${names[*]} " != *" $name "* ]]; then
      echo "gpu_call: there is no program $name: ${names[*]}" >&2
      return 2
    fi
  done
  for entry in "${PROGRAMS[@]}"; do
    if [ $# -eq 0 ] || [[ " $* " == *" ${entry##*/} "* ]]; then targets+=("${entry%%:*}"); fi
  done
  cmake --preset release -B build/gpu "-DCMAKE_CXX_COMPILER=${GXX:-g++}" -DCMAKE_CXX_FLAGS=-march=x86-64-v3 \
    "-DCMAKE_EXE_LINKER_FLAGS=-static-libstdc++ -static-libgcc" "-DADACC_COMPONENTS=planner;eigen" \
    "-DADACC_CUDA_CODE=${CUDA_CODE:-sm_90}" -DADACC_CUDA_PTX=OFF \
    "-DADACC_NVCC_LINK=-Xcompiler=-static-libstdc++,-static-libgcc" -DADACC_DOCUMENT_BLOCKS=OFF || return
  cmake --build build/gpu --target "${targets[@]}" || return
  mkdir -p .gpu
  for place in "${PROGRAMS[@]#*:}"; do
    [ -e "build/gpu/$place" ] || continue
    cp "build/gpu/$place" .gpu/ || return
    [ "${place##*/}" = adacc_kernels ] || strip ".gpu/${place##*/}" || return
  done
  if [ -n "${TORCH_PYTHON-}" ] && [ -f .gpu/adacc_kernels ]; then
    rm -rf .gpu/torch-*
    PYTHON=$TORCH_PYTHON PTXRUN=${TORCH_ON-} WORK=build/gpu/torch bash bench/torch_gpu.sh build || return
    cp -r build/gpu/torch/torch-* .gpu/ && strip .gpu/torch-*/* || return
  fi
  {
    git rev-parse --short HEAD 2>/dev/null || echo unknown
    [ -z "$(git status --porcelain 2>/dev/null | head -n 1)" ] || echo "with changes"
  } | paste -sd ' ' >.gpu/commit
  size=$(du -sb .gpu | cut -f 1)
  echo "gpu_call: .gpu/ has $size bytes"
  if [ "$size" -gt "$MOST_BYTES" ]; then
    echo "gpu_call: that is more than $MOST_BYTES bytes, which may travel: prepare fewer programs" >&2
    return 1
  fi
}

# ---- run, rehearse ----

rehearses=no
part=

# is_there NAME: whether the program can be run.
is_there() { [ -x "$(program "$1")" ]; }

# program NAME: its path. The executor's are called without the ending that says where they run.
program() {
  local name=${1%_gpu}
  if [ "$rehearses" = yes ]; then echo "$executor/ptxrun_${name%_cuda}"; else echo ".gpu/$1"; fi
}

# left: seconds of the part, or of the run if these are fewer.
left() {
  local of_part=$((part_ends - SECONDS)) of_run=$((run_ends - SECONDS))
  echo $((of_part < of_run ? of_part : of_run))
}

# record NAME STATUS SECONDS
record() {
  printf '{"part": "%s", "name": "%s", "status": "%s", "seconds": %d}\n' "$part" "$1" "$2" "$3" >>"$out/results.jsonl"
}

# takes NAME SECONDS COMMAND...: runs it, at most so long; its output goes to the log as it comes, and its name, status
# and time to the results. It never fails.
takes() {
  local name=$1 most=$2 status=0 begun=$SECONDS time_left
  shift 2
  time_left=$(left)
  [ "$most" -le "$time_left" ] || most=$time_left
  [ "$rehearses" = no ] || [ "$most" -le "$REHEARSED_SECONDS" ] || most=$REHEARSED_SECONDS
  printf '\n== %s: %s\n' "$part" "$name" >>"$out/log.txt"
  if [ "$most" -lt 3 ]; then
    echo "not run: there is no time left" >>"$out/log.txt"
    record "$name" "not run, no time left" 0
    return
  fi
  printf '$ %s\n' "$*" >>"$out/log.txt"
  timeout -k 5 "$most" "$@" >>"$out/log.txt" 2>&1 </dev/null || status=$?
  case $status in
    0) ;;
    77) status="skipped" ;;
    124 | 137) status="stopped after $most s" ;;
    *) status="failed with $status" ;;
  esac
  [ "$status" = 0 ] && status=fine
  [ "$status" = fine ] || echo "$status" >>"$out/log.txt"
  record "$name" "$status" $((SECONDS - begun))
  printf 'gpu_call: %-10s %-28s %4d s  %s\n' "$part" "$name" $((SECONDS - begun)) "$status"
}

# takes_program NAME SECONDS PROGRAM ARGUMENT...: the same of one of ours, if it is there.
takes_program() {
  local name=$1 most=$2 program=$3
  shift 3
  if is_there "$program"; then
    takes "$name" "$most" "$(program "$program")" "$@"
  else
    printf '\n== %s: %s\nnot run: there is no %s\n' "$part" "$name" "$(program "$program")" >>"$out/log.txt"
    record "$name" "not run, no such program" 0
  fi
}

# beside_torch NAME SECONDS ARGUMENT...: train_gpt and PyTorch.
beside_torch() {
  local name=$1 most=$2 more=()
  shift 2
  [ "$rehearses" = no ] || more=(--rehearse)
  takes "$name" "$most" "$python" bench/peers/gpt2_cuda.py "$(program train_gpt_cuda)" --json "$out/results.jsonl" \
    "$@" "${more[@]}"
}

part_ceilings() {
  takes device 5 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,power.limit \
    --format=csv
  takes libraries 5 ldd "$(program product_probe)"
  if [ "$rehearses" = yes ]; then
    takes_program link 10 link_probe --json "$out/results.jsonl" --mib 1
    takes_program product 10 product_probe --json "$out/results.jsonl" --rehearse --rounds 2 square
  else
    takes_program link 10 link_probe --json "$out/results.jsonl"
    takes_program product 10 product_probe --json "$out/results.jsonl" square
  fi
}

part_correct() {
  local name
  for name in codec_run layers steps stash tape; do takes_program "$name" 40 "${name}_gpu"; done
  takes_program setup 10 setup_gpu fine
  for name in "${MISTAKES[@]}"; do takes_program "mistake $name" 10 setup_gpu "$name"; done
}

part_probe() {
  local more=()
  [ "$rehearses" = no ] || more=(--rehearse --rounds 2)
  takes_program head 25 product_probe --json "$out/results.jsonl" "${more[@]}" head
  takes_program layers 25 product_probe --json "$out/results.jsonl" "${more[@]}" layer
}

# Ours first: PyTorch's compiler takes most of the time.
part_steps() {
  local size=(--size 124M --batch 8 --folder "$work/124M")
  beside_torch adacc 120 "${size[@]}" --row-seconds 40 --torch \
    --ours retain retain+tuned retain+queued recompute 50% 50%+queued 30% 15%
  beside_torch torch 150 "${size[@]}" --row-seconds 90 --ours --torch plain whole checkpoint
}

# The rows named alone have the tile that is chosen, which the column says.
part_tiles() {
  local size=(--size 124M --batch 8 --steps 9 --folder "$work/124M" --row-seconds 30 --torch)
  beside_torch "head tiles" 90 "${size[@]}" \
    --ours retain retain+head256 retain+head512 retain+head1024 retain+head2048 retain+head4096 retain+head8192
  beside_torch "head tiles, budget" 60 "${size[@]}" --ours 30% 30%+head256 30%+head1024 30%+head2048
}

part_ncu() {
  local size=(--size 124M --batch 8 --steps 3 --folder "$work/124M" --ncu ncu --row-seconds 60)
  beside_torch adacc 90 "${size[@]}" --torch --ours retain 30%
  beside_torch torch 120 "${size[@]}" --ours --torch whole plain
}

part_kernels() {
  takes_program attention 30 attention_cuda_bench
  takes_program "attention 8 12 1024 64" 30 attention_cuda_bench 8 12 1024 64
  takes_program layers 30 layer_cuda_bench --rounds 15
  takes_program codecs 60 codec_cuda_bench
}

# llama NAME SECONDS ARGUMENT...
llama() {
  local name=$1 most=$2 more=()
  shift 2
  [ "$rehearses" = no ] || more=(--layers 2 --channels 32 --heads 4 --kv-heads 2 --hidden 48 --vocab 300 --batch 2
                                 --seq 16 --steps 4)
  takes_program "$name" "$most" llama_cuda --json "$out/results.jsonl" "$@" "${more[@]}"
}

part_large() {
  local share=30%
  [ "$rehearses" = no ] || share=60% # such a small model needs more
  llama "Llama 1B" 30
  llama "Llama 1B, recompute" 20 --policy recompute --batch 16
  llama "Llama 1B, budget" 30 --policy "$share" --batch 8
  llama "Llama 1B, lora" 20 --lora 16 --batch 8
  local size=(--size 1.5B --batch 4 --steps 6 --folder "$work/1.5B" --row-seconds 60)
  beside_torch adacc 90 "${size[@]}" --torch --ours retain 50% 30%
  beside_torch torch 120 "${size[@]}" --ours --torch plain checkpoint
}

part_races() {
  local tool
  for tool in racecheck synccheck; do
    if is_there steps_gpu; then
      takes "$tool of steps" 150 compute-sanitizer --tool "$tool" --error-exitcode 1 "$(program steps_gpu)" few
    else
      takes_program "$tool of steps" 60 steps_gpu few
    fi
  done
}

part_largest() {
  beside_torch "largest batches" 240 --size 124M --batch 8 --steps 3 --folder "$work/124M" --largest 256 \
    --ours retain 30% --torch plain
}

# takes_torch NAME SECONDS ARGUMENT...: torch_gpu.sh; in a rehearsal with what the test torch_cuda has built.
takes_torch() {
  local name=$1 most=$2 with=("PYTHON=$python" "WORK=$out/torch")
  shift 2
  [ "$rehearses" = no ] || with=("PYTHON=$python" "WORK=$executor/../torch/cuda" "PTXRUN=$executor/../torch/cuda/ptxrun")
  takes "$name" "$most" env "${with[@]}" bash bench/torch_gpu.sh "$@"
}

# needs_extension: builds it, unless it is there.
needs_extension() {
  if [ "$rehearses" = yes ]; then
    takes extension 5 test -d "$executor/../torch/cuda/python"
  elif [ ! -d "$out/torch/python" ]; then
    takes_torch extension 180 build
  fi
}

part_torch() {
  needs_extension
  takes_torch tests 100 test
}

# Rows of one command are beside each other; PyTorch's compiler takes most of the second's time.
part_policies() {
  local run=(run bench/peers/torch_policies_cuda.py --json "$out/results.jsonl" --row-seconds 40)
  if [ "$rehearses" = yes ]; then run+=(--rehearse); else run+=(--size 1.5B --batch 8); fi
  needs_extension
  takes_torch rows 150 "${run[@]}" --rows \
    plain,checkpoint,tolerated,int8,int4,again_lossless,again_tolerated,checkpoint_tolerated,budget_50%,budget_30%,budget_20%,save_on_cpu
  takes_torch "no casts held" 60 "${run[@]}" --rounds 1 --no-cast-cache --rows plain,checkpoint,budget_50%,budget_30%
  takes_torch compiled 120 "${run[@]}" --rounds 1 --rows compiled,compiled_tolerated,torch_50%
}

# Seconds of each part, at most.
limit() {
  case $1 in
    ceilings) echo 30 ;;
    correct) echo 120 ;;
    probe) echo 45 ;;
    steps) echo 210 ;;
    tiles) echo 150 ;;
    ncu) echo 150 ;;
    large) echo 200 ;;
    kernels) echo 120 ;;
    races) echo 180 ;;
    torch) echo 240 ;;
    policies) echo 330 ;;
    *) echo 240 ;;
  esac
}

# In the place of a GPU's tools. ncu: the command, and times of kernels of two steps.
stand_ins() {
  mkdir -p "$work/tools"
  cat >"$work/tools/nvidia-smi" <<'TOOL'
#!/bin/sh
echo "no GPU, a rehearsal: $*"
TOOL
  cat >"$work/tools/compute-sanitizer" <<'TOOL'
#!/bin/sh
[ "$1" = --tool ] && [ "$3" = --error-exitcode ] || exit 2
shift 4
exec "$@"
TOOL
  cat >"$work/tools/ncu" <<'TOOL'
#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    --clock-control | --metrics | --print-units | --profile-from-start) shift 2 ;;
    --csv) shift ;;
    *) break ;;
  esac
done
"$@" || exit
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
for name in adamw_kernel gelu adamw_kernel; do
  echo "\"0\",\"$name<float>(int)\",\"gpu__time_duration.sum\",\"ns\",\"1,504\""
done
TOOL
  chmod +x "$work"/tools/*
  PATH=$work/tools:$PATH
}

# run [PART...]
run() {
  local name chosen=("$@") status
  for name in "$@"; do
    if [[ " ${PARTS[*]} " != *" $name "* ]]; then
      echo "gpu_call: there is no part $name: ${PARTS[*]}" >&2
      return 2
    fi
  done
  [ $# -gt 0 ] || chosen=("${PARTS[@]}")
  out=${OUT:-build/gpu_call}
  python=${PYTHON:-python3}
  mkdir -p "$out" || return
  rm -f "$out"/{log.txt,results.jsonl,table.txt}
  work=$(mktemp -d) || return
  # shellcheck disable=SC2064  # now
  trap "rm -rf '$work'" EXIT
  if [ "$rehearses" = yes ]; then
    executor=${QUICK_BUILD:-build/quick}/tests/cuda
    REHEARSED_SECONDS=30
    stand_ins
  else
    local folder=${CUDA_HOME:-/usr/local/cuda}/lib64  # of libraries that programs built elsewhere ask for by name
    [ ! -d "$folder" ] || export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    if [ ! -d .gpu ]; then
      echo "gpu_call: there is no .gpu/ here: bash bench/gpu_call.sh prepare makes it, where nvcc is" >&2
      return 1
    fi
  fi
  run_ends=$((SECONDS + ${SECONDS_IN_ALL:-480} - 5))
  {
    echo "commit $(cat .gpu/commit 2>/dev/null || git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    echo "$(date --utc +'%Y-%m-%d %H:%M') UTC, $(uname -sr), $(nproc) processors"
  } >"$out/log.txt"
  # PyTorch is read from a slow disk meanwhile.
  if [[ " ${chosen[*]} " =~ " steps "|" tiles "|" ncu "|" large "|" torch "|" policies " ]]; then
    "$python" -c 'import torch' >/dev/null 2>&1 &
  fi
  for part in "${PARTS[@]}"; do
    [[ " ${chosen[*]} " == *" $part "* ]] || continue
    part_ends=$((SECONDS + $(limit "$part")))
    "part_$part"
  done
  "$python" bench/gpu_page.py table "$out" | tee "$out/table.txt"
}

case ${1-} in
  prepare) shift; prepare "$@" ;;
  run) shift; run "$@" ;;
  rehearse) shift; rehearses=yes; run "$@" ;;
  page) [ $# -eq 2 ] || usage; "${PYTHON:-python3}" bench/gpu_page.py page "$2" ;;
  *) usage ;;
esac
