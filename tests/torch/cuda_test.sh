#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Saved tensors on CUDA devices without a GPU: the package in python/ under an interpreter's CUDA wheel of torch, on the
# executor of PTX (support/ptxrun/README.md). Streams come further in several orders.
#
#   cuda_test.sh SOURCE WORK NVCC     the repository; a folder for what is built; the compiler of the kernels
#
# PYTHON in the environment names the interpreter, SEEDS is the number of orders of streams (4), MODULES that of random
# modules under budgets (12): `SEEDS=100 MODULES=200` takes hours, and CI runs a sample. Exits with 77, and says why, where
# there is no such torch.
set -euo pipefail
source=$1 work=$2 nvcc=$3
python=$(command -v "${PYTHON:-python3}") || { echo "CUDA tensors are not tested: there is no ${PYTHON:-python3}"; exit 77; }
"$python" -c 'import setuptools, sys; sys.exit(int(setuptools.__version__.split(".")[0]) < 77)' 2>/dev/null ||
  { echo "CUDA tensors are not tested: the setuptools of $python is older than 77"; exit 77; }
mkdir -p "$work"
bash "$source/support/ptxrun/torch/build.sh" "$python" "$(dirname "$nvcc")/.." "$work/ptxrun"
rm -rf "$work/python"
cp -r "$source/python" "$work/python"
# PTX alone: the executor runs no other code of the file.
(cd "$work/python" && ADACC_NVCC=$nvcc ADACC_CUDA_CODE= ADACC_INCLUDE_DIR=$source/include \
  bash "$source/support/ptxrun/torch/on_ptxrun.sh" "$work/ptxrun" \
  "$python" setup.py -q build_ext --inplace >"$work/build_log" 2>&1) || { cat "$work/build_log"; exit 1; }

export PYTHONPATH=$work/python/src OMP_NUM_THREADS=1
run() { # variable=value... -- test...
  local variables=()
  while [ "$1" != -- ]; do variables+=("$1"); shift; done
  shift
  echo "== ${variables[*]} $*"
  (cd "$work/python/tests" && env "${variables[@]}" bash "$source/support/ptxrun/torch/on_ptxrun.sh" "$work/ptxrun" \
    "$python" -m unittest "$@")
}
for seed in $(seq 1 "${SEEDS:-4}"); do
  run PTXRUN_LATE=random PTXRUN_SEED="$seed" -- test_cuda test_cuda_rows test_cuda_streams test_again
done
run PTXRUN_LATE=1 -- test_cuda_streams test_cuda_graphs  # nothing is early: random orders find less
run PTXRUN_LATE=all PTXRUN_DEVICES=2 -- test_cuda test_cuda_rows test_cuda_streams test_cuda_graphs test_cuda_budgets test_again_budgets
# What bench/gpu_call.sh runs on a GPU, at tiny sizes.
policies() {
  PYTHON=$python WORK=$work PTXRUN=$work/ptxrun bash "$source/bench/torch_gpu.sh" run \
    "$source/bench/peers/torch_policies_cuda.py" --rehearse --rounds 1 --json "$work/policies.jsonl" "$@"
}
rm -f "$work/policies.jsonl"
policies --rows plain,checkpoint,tolerated,again_lossless,checkpoint_tolerated,save_on_cpu,compiled | tee "$work/policies"
for row in plain checkpoint tolerated again_lossless checkpoint_tolerated save_on_cpu; do grep -qE "^$row  +[0-9.]+" "$work/policies"; done
grep -qF 'compiled: compiled kernels are machine code' "$work/policies"

run PTXRUN_RACES=1 PTXRUN_STRICT=1 PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- test_cuda test_cuda_rows test_cuda_budgets test_again
# Random modules under budgets, others for each order of streams.
for first in $(seq 12 6 $((11 + ${MODULES:-12}))); do
  run PTXRUN_LATE=random PTXRUN_SEED="$first" ADACC_CUDA_MODULES="$first,6" -- \
    test_cuda_budgets.CudaBudgets.test_random_modules_are_within_their_budgets
done
