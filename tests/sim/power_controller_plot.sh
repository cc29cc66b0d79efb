#!/usr/bin/env bash
# The plot of LOCO's figure 7, as SVG and as PNG: power_controller_plot.sh SCRIPT PROGRAM
set -euo pipefail
script=$1
program=$2
command -v gnuplot >/dev/null || {
    echo "skipped: gnuplot is not installed"
    exit 77
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$script" "$scratch/it's.svg" "$program"
grep -q '>80 us<' "$scratch/it's.svg"
"$script" "$scratch/a.png" "$program"
[ "$(head -c 4 "$scratch/a.png" | tail -c 3)" = PNG ]
if "$script" "$scratch/a.pdf" "$program" 2>"$scratch/err"; then
    echo "a.pdf was accepted"
    exit 1
fi
grep -q 'end the name in .svg or .png' "$scratch/err"
