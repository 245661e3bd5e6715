#!/bin/sh
# The rules that a script can see:
#   sources   no getenv outside base/settings.c, no tabs, trailing blanks or lines past 110 columns, no notes that
#             something is missing, headers guarded by their own name, each file opened by a comment that says what it is for, no
#             loop that a compiler of ours cannot take
#   objects   (BUILD given) an ISA kernel file exports exactly one symbol, its lg_cpu_*init_*; everything else that is
#             exported begins with lg_
#
#   tools/check-style.sh [BUILD [SOURCE_ROOT]]; BUILD may be empty
set -eu
export LC_ALL=C # bytes are counted, whatever language the machine speaks
build=${1:-}
[ -z "$build" ] || build=$(cd "$build" && pwd)
cd "${2:-$(dirname "$0")/..}"
faults=0

sources=$(find src tests \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.m' \) | sort)
[ -n "$sources" ] || { echo "no sources found"; exit 1; }
# shellcheck disable=SC2086
found=$(awk '
function fault(text) { printf "%s:%d: %s\n", FILENAME, FNR, text }
FNR == 1 {
    if ($0 !~ /^\/\*/) fault("a file begins with a comment that says what it is for")
    guard = ""
    want = FILENAME
    sub(/^src\//, "", want)
    gsub(/[^A-Za-z0-9]/, "_", want)
    want = "LG_" toupper(want)
}
FILENAME ~ /^src.*\.h$/ && /^#ifndef/ && guard == "" {
    guard = $2
    if (guard != want) fault("the guard is " guard "; it should be " want)
}
/\t/ { fault("a tab") }
/[ \t]$/ { fault("blanks at the end of the line") }
/getenv[ \t]*\(/ && FILENAME != "src/base/settings.c" && FILENAME ~ /^src/ { fault("getenv belongs in base/settings.c") }
/(^|[^A-Za-z])(TODO|FIXME|XXX)([^A-Za-z]|$)/ { fault("an admission that something is missing") }
/[^A-Za-z_]fm(ax|in)\(.*\(double\)/ {
    into = $0 # what the line assigns to, and the first value that it compares
    sub(/ *=.*/, "", into)
    sub(/.*[ (*]/, "", into)
    first = $0
    sub(/.*[^A-Za-z_]fm(ax|in)\(/, "", first)
    sub(/,.*/, "", first)
    if (into == first) fault("a running fmax of widened floats stops gcc 12 for arm64 (internal error): compare with ? :")
}
/[^a-zA-Z_](alloca|gets|sprintf|strtok)[ \t]*\(/ && FILENAME ~ /^src/ { fault("a function that is not used here") }
{
    columns = $0
    gsub(/[\200-\277]/, "", columns) # continuation bytes of UTF-8 take no column
    if (length(columns) > 110 && columns !~ /^(#define [A-Z0-9_]+)? *[{]?"/) # a line that is one string cannot be wrapped
        fault(length(columns) " columns; 110 are allowed (tools/format.sh)")
}' $sources)
if [ -n "$found" ]; then
    echo "$found"
    faults=$(echo "$found" | wc -l)
fi

if [ -n "$build" ]; then
    # "file.o:address kind name" for every symbol that an object exports
    found=$(find "$build/src" -name '*.o' | sort | xargs "${NM:-nm}" -A -g --defined-only | awk '
        {
            colon = index($0, ".o:")
            object = substr($0, 1, colon + 1)
            n = split(substr($0, colon + 3), part, " ")
            name = part[n]
            if (n != 3 || part[2] !~ /[TDRBC]/) next
            sub(/^_lg_/, "lg_", name) # Apple puts an underscore in front
            seen++
            if (object ~ /liblg_cpu_[^\/]*\.a\.p\//) {
                n_isa[object]++
                if (n_isa[object] > 1 || name !~ /^lg_cpu_([a-z]+_)*init_/)
                    print object ": an ISA file exports its init alone, not " name
            }
            if (name !~ /^lg_/ && name !~ /^_?main$/ && name !~ /^__/)
                print object ": exported names begin with lg_, not like " name
        }
        END { if (!seen) print "no objects to look at" }')
    if [ -n "$found" ]; then
        echo "$found"
        faults=$((faults + $(echo "$found" | wc -l)))
    fi
fi
echo "$faults faults"
[ "$faults" -eq 0 ]
