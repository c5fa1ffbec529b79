# SPDX-License-Identifier: MIT
# Programs for WebAssembly, by Debian's emscripten; tests run by node, and files lie in the program's memory.
list(APPEND CMAKE_MODULE_PATH /usr/share/emscripten/cmake/Modules)
set(CMAKE_SYSTEM_NAME Emscripten)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_CXX_COMPILER em++)
set(CMAKE_C_COMPILER emcc)
set(CMAKE_CXX_FLAGS_INIT "-msimd128 -sDISABLE_EXCEPTION_CATCHING=0")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-sALLOW_MEMORY_GROWTH=1 -sEXIT_RUNTIME=1 -sDISABLE_EXCEPTION_CATCHING=0")
set(CMAKE_EXECUTABLE_SUFFIX .js)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR "node;--no-experimental-fetch")
