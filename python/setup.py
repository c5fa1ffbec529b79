# SPDX-License-Identifier: MIT
"""Builds adacc._native from the headers of adacc, which lie one folder up, or in ADACC_INCLUDE_DIR."""
import os
import pathlib
import re

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

here = pathlib.Path(__file__).resolve().parent
include = pathlib.Path(os.environ.get("ADACC_INCLUDE_DIR", here.parent / "include"))
if not (include / "adacc/adapter/torch.hpp").is_file():
    raise SystemExit(f"adacc's headers are not in {include}: build from a checkout, or set ADACC_INCLUDE_DIR")

# Codecs are loops that a compiler vectorizes: for this machine, unless the wheel is to travel.
flags = ["-std=c++20", "-O3", "-fopenmp", "-Wall"]
if not os.environ.get("ADACC_PORTABLE"):
    flags.append("-march=native")

# One source of the version, which the module says as well: core/config.hpp.
version = re.findall(r"^#define ADACC_VERSION_(?:MAJOR|MINOR|PATCH) ([0-9]+)$",
                     (include / "adacc/core/config.hpp").read_text(), re.MULTILINE)

setup(
    version=".".join(version),
    ext_modules=[CppExtension("adacc._native", ["src/adacc/native.cpp"], include_dirs=[str(include)],
                              extra_compile_args=flags, extra_link_args=["-fopenmp"])],
    cmdclass={"build_ext": BuildExtension},
)
