#!/usr/bin/env bash
# Draw LOCO's figure 7: the output of examples/power_controller on the simulated network.
#   examples/power_controller.sh [FILE.svg|FILE.png [PROGRAM]]
set -euo pipefail

fail() {
    printf 'power_controller.sh: %s\n' "$*" >&2
    exit 1
}

top=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
file=${1-power_controller.svg}
program=${2-$top/build/examples/power_controller_sim}
case $file in
*.svg) terminal=svg ;;
*.png) terminal=pngcairo ;;
*) fail "cannot draw to '$file': unknown kind of picture; end the name in .svg or .png" ;;
esac
command -v gnuplot >/dev/null || fail "cannot draw: gnuplot is not installed; apt-get install gnuplot-nox"
[ -x "$program" ] || fail "cannot find $program: it is not built; run ./remo demo, which builds it"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for loop in 10 20 40 50 60 80; do
    "$program" 21 "$loop" 10 >"$folder/$loop"
done
title='Output of 20 DC/DC converters in series over time, by the period of the control loop'
gnuplot <<END
set terminal $terminal size 1000,520 noenhanced font 'sans,11' background rgb 'white'
set output '${file//\'/\'\'}'
set multiplot layout 2,3 title '$title (simulated network)'
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
echo "$file"
