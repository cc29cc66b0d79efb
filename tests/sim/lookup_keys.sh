#!/usr/bin/env bash
# The tasks of a lookup take different keys, so their reads use different connections. If the cache of a card
# has room for two thirds of its connections, many requests miss it: the rate is below two thirds of that with
# a large cache. If all tasks of a batch looked up the same key, it would be above nine tenths. The simulated
# clock does not depend on the machine.
#   lookup_keys.sh REMO
set -euo pipefail
remo=$1

# rate CACHE-BYTES: print lookups per second of 4 nodes. A card has two connections of 375 bytes for each of
# the 20 threads of each of 3 peers.
rate() {
    "$remo" bench --fabric sim --json lookup --variant perfect --nodes 4 --active 4 --threads 20 --window 8 \
        --seconds 0.0002 --model nic_cache_bytes="$1" | sed -n 's/.*"ops_per_s":\([0-9]*\).*/\1/p'
}

large=$(rate 100000000)
small=$(rate 30000)
echo "large cache: $large lookups/s; small cache: $small lookups/s"
[ "$large" -gt 0 ] && [ "$small" -gt 0 ] && [ $((small * 3)) -lt $((large * 2)) ]
