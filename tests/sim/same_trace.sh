#!/usr/bin/env bash
# The same seed yields the same schedule, step by step, also with other memory addresses.
#   same_trace.sh REMO-SIM
set -euo pipefail
sim=$(realpath "$1")
traces=$(realpath "$(dirname "$0")")/traces
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# The trace of one schedule for each seed.
for seed in 1 2 3 4 5 6 7; do
    for run in a b; do
        # shellcheck disable=SC2086 # a command and its arguments
        ${MESON_EXE_WRAPPER-} "$sim" --trace --object kv --case threads --profile rc_relaxed \
            --seed "$seed" >"$run"
    done
    [ "$(wc -l <a)" -gt 100 ] || { echo "seed $seed: the trace is too short"; exit 1; }
    cmp a b || { echo "seed $seed: the traces differ"; exit 1; }
done

# A hash of all choices in many schedules, for every object, with and without faults; then the same at other
# addresses.
hashes() {
    "$@" "$traces" "$sim" --schedules 4
}
hashes env >a
grep -q '"trace":"' a || { echo "no hashes"; exit 1; }
hashes env >b
cmp a b || { echo "two runs made different choices"; exit 1; }
if setarch -R true 2>/dev/null; then
    hashes setarch -R >b
    cmp a b || { echo "choices depend on addresses"; exit 1; }
fi
