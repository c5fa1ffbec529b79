#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Fetches the digits set that scikit-learn's package carries (BSD licence; 13 MB from PyPI, of which 57 KB
# are kept), for anole --digits:
#
#   bash examples/anole/digits.sh [FILE]       FILE: build/digits.csv unless another is named
set -euo pipefail
file=${1:-build/digits.csv}
sha256=6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8
is_there() { echo "$sha256  $file" | sha256sum --check --status 2>/dev/null; }
if ! is_there; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$folder" scikit-learn
  mkdir -p "$(dirname "$file")"
  python3 - "$folder" "$file" <<'END'
import glob, gzip, sys, zipfile
with zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0]) as wheel:
    text = gzip.decompress(wheel.read("sklearn/datasets/data/digits.csv.gz"))
open(sys.argv[2], "wb").write(text)
END
  is_there || { echo "digits.sh: $file is not the file that was expected" >&2; exit 1; }
fi
echo "$file"
