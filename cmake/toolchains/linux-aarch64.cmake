# SPDX-License-Identifier: MIT
# Programs for 64-bit ARM Linux, by Debian's cross compiler, linked statically; tests run under qemu if it is there.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
find_program(ADACC_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(ADACC_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${ADACC_QEMU}")
endif()
