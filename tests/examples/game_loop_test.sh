#!/bin/bash
# SPDX-License-Identifier: MIT
# The game on a virtual clock: the player learns, a seed makes one game however the steps are cut, and
# players are saved and loaded.
# Usage: game_loop_test.sh GAME_LOOP
source "$(dirname "$0")/command_line.sh" "$1"

play() { "$program" --virtual-time "$@" >out 2>err || complain "status $?: $*: $(cat err)"; }
fingerprint() { grep -x "game [0-9a-f]\{16\}, weights [0-9a-f]\{16\}" out || complain "no fingerprint"; }
# share first, share last: of balls caught in the first and the last tenth, in tenths of a per cent
share() {
  sed -n "s/.*\(caught\|stood for\) \([0-9]*\)\.\([0-9]\) %.* in the first tenth, \([0-9]*\)\.\([0-9]\) % in the last$/\2\3 \4\5/p" out |
    cut -d ' ' -f "$([ "$1" = first ] && echo 1 || echo 2)"
}

refuses_empty_values
explains game frames slice seed hidden virtual-time watch load save export only-play replay picture

# 2880 frames are 90 rollouts, so that the last of them is not to be taken over.
play --frames 2880 --replay --save player --picture score.svg --export player.h
whole=$(fingerprint)
grep -qx "played again with every step in one piece, it has the same bits: yes" out ||
  complain "no word on the bits: $(cat out)"
early=$(share first) late=$(share last)
[ "${late:-0}" -ge $((3 * ${early:-1000})) ] || complain "caught ${early:-?}, then ${late:-?} of 1000"
grep -q "^|.*#|$" out || complain "no paddle on the court"
grep -q "<polyline .*points='[0-9., ]\{100,\}'/>" score.svg || complain "no line in the picture"
[ "$(tail -n 1 score.svg)" = "</svg>" ] || complain "the picture has no end"

# Shorter slices cut the steps elsewhere, and the game has to wait for them.
play --frames 640 --slice 2
usual=$(fingerprint)
grep -q "stood still for 0 frames" out || complain "slices of 2 ms are not enough: $(cat out)"
play --frames 640 --slice 0.3
[ "$(fingerprint)" = "$usual" ] || complain "slices of 0.3 ms give another game or other weights"
grep -q "stood still for [1-9][0-9]* frames" out || complain "slices of 0.3 ms are enough: $(cat out)"
play --frames 640 --seed 2
[ "$(fingerprint)" != "$usual" ] || complain "another seed gives the same game"

# Another game, by the same player: 500 frames of balance are the best, and without an idea a pole falls after some 20.
play --game pole --frames 3000 --replay
grep -q "the same bits: yes" out || complain "poles do not replay"
[ "$(share first)" -le 120 ] && [ "$(share last)" -ge 500 ] || complain "poles stood for $(share first), then $(share last) of 1000"

# What was saved plays as it was: the same bytes, and from the first ball on.
play --frames 640 --load player --only-play --save again
cmp player again || complain "playing alone changes the player"
[ "$(fingerprint | sed 's/.*weights//')" = "${whole##*weights}" ] || complain "other weights are loaded"
[ "$(share first)" -ge $((2 * early)) ] || complain "the loaded player catches $(share first) of 1000"
play --frames 640 --load player --replay
grep -q "the same bits: yes" out || complain "a loaded player does not replay"
[ "$(fingerprint | sed 's/.*weights//')" != "${whole##*weights}" ] || complain "it learns no more"

# A program in C finds the same weights in the header: their hash is of the block, in which each begins at
# a multiple of 16.
cat >reader.c <<'END'
#include "player.h"
#include <stdio.h>
#include <string.h>
int main(void) {
  unsigned long long hash = 0xcbf29ce484222325ULL;
  int i;
  for (i = 0; i < player_tensor_count; ++i) {
    const player_tensor *t = &player_tensors[i];
    size_t e, k;
    for (e = 0; e < (t->elems + 15) / 16 * 16; ++e) {
      const float value = e < t->elems ? t->data[e] : 0;
      unsigned char bytes[4];
      memcpy(bytes, &value, 4);
      for (k = 0; k < 4; ++k) hash = (hash ^ bytes[k]) * 0x100000001b3ULL;
    }
  }
  printf("%016llx %lu\n", hash, (unsigned long)(sizeof player_linear3_bias / sizeof(float)));
  return 0;
}
END
if command -v cc >/dev/null; then
  cc -std=c99 -Wall -Wextra -pedantic -Werror reader.c -o reader || complain "C does not take the header"
  [ "$(./reader)" = "${whole##*weights } 4" ] || complain "C reads other weights: $(./reader), $whole"
else
  echo "there is no C compiler: the header is not read"
fi

# Bad input.
refuses "nowhere" "cannot be opened" -- --load nowhere
refuses "5, 64, 64 and 4" "5, 32, 32 and 4" -- --load player --hidden 32
echo "not a player" >text
refuses "text" "it looks like text" -- --load text
head -c 2000 player >short
refuses "short" "truncated" -- --load short
refuses "is a folder" -- --load .
refuses "nowhere/player" "cannot be written" -- --save nowhere/player
refuses "nowhere/score" "cannot be written" -- --picture nowhere/score
refuses "nowhere/player.h" "cannot be written" -- --export nowhere/player.h
refuses "5, 64, 64 and 4" "4, 64, 64 and 3" -- --game pole --load player
refuses "--game" -- --game chess
refuses "--frames" "-5" -- --frames -5
refuses "--frames" -- --frames 0
refuses "--slice" "-1" -- --slice -1
refuses "--slice" -- --slice nan
refuses "--seed" "-1" -- --seed -1
refuses "--hidden" "-1" -- --hidden -1
refuses "--nonsense" -- --nonsense
echo "caught $early of 1000, then $late"
finish
