#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# All headers, and the README's first program, in the dialect of clang-cl: its target, types, layout, and macros. And the
# same (but for the CUDA algorithms' headers, codec/quant/block) under cl.exe's macros and without what cl.exe does not
# know, once with the README's program, once with tiny_device.
#
#   bash tests/platforms/clang_cl.sh     OUT/clang_cl.cpp, OUT/cl.cpp and OUT/cl_device.cpp, whose syntax is checked
#
# Microsoft's headers cannot be had here. Those of mingw-w64 stand in: they are read first, under the macros that they
# want, and adacc's headers behind them, under clang-cl's. OUT is build/platforms/clang-cl unless named. CLANGXX names
# another compiler than clang++-16. Without the compiler or headers it says so, and exits with 77.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=${OUT:-$root/build/platforms/clang-cl}
clangxx=${CLANGXX:-clang++-16}
mingw=/usr/lib/gcc/x86_64-w64-mingw32/12-posix/include/c++

command -v "$clangxx" >/dev/null || { echo "skipped: no $clangxx; on Debian: apt-get install clang-16"; exit 77; }
[ -e "$mingw" ] || { echo "skipped: no $mingw; on Debian: apt-get install g++-mingw-w64-x86-64-posix"; exit 77; }
eigen=
for prefix in ${CMAKE_PREFIX_PATH:+"$CMAKE_PREFIX_PATH"} /usr /usr/local; do
  [ ! -e "$prefix/include/eigen3/Eigen/Core" ] || eigen=$prefix/include/eigen3
done
[ -n "$eigen" ] || { echo "skipped: no Eigen; on Debian: apt-get install libeigen3-dev"; exit 77; }

mkdir -p "$out/eigen"
out=$(cd "$out" && pwd)
ln -sfn "$eigen/Eigen" "$out/eigen/Eigen"  # and nothing else of the host's headers
ln -sfn "$eigen/unsupported" "$out/eigen/unsupported"
cd "$root/include"
headers=$(find adacc -name '*.hpp' ! -path 'adacc/adapter/*' | sort)
# shellcheck disable=SC2086  # words are meant
standard=$(cat $headers | sed -n 's/^#include \(<[a-z_]*>\|<Eigen.*>\)$/\1/p' | sort -u)

# standard_headers: those of mingw-w64 and Eigen; behind them the compiler is Microsoft's.
standard_headers() {
  echo "#define __declspec __declspec"  # mingw's headers ask whether there is one
  echo "#define __GCC_ATOMIC_TEST_AND_SET_TRUEVAL 1"
  for type in BOOL CHAR CHAR8_T CHAR16_T CHAR32_T WCHAR_T SHORT INT LONG LLONG POINTER; do
    echo "#define __GCC_ATOMIC_${type}_LOCK_FREE 2"
  done
  for header in $standard; do
    echo "#if __has_include($header)"
    echo "#include $header"
    echo "#endif"
  done
  for macro in __declspec __GNUC__ __MINGW32__ __MINGW64__; do echo "#undef $macro"; done
  echo "#define _MSC_VER 1938"
}

readme_program() {
  awk '/^```cpp/ { inside = 1; next } inside && /^```/ { exit } inside' "$root/README.md"
}

# not_known_to_cl: from here on an error, with cl.exe's macros.
not_known_to_cl() {
  for macro in __clang__ __x86_64__ __SSE__ __SSE2__ __BYTE_ORDER__ __FAST_MATH__; do echo "#undef $macro"; done
  # shellcheck disable=SC2086  # words are meant
  cat $headers | grep -o '__builtin_[a-z0-9_]*' | sort -u |
    grep -vxE '__builtin_(bit_cast|is_constant_evaluated)' | sed 's/^/#pragma GCC poison /'
  for word in __attribute__ __asm__ asm __int128 __typeof__ __BYTE_ORDER__; do echo "#pragma GCC poison $word"; done
}

# check FILE WORDS
check() {
  "$clangxx" --target=x86_64-pc-windows-msvc -std=c++20 -fsyntax-only -fno-exceptions -fno-rtti \
    -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror \
    -U_MSC_VER -U_MSC_FULL_VER -U_MSC_BUILD -D__MINGW32__=1 -D__MINGW64__=1 -D__GNUC__=4 -D__GNUC_MINOR__=2 \
    -D__STRICT_ANSI__ -Wno-builtin-macro-redefined \
    -I. -nostdinc++ -isystem "$mingw" -isystem "$mingw/x86_64-w64-mingw32" -isystem /usr/x86_64-w64-mingw32/include \
    -isystem "$out/eigen" "$1"
  echo "$(grep -c '^#include <adacc/' "$1") headers, $2"
}

{
  standard_headers
  for header in $headers; do echo "#include <$header>"; done
  echo 'static_assert(sizeof(long) == 4 && sizeof(void*) == 8 && sizeof(wchar_t) == 2, "not the types of Windows");'
  readme_program
} >"$out/clang_cl.cpp"
check "$out/clang_cl.cpp" "README's first program: clang-cl's dialect"

{
  standard_headers
  not_known_to_cl
  for header in $headers; do
    [[ $header == adacc/codec/quant/block/* ]] || echo "#include <$header>"
  done
  readme_program
} >"$out/cl.cpp"
check "$out/cl.cpp" "README's first program: nothing that cl.exe does not know"

{
  standard_headers
  not_known_to_cl
  echo "#include <adacc/adacc.hpp>"
  echo "#include \"$root/examples/tiny_device.cpp\""
} >"$out/cl_device.cpp"
check "$out/cl_device.cpp" "tiny_device: nothing that cl.exe does not know"
