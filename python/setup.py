# SPDX-License-Identifier: MIT
"""Builds adacc._native from the headers of adacc: a checkout's, an sdist's own, or those in ADACC_INCLUDE_DIR.

A wheel is for one minor version of torch, the one it is built against, and asks for it. It has kernels for CUDA tensors
if nvcc is where it is built, and torch has CUDA. An sdist carries the headers that the module and the kernels include.
"""
import os
import pathlib
import re
import shutil
import subprocess

import torch
from setuptools import setup
from setuptools.command.build_py import build_py
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


def headers(sources):
    """All headers that these files include, directly or not; paths below `include`."""
    found, left = set(), list(sources)
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
        all_of_it = include / "adacc/adapter/torch.hpp"  # setup.py looks for that one
        for header in headers([here / source, kernels_source, all_of_it]) + [all_of_it.relative_to(include)]:
            target = pathlib.Path(base_dir, "include", header)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(include / header, target)
        for licence in (include.parent / "LICENSE", here / "LICENSE"):
            if licence.is_file():
                shutil.copyfile(licence, pathlib.Path(base_dir, "LICENSE"))
                break


# Code of the kernels for CUDA tensors: for these devices and those of a later minor version, and PTX, which the driver
# compiles for all later ones. Where nvcc is older than a device, PTX alone serves it. ADACC_CUDA_CODE has others, or none.
CODE = os.environ.get("ADACC_CUDA_CODE", "sm_80 sm_86 sm_89 sm_90 sm_100 sm_120").split()
kernels_source, kernels = here / "src/adacc/kernels.cu", here / "src/adacc/kernels.fatbin"


def find_nvcc():
    if "ADACC_NVCC" in os.environ:
        return os.environ["ADACC_NVCC"] or None
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    return next((found for home in homes if home and (found := shutil.which("nvcc", path=home + "/bin"))),
                shutil.which("nvcc"))


def make_kernels():
    """Puts the file of kernels into the package, once: the machine that installs the wheel needs no nvcc."""
    if "ADACC_KERNELS" in os.environ:
        made = pathlib.Path(os.environ["ADACC_KERNELS"])
        if not made.is_file():
            raise SystemExit(f"ADACC_KERNELS names {made}, and there is no such file")
        shutil.copyfile(made, kernels)
        return
    if torch.version.cuda is None:
        print("adacc: no kernels for CUDA tensors: this torch has no CUDA")
        return
    nvcc = find_nvcc()
    if nvcc is None:
        print("adacc: no kernels for CUDA tensors, which will pass as they are: there is no nvcc; set ADACC_NVCC or "
              "CUDA_HOME, or ADACC_KERNELS to a file that nvcc has made elsewhere")
        return
    files = [kernels_source] + [include / header for header in headers([kernels_source])]
    if kernels.is_file() and all(kernels.stat().st_mtime > file.stat().st_mtime for file in files):
        return
    known = subprocess.run([nvcc, "--list-gpu-code"], check=True, capture_output=True, text=True).stdout.split()
    code = [device for device in CODE if device in known]
    print("adacc: compiling kernels for PTX", *code, "with", nvcc, flush=True)
    # Not compressed, but by the wheel: whatever reads the file finds PTX in it.
    subprocess.run([nvcc, "-std=c++20", f"-I{include}", "-fatbin", "-arch=compute_80", "--threads=0", "--no-compress",
                    "-code=" + ",".join(["compute_80", *code]), str(kernels_source), "-o", str(kernels)], check=True)


class BuildPyWithKernels(build_py):
    def run(self):
        make_kernels()
        super().run()


class BuildExtWithKernels(BuildExtension):
    def run(self):
        if self.inplace:
            make_kernels()
        super().run()


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
    cmdclass={"build_ext": BuildExtWithKernels, "build_py": BuildPyWithKernels, "sdist": SdistWithHeaders},
)
