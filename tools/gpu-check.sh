#!/bin/sh
# Everything about the CUDA backend that a machine with a card can show, in one command and one short report.
#
#   tools/gpu-check.sh [BUILD [REPORT]]      (build-gpu, BUILD/gpu-report.txt); CUDA_VISIBLE_DEVICES chooses the card
#
# Builds; holds every op to its reference (two seeds); the recorded models; compute-sanitizer over a part of the ops, when
# it is installed; then the benchmark at full size. A speed is never a failure. LAGOON_MODELS="s-2.1 xs-2.1" chooses what is
# measured. Exit status 0 when nothing failed, 77 without a card.
set -u
cd "$(dirname "$0")/.."
build=${1:-build-gpu}
report=${2:-$build/gpu-report.txt}
failed=0

[ -f "$build/build.ninja" ] || meson setup "$build" -Dcuda=enabled || exit 1
ninja -C "$build" lagoon tests/cuda/test_cuda tests/golden/test_model || exit 1

say() {
    echo "$*" | tee -a "$report"
}

# step NAME COMMAND...: runs it; the report gets the verdict and, when it failed, the last lines.
step() {
    name=$1
    shift
    "$@" > "$report.step" 2>&1
    rc=$?
    if [ $rc -eq 0 ]; then
        say "ok      $name"
    else
        say "FAILED  $name (status $rc)"
        grep -E 'FAIL|ERROR|error|lagoon:' "$report.step" | tail -25 | tee -a "$report"
        failed=1
    fi
}

: > "$report"
"$build/tests/cuda/test_cuda" --only none > "$report.step" 2>&1
if [ $? -eq 77 ]; then
    cat "$report.step"
    exit 77
fi
say "$(head -1 "$report.step"), $(date -u +%Y-%m-%d), commit $(git describe --always --dirty 2>/dev/null)"
for seed in 1 2; do
    step "ops, seed $seed" "$build/tests/cuda/test_cuda" --seed $seed
done
for model in tiny-s tiny-xs tiny-s-q; do
    step "recorded model $model" "$build/tests/golden/test_model" $model cuda
done
if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck; do
        step "compute-sanitizer $tool" compute-sanitizer --tool $tool --error-exitcode 1 "$build/tests/cuda/test_cuda" --only route
    done
fi
for model in ${LAGOON_MODELS:-s-2.1 xs-2.1}; do
    step "bench $model" "$build/lagoon" bench --device cuda --synthetic "$model" --prompt 4096 --gen 128 --depth 1024,65536
    grep -E 'ceiling  |prefill  |decode  ' "$report.step" | tee -a "$report"
done
rm -f "$report.step"
exit $failed
