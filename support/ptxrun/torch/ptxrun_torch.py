# SPDX-License-Identifier: MIT
"""Import it first in a program that on_ptxrun.sh runs: PyTorch's operators on the pretended device."""
import atexit
import ctypes
import os
import time

import torch

_folder = os.environ["PTXRUN_TORCH"]
torch.ops.load_library(os.path.join(_folder, "operators.so"))
torch.backends.cudnn.enabled = False  # convolutions then ask for operators that the CPU has, too
# PyTorch's device thread may still be at the end of a backward pass, and asks for the interpreter's lock: when the
# lock is gone, the process is aborted (so it is on a GPU).
atexit.register(time.sleep, 0.2)

_runtime = ctypes.CDLL(os.path.join(_folder, "libcudart.so.13"))
_runtime.ptxrun_waits.restype = ctypes.c_long


def waits():
    """How often the host has waited for a device, but for operators that the host computes."""
    return _runtime.ptxrun_waits()
