#!/bin/sh
# clang-tidy over every C source of a build, and clang-format's opinion of the layout of changed lines.
#
#   tools/lint.sh BUILD
#
# Ends with status 1 when clang-tidy finds something. Layout is shown, not enforced: tables are aligned by hand.
set -eu
cd "$(dirname "$0")/.."
build=$1

command -v clang-tidy >/dev/null || { echo "lint: clang-tidy is not installed (apt: clang-tidy)" >&2; exit 77; }
if command -v clang-format >/dev/null; then
    count=$(git ls-files 'src/*.[ch]' 'tests/*.[ch]' | while read -r f; do
        clang-format --style=file "$f" | cmp -s - "$f" || echo "$f"
    done | wc -l)
    echo "lint: clang-format would lay out $count files differently"
fi
git ls-files 'src/*.c' 'tests/*.c' | while read -r f; do
    grep -q "\"[^\"]*/$f\"" "$build/compile_commands.json" && echo "$f" || true
done | xargs -P "$(getconf _NPROCESSORS_ONLN)" -n 4 clang-tidy --quiet -p "$build"
