#!/bin/sh
# Wraps what is longer than 110 columns, and only that: a comment behind code goes above it, comments are refilled and
# statements broken by clang-format. Lines that nothing can break (long strings, hand-made tables) are listed at the end
# and left to the author.
#
#   tools/format.sh [FILE...]      all C sources without arguments
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- $(git ls-files 'src/*.[ch]' 'tests/*.[ch]')

# The body of an awk program that is about overlong lines; continuation bytes of UTF-8 take no column.
overlong='{ columns = $0; gsub(/[\200-\277]/, "", columns); long = length(columns) > 110 }'

lines_of() {
    awk "$overlong long { print NR }" "$1"
}

for file in "$@"; do
    [ -n "$(lines_of "$file")" ] || continue
    awk "$overlong"'
        long && match($0, /[;,{] *(\/\*.*\*\/|\/\/ .*)$/) && $0 !~ /\\$/ {
            code = substr($0, 1, RSTART)
            comment = substr($0, RSTART + 1)
            sub(/^ */, "", comment)
            indent = $0
            sub(/[^ ].*/, "", indent)
            print indent comment
            print code
            next
        }
        { print }' "$file" > "$file.wrapped"
    cat "$file.wrapped" > "$file"
    rm "$file.wrapped"
    ranges=$(lines_of "$file" | sed 's/.*/--lines=&:&/')
    # shellcheck disable=SC2086
    [ -z "$ranges" ] || clang-format --style=file -i $ranges "$file"
    lines_of "$file" | sed "s|^|$file:|"
done
