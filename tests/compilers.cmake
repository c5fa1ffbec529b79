# SPDX-License-Identifier: MIT
# The compilers that tests call themselves, whatever compiler the build uses; label `compile`.

# Version suffixes first: the toolchain floor is what a user may have.
find_program(ADACC_GXX NAMES g++-12 g++)
find_program(ADACC_CLANGXX NAMES clang++-16 clang++)
