# SPDX-License-Identifier: MIT
# Programs for 64-bit Windows, by Debian's mingw-w64, linked statically; tests run under wine if it is there.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
find_program(ADACC_WINE NAMES wine64 wine)
if(ADACC_WINE)  # which knows names of files by the locale's characters
  set(CMAKE_CROSSCOMPILING_EMULATOR
      "${CMAKE_COMMAND};-E;env;LC_ALL=C.UTF-8;WINEDEBUG=-all;WINEPREFIX=${CMAKE_BINARY_DIR}/wine;${ADACC_WINE}")
endif()
