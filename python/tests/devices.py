# SPDX-License-Identifier: MIT
"""The devices that tests run on: the CPU, and a GPU or a pretended one (support/ptxrun/README.md, PyTorch without a GPU)."""
import os
import unittest

import adacc
import torch

try:
    import ptxrun_torch
except ImportError:
    ptxrun_torch = None  # a GPU, or none

# Otherwise each tensor is an allocation of the device, and nobody counts them.
COUNTED = "PYTORCH_NO_CUDA_MEMORY_CACHING" not in os.environ
DEVICES = ["cpu"] + ["cuda"] * (torch.cuda.is_available() and adacc.has_cuda_kernels)
# Those where bytes of tensors are counted.
COUNTED_DEVICES = DEVICES if COUNTED else ["cpu"]

has_device = unittest.skipUnless(torch.cuda.is_available(), "there is no CUDA device")
has_kernels = unittest.skipUnless(adacc.has_cuda_kernels, "this build of adacc has no kernels for CUDA (ADACC_KERNELS)")
is_counted = unittest.skipUnless(COUNTED, "budgets count what the caching allocator gives out")


def on_cuda(case):
    """A class of tests, skipped where no device runs the codecs' kernels."""
    return has_device(has_kernels(case))
