#!/bin/sh
# Builds every fuzz target with libFuzzer and the sanitizers (clang) and runs each for SECONDS, starting from its corpus.
#
#   tools/fuzz.sh BUILD SECONDS
#
# New inputs that reach new code stay in BUILD/corpus/NAME; a finding is written to BUILD/findings/NAME-* and ends the
# run with status 1. Copy a finding into tests/fuzz/corpus/NAME once it is fixed.
set -eu
cd "$(dirname "$0")/.."
build=$1
seconds=$2

[ -f "$build/build.ninja" ] ||
    CC=clang meson setup "$build" -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false --buildtype=debugoptimized
mkdir -p "$build/findings"
failed=0
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    name=${name#fuzz_}
    ninja -C "$build" "tests/fuzz/fuzz_$name"
    mkdir -p "$build/corpus/$name"
    echo "fuzz: $name, $seconds s"
    "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix="$build/findings/$name-" "$build/corpus/$name" "tests/fuzz/corpus/$name" \
        > "$build/findings/$name.log" 2>&1 || {
        failed=1
        echo "fuzz: $name: finding, see $build/findings/$name.log" >&2
    }
    grep -E 'stat::number_of_executed_units|stat::average_exec' "$build/findings/$name.log" || true
done
exit $failed
