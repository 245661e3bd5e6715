#!/bin/sh
# Fails when a C file has more than 1000 lines or a function more than 120 (both without exception so far).
#
#   tools/check-size.sh [SOURCE_ROOT]
#
# A function is what lies between a line that is "{" alone and the next that is "}" alone: the layout that .clang-format
# gives. Files marked GENERATED in line 1 are exempt.
set -eu
cd "${1:-$(dirname "$0")/..}"

# file or file:function, one a line, each with its reason; this list may only shrink
exceptions='
'

find src tests tools bench \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.m' -o -name '*.py' -o -name '*.sh' \) |
    sort | xargs awk -v exceptions="$exceptions" '
FNR == 1 {
    finish()
    file = FILENAME
    exempt = /GENERATED/
    n_files++
    start = 0
    name = ""
}
{ last = FNR }
FILENAME !~ /\.(c|h|cu|cuh|m)$/ { next }
/^[A-Za-z_].*\(/ {
    name = $0
    sub(/\(.*/, "", name)
    sub(/.*[ *]/, "", name)
}
/^\{/ { start = FNR }
/^\}/ {
    if (start && FNR - start - 1 > 120 && !exempt && !excepted(file ":" name))
        fault(sprintf("%s:%d: function %s has %d lines; 120 are allowed", file, start, name, FNR - start - 1))
    start = 0
}
function excepted(what) { return index(exceptions, "\n" what " ") > 0 }
function fault(text) {
    print text
    faults++
}
function finish() {
    if (file != "" && last > 1000 && !exempt && !excepted(file))
        fault(sprintf("%s: %d lines; 1000 are allowed", file, last))
}
END {
    finish()
    if (n_files == 0) { print "no sources found"; exit 1 }
    printf "%d files, %d faults\n", n_files, faults
    exit faults > 0
}'
