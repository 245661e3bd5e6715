#!/bin/sh
# The long forms of what `make test` runs a short part of: random walks of constrained answers, once; then load on the
# server for the whole time, and the rest over and over with new seeds for as long again. Stops at the first failure and
# prints the command that repeats it.
#
#   tools/soak.sh BUILD [MINUTES [FIRST_SEED]]      30 minutes each, seed from the clock; 0: no load, no rounds
set -eu
cd "$(dirname "$0")/.."
build=$1
minutes=${2:-30}
seed=${3:-$(date +%s)}
end=$(($(date +%s) + minutes * 60))
log=$(mktemp)
trap 'rm -f "$log"' EXIT
rounds=0

try() {
    "$@" > "$log" 2>&1 || {
        status=$?
        [ $status = 77 ] && { tail -n 1 "$log"; return; }
        tail -n 40 "$log"
        echo "soak: failed with status $status; again: $*"
        exit 1
    }
    printf 'seed %s  %s\n' "$seed" "$(tail -n 1 "$log")"
}

# 20,000 random schemas, 50 random replies under each, judged by ajv; and what a constraint does to answers of the model
walks() {
    command -v node > /dev/null || { echo "soak: no walks, node is missing"; return; }
    for piece in 0 1 2 3; do
        try node tests/grammar/walks.mjs "$build/tests/grammar/walk" tests/golden/vocab512.gguf \
            "$build/tests/grammar/npm" 5000 50 $(((seed * 20000 + piece * 5000) % 1000000000))
    done
}

walks
try python3 -B tests/mini/test_extraction.py "$build/lagoon" models 300 "$seed"
[ "$minutes" -gt 0 ] || { echo "soak: the walks found no failure"; exit 0; }

try python3 -B tests/e2e/load.py "$build/lagoon" --minutes "$minutes" --seed "$seed"
end=$(($(date +%s) + minutes * 60))
while [ "$(date +%s)" -lt "$end" ]; do
    try "$build/tests/kcheck/kcheck" --seed "$seed"
    try "$build/tests/fuzz/hostile_gguf" tests/golden/vocab512.gguf 100000 "$seed"
    try "$build/tests/unit/test_prefix" 200000 "$seed"
    try "$build/tests/unit/test_cache" 10000 "$seed"
    try "$build/tests/golden/test_soak" cpu 10000 "$seed" models/mini.gguf models/mini-dflash.gguf
    try python3 -B tests/mini/test_schema.py "$build/lagoon" models 100 "$seed"
    try python3 -B tests/e2e/test_serve_schema.py "$build/lagoon" models 500 "$seed"
    try "$build/tests/mini/test_identity" models/mini.gguf models/mini-dflash.gguf 200 512 "$seed"
    seed=$((seed + 1))
    rounds=$((rounds + 1))
done
echo "soak: $rounds rounds in $minutes minutes, no failure"
