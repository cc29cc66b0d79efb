#!/usr/bin/env bash
# Figure 1 of ROMe on few nodes: both pictures have a curve for each number of workers, and clients that scan
# do not slow down the workers. The simulated clock does not depend on the machine.
#   rome.sh SCRIPT BUILD
set -euo pipefail

command -v gnuplot >/dev/null || { echo "skipped: gnuplot is not installed"; exit 77; }
script=$1
build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$script" --build "$build" --quick "$folder" | tee "$folder/table"
for picture in figure1a figure1b; do
    curves=$(grep -c '<g id="gnuplot_plot_' "$folder/$picture.svg" || true)
    [ "$curves" -eq 2 ] || { echo "$picture.svg has $curves curves"; exit 1; }
done
awk '/^figure 1a/ {n++; if ($NF > 1.05) wrong = 1}
    /carries/ {n++; if (!($NF > 0.05 && $NF < 1)) wrong = 1}
    END {exit n != 3 || wrong}' "$folder/table" || { echo "the rates are wrong"; exit 1; }
