#!/bin/sh
# clang-tidy over every C source of a build. Ends with status 1 when it finds something. Layout is not its business:
# tests/style checks what matters, tools/format.sh wraps long lines.
#
#   tools/lint.sh BUILD
set -eu
cd "$(dirname "$0")/.."
build=$1

command -v clang-tidy >/dev/null || { echo "lint: clang-tidy is not installed (apt: clang-tidy)" >&2; exit 77; }
git ls-files 'src/*.c' 'tests/*.c' | while read -r f; do
    grep -q "\"[^\"]*/$f\"" "$build/compile_commands.json" && echo "$f" || true
done | xargs -P "$(getconf _NPROCESSORS_ONLN)" -n 4 clang-tidy --quiet -p "$build"
