#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds a program for a Cortex-M without an operating system, and runs it under qemu:
#
#   bash examples/microcontroller/run.sh m4 timed_device   three training steps, with instructions and stack
#   bash examples/microcontroller/run.sh m4 tiny_device    the whole training of examples/tiny_device.cpp
#   bash examples/microcontroller/run.sh check             on an m4, timed_device and timed_camera (or those named behind
#                                                          it) within their promises
#
# The board is m3, m4 or m7. O names another level of optimization than -Os, OUT another folder than the current one.
# CAMERA_WEIGHTS is the folder with tiny_camera_weights.h; without, the host trains the network and writes the file.
# Without the compiler or qemu it says which is missing, and exits with 77.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${OUT:-.}

for tool in arm-none-eabi-g++ qemu-system-arm; do
  command -v "$tool" >/dev/null && continue
  echo "skipped: no $tool; on Debian: apt-get install gcc-arm-none-eabi libstdc++-arm-none-eabi-newlib qemu-system-arm"
  exit 77
done
if ! echo '#include <array>' | arm-none-eabi-g++ -x c++ -fsyntax-only - 2>/dev/null; then
  echo "skipped: arm-none-eabi-g++ has no standard library; on Debian: apt-get install libstdc++-arm-none-eabi-newlib"
  exit 77
fi

# The folder of the camera's weights: a build of examples/ has one.
weights=${CAMERA_WEIGHTS:-$out/weights}
make_weights() {
  [ ! -e "$weights/tiny_camera_weights.h" ] || return 0
  mkdir -p "$weights"
  c++ -std=c++20 -O1 "-I$here/../../include" "$here/../tiny_camera/offline.cpp" -o "$out/offline"
  "$out/offline" "$weights/tiny_camera_weights.h"
}

# build BOARD PROGRAM: $out/PROGRAM-BOARD.elf, and its sizes.
build() {
  local source=$here/$2.cpp cpu
  [ -e "$source" ] || source=$here/../$2.cpp
  case $1 in
    m3) cpu="-mcpu=cortex-m3 -mfloat-abi=soft" ;;
    m4) cpu="-mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16" ;;
    m7) cpu="-mcpu=cortex-m7 -mfloat-abi=hard -mfpu=fpv5-sp-d16" ;;
    *) echo "run.sh: the board is m3, m4 or m7, not $1" >&2; exit 2 ;;
  esac
  mkdir -p "$out"
  [[ $2 != *camera ]] || make_weights
  # shellcheck disable=SC2086
  arm-none-eabi-gcc $cpu -mthumb -Os -c "$here/startup.c" -o "$out/startup-$1.o"
  # shellcheck disable=SC2086
  arm-none-eabi-g++ $cpu -mthumb -std=c++20 ${O:--Os} -DNDEBUG -fno-exceptions -fno-rtti \
    -fno-threadsafe-statics -ffunction-sections -fdata-sections -Wall -Wextra -Werror \
    "-I$here/../../include" "-I$weights" "$source" "$out/startup-$1.o" -nostartfiles --specs=rdimon.specs \
    -Wl,--gc-sections,--no-warn-rwx-segments -T "$here/mps2.ld" -o "$out/$2-$1.elf"
  arm-none-eabi-size "$out/$2-$1.elf"
}

# run BOARD PROGRAM: an instruction takes a nanosecond of qemu's time.
run() {
  local machine=mps2-an386
  [ "$1" != m3 ] || machine=mps2-an385
  [ "$1" != m7 ] || machine=mps2-an500
  qemu-system-arm -M "$machine" -nographic -semihosting-config enable=on,target=native -icount shift=0 \
    -kernel "$out/$2-$1.elf" </dev/null
}

if [ "${1:-}" != check ]; then
  [ $# -eq 2 ] || { sed -n '3,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
  build "$1" "$2"
  run "$1" "$2"
  exit
fi

[ $# -gt 1 ] || set -- check timed_device timed_camera
failed=0
# holds WORDS NUMBER MOST
holds() {
  [ -n "$2" ] && [ "$2" -le "$3" ] && return
  echo "check: $1: ${2:-none}, promised at most $3" >&2
  failed=1
}

# check PROGRAM THOUSANDS STACK TEXT: the promises, of a training step's instructions, of bytes of stack, and of code with
# constants.
check() {
  local sizes said host
  sizes=$(build m4 "$1")
  said=$(run m4 "$1") || failed=1
  printf '%s\n%s\n' "$sizes" "$said"
  holds "$1, thousand instructions of a step" \
    "$(echo "$said" | sed -n 's/.*step \([0-9]*\),.*/\1/p' | sort -n | tail -n 1)" "$2"
  holds "$1, bytes of stack" "$(echo "$said" | sed -n 's/.*stack \([0-9]*\) bytes/\1/p')" "$3"
  holds "$1, bytes of text" "$(echo "$sizes" | awk '$1 == "text" { getline; print $1 }')" "$4"
  # The losses are those of the host, to a part in ten thousand: only the order of some sums differs.
  cat >"$out/host.cpp" <<EOF
#include "$here/$1.cpp"
extern "C" std::uint32_t stack_used() { return 0; }
extern "C" std::uint32_t ticks_left() { return 0; }
EOF
  c++ -std=c++20 -O1 -ffp-contract=off "-I$here/../../include" "-I$weights" "$out/host.cpp" -o "$out/host"
  host=$("$out/host")
  paste <(echo "$said" | awk '/^loss/ { print $2 }') <(echo "$host" | awk '/^loss/ { print $2 }') |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > 1e-4 * $2) bad = 1 } END { exit bad || NR != 3 }' || {
    echo "check: $1: the losses are not the host's:" >&2
    echo "$host" >&2
    failed=1
  }
}

# A stack that is too small for a step is an error of the linker.
mkdir -p "$out"
echo 'int main(void) { return 0; }' >"$out/empty.c"
words=$(arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb "$out/empty.c" "$here/startup.c" -nostartfiles --specs=rdimon.specs \
  -Wl,--no-warn-rwx-segments,--defsym=stack_bytes=4096 -T "$here/mps2.ld" -o "$out/empty.elf" 2>&1) || true
[[ $words == *"give stack_bytes 8K or more"* ]] || {
  echo "check: a stack of 4 KiB is not refused: $words" >&2
  failed=1
}

for program in "${@:2}"; do
  case $program in
    timed_device) check timed_device 23000 4352 81920 ;;
    timed_camera) check timed_camera 35500 6144 98304 ;;
    *) echo "run.sh: timed_device and timed_camera have promises, $program has none" >&2; exit 2 ;;
  esac
done
exit "$failed"
