#!/bin/sh
# `make run`: installs what is missing, builds, and asks the demonstration model one question. Asks nothing itself and
# ends with status 0 when the answer was shown.
#
#   tools/run.sh BUILD
set -eu
cd "$(dirname "$0")/.."
build=$1
question='Write a Python function that reverses a string.'
log=$(mktemp)
trap 'rm -f "$log" "$log.err"' EXIT

started=0
begin() { # step, text without newline
    started=$(date +%s)
    printf '[%s/4] %-9s %-55s' "$1" "$2" "$3"
}
elapsed() {
    s=$(($(date +%s) - started))
    printf '%5d:%02d\n' $((s / 60)) $((s % 60))
}
quietly() { # runs a command; what it said is shown only when it failed
    "$@" > "$log" 2>&1 < /dev/null || {
        status=$?
        echo
        tail -n 40 "$log" >&2
        echo "make run: this step failed (status $status): $*" >&2
        exit 1
    }
}

missing=$(tools/setup.sh build --list)
if [ -n "$missing" ]; then
    n=$(echo "$missing" | wc -l | tr -d ' ')
    begin 1 packages "installing $(echo "$missing" | head -n 3 | tr '\n' ' ')$([ "$n" -le 3 ] || echo "... ($n)")"
    quietly tools/setup.sh build
else
    begin 1 packages "all are here"
fi
elapsed

begin 2 build "$build/lagoon"
quietly make BUILD="$build" all
elapsed
"$build/lagoon" --version | sed -n 's/^devices: */                /p'

model=models/mini.gguf
[ -f $model ] || { echo "make run: $model is not here; this copy of lagoon is incomplete" >&2; exit 1; }
begin 3 model "mini, $(wc -c < $model | awk '{ printf "%.1f", $1 / 1e6 }') MB, ships with lagoon"
quietly "$build/lagoon" inspect $model
elapsed

printf '[4/4] ask       %s\n' "$question"
ask() { # a build outside this folder would not find the model by itself
    LAGOON_MODELS=$PWD/models "$build/lagoon" generate --mini --stats -p "$question" < /dev/null
}
if [ -t 1 ]; then
    ask
else # the answer ends without a newline, the figures come from standard error
    ask > "$log" 2> "$log.err" || { cat "$log" "$log.err"; exit 1; }
    awk '{ print "      " $0 }' "$log" "$log.err"
fi
cat << END
This was the small demonstration model: it shows that everything works, not what Laguna can do.
  $build/lagoon chat --mini             talk to it
  $build/lagoon --help                  what else there is
END
