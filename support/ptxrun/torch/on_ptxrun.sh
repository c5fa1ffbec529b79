#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs a program of PyTorch on the pretended device that build.sh has built.
#
#   on_ptxrun.sh BUILT program argument...
set -euo pipefail
export PTXRUN_TORCH=$1 PTXRUN_MEMORY=${PTXRUN_MEMORY:-$((4 << 30))}
export PYTHONPATH=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)${PYTHONPATH:+:$PYTHONPATH}
shift
LD_PRELOAD="$PTXRUN_TORCH/libcudart.so.13 $PTXRUN_TORCH/libcuda.so.1 $(echo "$PTXRUN_TORCH"/empty/*.so*)" exec "$@"
