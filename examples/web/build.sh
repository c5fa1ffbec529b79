#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds the game that learns to play itself as one page, by emscripten:
#
#   bash examples/web/build.sh          OUT/page.html, which a browser opens from the disk
#   bash examples/web/build.sh check    the same, tested: by node, and by Chromium if there is one
#
# OUT is build/web unless named. Without emscripten it says so, and exits with 77.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${OUT:-$here/../../build/web}
most_gzipped=250000

command -v em++ >/dev/null || { echo "skipped: no em++; on Debian: apt-get install emscripten"; exit 77; }
eigen=
for prefix in ${CMAKE_PREFIX_PATH:+"$CMAKE_PREFIX_PATH"} /usr /usr/local; do
  [ ! -e "$prefix/include/eigen3/Eigen/Core" ] || eigen=$prefix/include/eigen3
done
[ -n "$eigen" ] || { echo "skipped: no Eigen; on Debian: apt-get install libeigen3-dev"; exit 77; }

mkdir -p "$out/eigen"
ln -sfn "$eigen/Eigen" "$out/eigen/Eigen"  # and nothing else of the host's headers
ln -sfn "$eigen/unsupported" "$out/eigen/unsupported"
calls=_reason,_start,_frame,_learn,_courts,_half_paddle,_updates,_frames,_longest_slice,_caught,_save,_bytes,_load
# Debian's emscripten finds its packages of node there.
NODE_PATH=${NODE_PATH:-/usr/share/nodejs} em++ -std=c++20 -O2 -msimd128 -DNDEBUG -fno-exceptions -fno-rtti -Wall -Wextra \
  -Werror "-I$here/../../include" -isystem "$out/eigen" "$here/page.cpp" -o "$out/game.js" --no-entry \
  -s ALLOW_MEMORY_GROWTH=1 -s MALLOC=emmalloc -s MODULARIZE=1 -s EXPORT_NAME=load_game -s ENVIRONMENT=web,node \
  -s "EXPORTED_FUNCTIONS=$calls" -s 'EXPORTED_RUNTIME_METHODS=["UTF8ToString"]'
# The page has all in one file: base64 of bytes that are packed already grows no more when a server packs the page.
{
  sed '/<script src="game.js">/,$d' "$here/page.html"
  echo "<script>"
  cat "$out/game.js"
  echo "const packed = '$(gzip -9 -n -c "$out/game.wasm" | base64 -w 0)';"
  echo "</script>"
  sed '1,/<script src="game.js">/d' "$here/page.html"
} >"$out/page.html"
gzipped=$(gzip -9 -c "$out/page.html" | wc -c)
echo "$out/page.html: $(wc -c <"$out/page.html") bytes, $gzipped gzipped"
[ "$gzipped" -le "$most_gzipped" ] || { echo "build.sh: promised at most $most_gzipped" >&2; exit 1; }
[ "${1:-}" = check ] || exit 0

node --no-experimental-fetch "$here/../../tests/examples/web_game_test.js" "$out/game.js"
if chromium=$(command -v chromium || command -v google-chrome || command -v chromium-browser); then
  node "$here/../../tests/examples/web_page_test.js" "$chromium" "$out/page.html" "$out/page.png"
else
  echo "skipped: no Chromium; on Debian: apt-get install chromium"
fi
