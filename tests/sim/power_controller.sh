#!/usr/bin/env bash
# LOCO's figure 7 in short, in virtual time: a control loop of 40 us settles, one of 60 us does not.
#   power_controller.sh PROGRAM
set -euo pipefail
# Print the largest deviation of the voltage from 240 V after the first 5 ms.
deviation() {
    "$program" 21 "$1" 8 | awk '
        $1 > 5000 {off = $2 > 240 ? $2 - 240 : 240 - $2; if (off > most) most = off; n++}
        END {if (n == 0) exit 1; printf "%d\n", most}'
}
program=$1
settled=$(deviation 40)
wild=$(deviation 60)
echo "off by $settled V with a loop of 40 us, by $wild V with 60 us"
[ "$settled" -le 2 ] && [ "$wild" -ge 50 ]
# With a slow network the loop of 40 us does not settle.
late=$("$program" 21 --model link_latency_ns=30000 40 8 | awk '$1 > 5000 && ($2 > 290 || $2 < 190)' | wc -l)
[ "$late" -gt 0 ] || { echo "the loop settles with 30 us of latency"; exit 1; }
