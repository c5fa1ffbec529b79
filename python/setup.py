# SPDX-License-Identifier: MIT
"""Builds adacc._native from the headers of adacc: a checkout's, an sdist's own, or those in ADACC_INCLUDE_DIR.

A wheel is for one minor version of torch, the one it is built against, and asks for it. An sdist carries the
headers that the module includes.
"""
import os
import pathlib
import re
import shutil

import torch
from setuptools import setup
from setuptools.command.sdist import sdist
from torch.utils.cpp_extension import BuildExtension, CppExtension

here = pathlib.Path(__file__).resolve().parent
source = "src/adacc/native.cpp"
folders = [here / "include", here.parent / "include"]
if "ADACC_INCLUDE_DIR" in os.environ:
    folders = [pathlib.Path(os.environ["ADACC_INCLUDE_DIR"]).resolve()]
include = next((folder for folder in folders if (folder / "adacc/adapter/torch.hpp").is_file()), None)
if include is None:
    raise SystemExit("adacc's headers are not in " + " or ".join(map(str, folders)) +
                     ": build from a checkout or an sdist, or set ADACC_INCLUDE_DIR")


def headers():
    """All headers that the module includes, directly or not; paths below `include`."""
    found, left = {pathlib.Path("adacc/adapter/torch.hpp")}, [here / source, include / "adacc/adapter/torch.hpp"]
    while left:
        file = left.pop()
        for name in re.findall(r'^[ \t]*# *include *[<"]([^>"]+)[>"]', file.read_text(encoding="utf-8"), re.MULTILINE):
            path = include / name if name.startswith("adacc/") else file.parent / name
            if include not in path.resolve().parents or not path.is_file():
                continue  # of the system or of torch
            path = path.resolve()
            if path.relative_to(include) not in found:
                found.add(path.relative_to(include))
                left.append(path)
    return sorted(found)


class SdistWithHeaders(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for header in headers():
            target = pathlib.Path(base_dir, "include", header)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(include / header, target)
        for licence in (include.parent / "LICENSE", here / "LICENSE"):
            if licence.is_file():
                shutil.copyfile(licence, pathlib.Path(base_dir, "LICENSE"))
                break


# Kernels for CUDA tensors, made by nvcc of src/adacc/kernels.cu (its head has the command), here or elsewhere: the
# machine that installs the wheel needs no compiler.
if "ADACC_KERNELS" in os.environ:
    kernels = pathlib.Path(os.environ["ADACC_KERNELS"])
    if not kernels.is_file():
        raise SystemExit(f"ADACC_KERNELS names {kernels}, and there is no such file")
    shutil.copyfile(kernels, here / "src/adacc/kernels.fatbin")

def cuda_headers():
    """The folder of CUDA's runtime's headers, for a torch with CUDA: with it, budgets on devices are built. They are in
    the wheel nvidia-cuda-runtime, which torch's asks for, or in a toolkit."""
    if torch.version.cuda is None:
        return []
    major = torch.version.cuda.split(".")[0]
    packages = pathlib.Path(torch.__file__).resolve().parent.parent / "nvidia"
    found = [packages / f"cu{major}/include", packages / "cuda_runtime/include",
             pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")]
    return [str(folder) for folder in found if (folder / "cuda_runtime_api.h").is_file()][:1]


# OpenMP's calls are left to the runtime that torch brings: one more would have threads of its own, and
# the machine that installs a wheel might have none.
flags = ["-std=c++20", "-O3", "-g0", "-fopenmp", "-Wall"]
# Codecs are loops that a compiler vectorizes: for all processors, or for this one alone.
if os.environ.get("ADACC_NATIVE", "0") not in ("", "0"):
    flags.append("-march=native")

# One source of the version, which the module says as well: core/config.hpp.
version = re.findall(r"^#define ADACC_VERSION_(?:MAJOR|MINOR|PATCH) ([0-9]+)$",
                     (include / "adacc/core/config.hpp").read_text(), re.MULTILINE)

setup(
    version=".".join(version),
    install_requires=["torch==" + ".".join(torch.__version__.split(".")[:2]) + ".*"],
    ext_modules=[CppExtension("adacc._native", [source], include_dirs=[str(include), *cuda_headers()], extra_compile_args=flags)],
    cmdclass={"build_ext": BuildExtension, "sdist": SdistWithHeaders},
)
