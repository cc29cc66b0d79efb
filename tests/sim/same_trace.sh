#!/usr/bin/env bash
# The same seed gives the same schedule, step by step, each time: same_trace.sh REMO-SIM
set -euo pipefail
sim=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for seed in 1 2 3 4 5 6 7; do
    for run in a b; do
        "$sim" --trace --object kv --case threads --profile rc_relaxed --seed "$seed" >"$folder/$run"
    done
    [ "$(wc -l <"$folder/a")" -gt 100 ] || { echo "seed $seed: a trace of nothing"; exit 1; }
    cmp "$folder/a" "$folder/b" || { echo "seed $seed: two traces"; exit 1; }
done
