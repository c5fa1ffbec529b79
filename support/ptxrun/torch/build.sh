#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds what stands in the place of CUDA's libraries under a CUDA wheel of PyTorch: libcudart.so.13 and libcuda.so.1
# (the executor), PyTorch's operators on the CPU, and empty libraries for those of NVIDIA's that the wheel names.
#
#   build.sh PYTHON CUDA BUILT      an interpreter with torch; a toolkit of CUDA 13 (its headers); a folder
#
# Exits with 77, and says why, where there is no such torch. Only what is older than its source is built.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$1 cuda=$2 built=$3 ptxrun=$here/..

skip() {
  echo "PyTorch does not run on ptxrun: $1"
  exit 77
}
# Not imported: the wheel may be there without NVIDIA's libraries, and then it starts only on what is built here.
torch=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null) ||
  skip "$python has no torch (pip install --no-deps torch, and filelock typing-extensions sympy networkx jinja2 fsspec)"
[ -f "$torch/lib/libtorch_cuda.so" ] || skip "the torch of $python is built without CUDA"
readelf -d "$torch/lib/libtorch_cuda.so" | grep -qF '[libcudart.so.13]' ||
  skip "the torch of $python is not for CUDA 13, whose runtime ptxrun stands in for"
[ -f "$cuda/include/cuda.h" ] || skip "there are no headers of CUDA in $cuda/include"

mkdir -p "$built/empty"
cd "$built"
stale() { # target source...
  local target=$1 source
  shift
  for source in "$@" "$here/build.sh"; do if [ "$source" -nt "$target" ]; then return 0; fi; done
  return 1
}
symbols() { for library in "$torch"/lib/*.so; do nm -D --undefined-only "$library" 2>/dev/null; done | awk '{ print $NF }'; }

flags=(-std=c++20 -O2 -fPIC -ffp-contract=off -fno-strict-aliasing -isystem "$cuda/include")
objects=()
for name in api runtime kernels statistics driver torch/runtime; do
  object=${name//\//_}.o
  objects+=("$object")
  if stale "$object" "$ptxrun"/*.hpp "$ptxrun/$name.cpp"; then g++ "${flags[@]}" -c "$ptxrun/$name.cpp" -o "$object"; fi
done
if stale libcudart.so.13 "${objects[@]}" "$torch/lib/libtorch_cuda.so"; then
  # Every other function that PyTorch imports says its name and fails: 801 is cudaErrorNotSupported.
  { symbols | grep -F '@libcudart' | cut -d@ -f1
    nm -D --undefined-only "$torch/lib/libcaffe2_nvrtc.so" | grep -oE '\bcu[A-Z][A-Za-z0-9_]+'; } | sort -u >wanted
  nm "${objects[@]}" | awk '$2 == "T" { print $3 }' | sort -u >there
  { echo '#include <stdio.h>'
    comm -23 wanted there |
      sed 's/.*/int &(void) { fprintf(stderr, "ptxrun: & is not there\\n"); return 801; }/'; } >refused.c
  gcc -O1 -fPIC -c refused.c -o refused.o
  echo 'libcudart.so.13 { global: cuda*; __cuda*; cu*; ptxrun_*; local: *; };' >version
  g++ -shared -Wl,-soname,libcudart.so.13 -Wl,--version-script=version -o libcudart.so.13 "${objects[@]}" refused.o
  gcc -shared -Wl,--no-as-needed -Wl,-soname,libcuda.so.1 -o libcuda.so.1 -x c /dev/null -x none ./libcudart.so.13

  # NVIDIA's other libraries, empty: PyTorch starts with these alone.
  rm -f empty/*
  for library in "$torch"/lib/*.so; do readelf -d "$library" 2>/dev/null; done |
    grep -oE 'library: \[[^]]+' | cut -d[ -f2 | sort -u |
    grep -E '^lib(cu[a-z]+|nccl|nvrtc|nvshmem_host|cusparseLt)\.so' | grep -vE 'libcudart|libcuda\.' |
    while read -r name; do gcc -shared -Wl,-soname,"$name" -o "empty/$name" -x c /dev/null; done
  symbols | cut -d@ -f1 | sort -u | grep -E '^(cublas|cudnn|cusparse|cufft|cuFile|nccl|nvrtc|nvshmem|cupti|cusolver)' |
    sed 's/.*/int &(void) { return 1; }/' >all.c
  gcc -O1 -fPIC -shared all.c -o empty/all.so
fi
if stale operators.so "$here/operators.cpp"; then
  g++ -std=c++20 -O1 -fPIC -shared -w -isystem "$torch/include" -isystem "$cuda/include" "$here/operators.cpp" \
    -o operators.so -L"$torch/lib" -L. -Wl,--as-needed -lc10 -lc10_cuda -ltorch_cpu -l:libcudart.so.13
fi
