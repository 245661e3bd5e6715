#!/bin/sh
# Everything about the CUDA backend that a machine with a card can show, in one command and one short report.
#
#   tools/gpu-check.sh [BUILD [REPORT]]      (build-gpu, BUILD/gpu-report.txt); CUDA_VISIBLE_DEVICES chooses the card
#
# Builds; holds every op to its reference (two seeds, attention eight) and recorded models, drafter and rounds to
# their recordings; replies with drafts to those without; soaks the prefix cache; runs compute-sanitizer over some
# ops and a reply, when it is installed; serves requests; then measures: page-outs and page-ins, loading, the
# benchmark at full size and the cost of drafts. A speed is never a failure. Environment:
# CHECK_MODELS="s-2.1 xs-2.1" chooses what is measured, CHECK_LAYERS=0 leaves out loading (else so many layers of S
# are written to $TMPDIR, 1.4 GB each).
# Exit status 0 when nothing failed, 77 without a card.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build-gpu}
report=${2:-$build/gpu-report.txt}
failed=0
programs='lagoon tests/cuda/test_cuda tests/golden/test_model tests/golden/test_drafter tests/golden/test_speculation
          tests/golden/test_soak tests/mini/test_identity bench/bench_paging'

[ -f "$build/build.ninja" ] || meson setup "$build" -Dcuda=enabled || exit 1
# shellcheck disable=SC2086
ninja -C "$build" $programs || exit 1

say() {
    echo "$*" | tee -a "$report"
}

# step NAME COMMAND...: runs it; the report gets the verdict with the last line, and more of them when it failed.
step() {
    name=$1
    shift
    start=$(date +%s)
    "$@" > "$report.step" 2>&1
    rc=$?
    took=$(($(date +%s) - start))
    if [ $rc -eq 0 ]; then
        say "ok      $name, $took s: $(tail -n 1 "$report.step" | cut -c 1-150)"
    elif [ $rc -eq 77 ]; then
        say "skipped $name: $(tail -n 1 "$report.step")"
    else
        say "FAILED  $name (status $rc)"
        grep -E 'FAIL|ERROR|error|lagoon:|off by' "$report.step" | tail -n 25 | tee -a "$report"
        failed=1
    fi
}

# note NAME COMMAND...: the same, but it is no failure: the report gets the last line.
note() {
    name=$1
    shift
    "$@" > "$report.step" 2>&1
    say "noted   $name (status $?): $(tail -n 1 "$report.step" | cut -c 1-150)"
}

# figures PATTERN: those lines of the last step.
figures() {
    grep -E "$1" "$report.step" | tee -a "$report"
}

: > "$report"
"$build/tests/cuda/test_cuda" --only none > "$report.step" 2>&1
if [ $? -eq 77 ]; then
    cat "$report.step"
    exit 77
fi
say "$(head -n 1 "$report.step"), $(date -u +%Y-%m-%d), commit $(git describe --always --dirty 2>/dev/null)"
mini='models/mini.gguf models/mini-dflash.gguf'
tiny_s=tests/golden/laguna-tiny-s
for seed in 1 2; do
    step "ops, seed $seed" "$build/tests/cuda/test_cuda" --seed $seed
done
for seed in 3 4 5 6 7 8; do # what is read early is a matter of moments, and a step's rows are
    step "attention, seed $seed" "$build/tests/cuda/test_cuda" --only attention --seed $seed
done
for model in tiny-s tiny-xs tiny-s-q; do
    step "recorded model $model" "$build/tests/golden/test_model" $model cuda
done
step "recorded drafter" "$build/tests/golden/test_drafter" cuda
step "recorded rounds" "$build/tests/golden/test_speculation" cuda
# shellcheck disable=SC2086
step "replies with and without drafts" "$build/tests/mini/test_identity" $mini 200 128 1 cuda
step "soak, tiny" "$build/tests/golden/test_soak" cuda 10000 1 $tiny_s.gguf $tiny_s-dflash.gguf
# shellcheck disable=SC2086
step "soak, mini" "$build/tests/golden/test_soak" cuda 10000 1 $mini
if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck; do
        step "compute-sanitizer $tool, route" compute-sanitizer --tool $tool --error-exitcode 1 \
            "$build/tests/cuda/test_cuda" --only route
    done
    step "compute-sanitizer memcheck, a reply" compute-sanitizer --tool memcheck --error-exitcode 1 \
        "$build/lagoon" generate --device cuda --models models --mini -p 'What is 12 + 30?' --max-tokens 12 --temp 0
    # it takes one lane's arrival behind a barrier of its warp for no order, and names instructions that store
    # nothing (docs/performance.md)
    note "compute-sanitizer racecheck, a reply" compute-sanitizer --tool racecheck --error-exitcode 1 \
        "$build/lagoon" generate --device cuda --models models --mini -p 'What is 12 + 30?' --max-tokens 12 --temp 0
fi
step "server" python3 -B tests/cuda/serve.py "$build/lagoon" models cuda
step "images" "$build/bench/bench_paging" cuda
figures 'page|bus'
if [ "${CHECK_LAYERS:-4}" != 0 ]; then
    file=${TMPDIR:-/tmp}/lagoon-gpu-check.gguf
    step "synth" "$build/lagoon" synth --arch s-2.1 --layers "${CHECK_LAYERS:-4}" -o "$file"
    step "load, warm" "$build/lagoon" bench --device cuda -m "$file" --prompt 0 --gen 16 --reps 1 --warmup 0
    figures 'load  '
    rm -f "$file"
fi
for model in ${CHECK_MODELS:-s-2.1 xs-2.1}; do
    step "bench $model" "$build/lagoon" bench --device cuda --synthetic "$model" --prompt 4096 --gen 128 \
        --depth 1024,65536
    figures 'ceiling  |prefill  |decode  '
    step "drafts $model" "$build/lagoon" bench --device cuda --synthetic "$model" --with-drafter --prompt 0 --gen 64 \
        --depth 1024 --reps 3
    figures 'drafting at|^[0-9]+ +[0-9]+ +[0-9]+ '
done
rm -f "$report.step"
exit $failed
