#!/bin/sh
# Line coverage of a build that was tested with -Db_coverage=true, a line a file, least covered first.
#
#   tools/cover.sh BUILD
set -eu
cd "$(dirname "$0")/.."
build=$1

find "$build/src" -name '*.gcda' | while read -r data; do
    gcov -n -o "$(dirname "$data")" "$data" 2>/dev/null
done | awk '
    /^File / { file = $0; sub(/^File .*src\//, "src/", file); sub(/.$/, "", file) }
    /^Lines executed:/ && file ~ /^src\/.*\.c$/ {
        split($0, part, /[:% ]+/)
        printf "%6.1f %%  %5d lines  %s\n", part[3], part[5], file
        covered += part[3] * part[5] / 100
        total += part[5]
        file = ""
    }
    END { if (total) printf "%6.1f %%  %5d lines  all of src\n", 100 * covered / total, total }' | sort -n
