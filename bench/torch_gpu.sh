#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The Python package and its tests of CUDA tensors, on a GPU, in at most two minutes:
#
#   bash bench/torch_gpu.sh                    builds the extension, unless it is there, and runs the tests
#   bash bench/torch_gpu.sh build              the extension alone
#   bash bench/torch_gpu.sh test [NAME...]     the tests, or those that are named (test_cuda.Cuda.test_autocast)
#   bash bench/torch_gpu.sh run FILE...        a program of Python with the package
#
# bench/gpu_call.sh prepare makes the kernels, .gpu/adacc_kernels, where nvcc is. It may make the extension, too, for
# the Python and the torch of the GPU's machine: .gpu/torch-2.11/_native.*.so. Where the latter does not fit, or is not
# there, setup.py builds it (two minutes), for which Python's headers and a compiler are needed.
#
# From the environment: PYTHON (python3), whose torch it is; WORK (build/torch_gpu), a folder; KERNELS; SECONDS_EACH
# (30), of a test; PTXRUN, a folder that support/ptxrun/torch/build.sh has built: all runs on the executor instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
work=${WORK:-build/torch_gpu}
kernels=$(realpath -m "${KERNELS:-.gpu/adacc_kernels}")
python=$(command -v "${PYTHON:-python3}") || { echo "torch_gpu: there is no ${PYTHON:-python3}"; exit 77; }
executor=
[ -z "${PTXRUN-}" ] || executor=$(realpath "$PTXRUN")
mkdir -p "$work"
work=$(cd "$work" && pwd)

# on command...: on the executor if there is one.
on() {
  if [ -n "$executor" ]; then bash "$root/support/ptxrun/torch/on_ptxrun.sh" "$executor" "$@"; else "$@"; fi
}

build() {
  local ready begun=$SECONDS
  [ -f "$kernels" ] || {
    echo "torch_gpu: there are no kernels in $kernels: bash bench/gpu_call.sh prepare adacc_kernels, where nvcc is"
    return 1
  }
  # Not imported: that takes long where torch lies on a slow disk.
  ready=$("$python" - <<'PYTHON'
import importlib.util, pathlib, re, sysconfig
spec = importlib.util.find_spec("torch")
if spec is None:
    raise SystemExit("torch_gpu: there is no torch")
version = pathlib.Path(spec.submodule_search_locations[0], "version.py").read_text()
minor = re.search(r"__version__ = '([0-9]+\.[0-9]+)", version)[1]
print(f"torch-{minor}/_native{sysconfig.get_config_var('EXT_SUFFIX')}")
PYTHON
) || return 77
  rm -rf "$work/python"
  cp -r python "$work/python"
  if [ -f ".gpu/$ready" ]; then
    echo "torch_gpu: .gpu/$ready is there"
    cp ".gpu/$ready" "$work/python/src/adacc/"
    cp "$kernels" "$work/python/src/adacc/kernels.fatbin"
    return
  fi
  echo "torch_gpu: setup.py builds $ready, which is not in .gpu/"
  (cd "$work/python" && ADACC_KERNELS=$kernels ADACC_INCLUDE_DIR=$root/include \
    on "$python" setup.py -q build_ext --inplace >"$work/build_log" 2>&1) || { cat "$work/build_log"; return 1; }
  mkdir -p "$work/${ready%/*}"
  cp "$work/python/src/adacc/${ready#*/}" "$work/$ready"
  echo "torch_gpu: built in $((SECONDS - begun)) s"
}

# python_with arguments...: an interpreter that has the package.
python_with() { PYTHONPATH="$work/python/src${PYTHONPATH:+:$PYTHONPATH}" on "$python" "$@"; }

# A line for each test as it ends; a count at last. A test that hangs ends all, with the places where its threads are.
tests() {
  (cd python/tests && SECONDS_EACH=${SECONDS_EACH:-30} python_with - "$@" <<'PYTHON'
import faulthandler, os, sys, time, unittest

sys.path.insert(0, os.getcwd())
import torch

print(f"torch {torch.__version__} (CUDA {torch.version.cuda}) on "
      f"{torch.cuda.get_device_name() if torch.cuda.is_available() else 'no device'}", flush=True)


class Lines(unittest.TestResult):
    number, passed, bad = 0, 0, 0

    def startTest(self, test):
        super().startTest(test)
        Lines.number += 1
        self.begun, self.how = time.monotonic(), "Passed"
        print(f"      Start {Lines.number:2}: {test.id()}", flush=True)
        faulthandler.dump_traceback_later(int(os.environ["SECONDS_EACH"]), exit=True)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        Lines.passed += self.how == "Passed"
        Lines.bad += self.how == "***Failed"
        print(f"{Lines.number:2} Test: {test.id():80} {self.how} {time.monotonic() - self.begun:6.2f} sec", flush=True)
        super().stopTest(test)

    def failed(self, test, error):
        self.how = "***Failed"
        print(self._exc_info_to_string(error, test), flush=True)

    def addError(self, test, error):
        super().addError(test, error)
        self.failed(test, error)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.failed(test, error)

    def addSubTest(self, test, part, error):
        super().addSubTest(test, part, error)
        if error is not None:
            print(part, flush=True)
            self.failed(test, error)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.how = f"Skipped ({reason})"


result = Lines()
load = unittest.defaultTestLoader
import test_again_budgets, test_cuda, test_cuda_budgets, test_cuda_graphs, test_cuda_rows, test_cuda_streams

suite = unittest.TestSuite()
if sys.argv[1:]:
    suite.addTests(load.loadTestsFromNames(sys.argv[1:]))
else:
    for module in (test_cuda, test_cuda_rows, test_cuda_streams, test_cuda_graphs, test_cuda_budgets, test_again_budgets):
        suite.addTests(load.loadTestsFromModule(module))
suite.run(result)
print(f"{Lines.passed} passed, {Lines.bad} failed, {len(result.skipped)} skipped")
# 77: there is no device, or there are no kernels.
sys.exit(1 if Lines.bad > 0 else 77 if Lines.passed == 0 else 0)
PYTHON
  )
}

case ${1-} in
  '') build && tests ;;
  build) build ;;
  test) shift; tests "$@" ;;
  run) shift; python_with "$@" ;;
  *) sed -n '3,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
