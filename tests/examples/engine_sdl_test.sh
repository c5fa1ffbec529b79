#!/bin/bash
# SPDX-License-Identifier: MIT
# The engine without a screen: the chaser learns to be in front of its quarry, and both are in the picture.
# Usage: engine_sdl_test.sh ENGINE_SDL
source "$(dirname "$0")/command_line.sh" "$1"
export SDL_VIDEODRIVER=dummy

# share FRAMES: how often the chaser was in front of late, in tenths of a per cent.
share() {
  "$program" "$1" "$1.bmp" >out 2>err || complain "status $?: $(cat err)"
  sed -n 's/.*in front \([0-9]*\)\.\([0-9]\) %$/\1\2/p' out
}
early=$(share 450) late=$(share 1800)
[ "${early:-1000}" -le 100 ] && [ "${late:-0}" -ge 900 ] || complain "in front: ${early:-?}, then ${late:-?} of 1000"
# 480 x 520 dots of blue, green, red and a byte: quarry and chaser are 14 x 14 dots.
count() { tail -c 998400 1800.bmp | od -An -v -tx1 -w4 | grep -c "^ $1"; }
[ "$(count 'c0 40 00')" -ge 196 ] || complain "no quarry in the picture"
[ "$(count '10 40 d0')" -ge 150 ] || complain "no chaser in the picture"
[ "$(count '33 33 33')" -ge 1000 ] || complain "no words in the picture"

refuses "usage" -- x
refuses "nowhere" -- 10 nowhere/end.bmp
SDL_VIDEODRIVER=none refuses "none" -- 10
finish
