#!/usr/bin/env bash
# Draw docs/power_controller.svg: LOCO's figure 7, on the simulated network with a clock.
#   examples/power_controller.sh build/examples/power_controller_sim docs/power_controller.svg
set -euo pipefail
program=$1
svg=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for loop in 10 20 40 50 60 80; do
    "$program" 21 "$loop" 10 >"$folder/$loop"
done
gnuplot <<END
set terminal svg size 1000,520 noenhanced background rgb 'white'
set output '$svg'
set multiplot layout 2,3 title 'Output of 20 DC/DC converters in series over time, by the period of the control loop (simulated network)'
set xrange [0:10]
set yrange [0:480]
set xlabel 'ms'
set ylabel 'V'
set grid
unset key
do for [loop in '10 20 40 50 60 80'] {
    set title loop.' us'
    plot '$folder/'.loop using (\$1 / 1000):2 with lines lc rgb '#1b6ca8'
}
unset multiplot
END
