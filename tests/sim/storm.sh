#!/usr/bin/env bash
# The figures of Storm on few nodes: all pictures have curves, and the times without load are those of
# table 5, within 15 %. The simulated clock does not depend on the machine.
#   storm.sh SCRIPT BUILD
set -euo pipefail

command -v gnuplot >/dev/null || { echo "skipped: gnuplot is not installed"; exit 77; }
script=$1
build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$script" --build "$build" --quick --json "$folder/results" "$folder/first" | tee "$folder/table"
for picture in table5 figure4 figure5 figure6 figure7; do
    curves=$(grep -c '<g id="gnuplot_plot_' "$folder/first/$picture.svg" || true)
    [ "$curves" -ge 2 ] || { echo "$picture.svg has $curves curves"; exit 1; }
done
# The last two columns: the paper's figure, and the simulated one.
awk '/^table 5/ {ratio = $NF / $(NF - 1); n++; if (ratio < 0.85 || ratio > 1.15) wrong = 1}
    END {exit n != 2 || wrong}' "$folder/table" || { echo "table 5 differs"; exit 1; }

# With the results, nothing is simulated again.
mkdir -p "$folder/cli"
printf '#!/bin/sh\nexit 1\n' >"$folder/cli/remo"
chmod +x "$folder/cli/remo"
"$script" --build "$folder" --quick --json "$folder/results" "$folder/second" >"$folder/again"
cmp "$folder/table" "$folder/again"
if "$script" --build "$folder" --quick "$folder/third" >/dev/null 2>"$folder/errors"; then
    echo "a simulation that fails is not noticed"
    exit 1
fi
grep -q 'cannot simulate read' "$folder/errors"
