#!/usr/bin/env bash
# Tests of the examples, with the launcher and without; and of the code in the tutorial and README, which must
# be that of the examples.
#   test_examples.sh FABRIC REMO HELLO DISPENSER POWER_CONTROLLER SOURCE_ROOT WINDOW FEED VERSIONS TASKS PI
#       POLL RPC STRUCTURE OUTBOX SHARD_MAP SENSORS
set -u

fabric=$1
remo=$2
hello=$3
dispenser=$4
power_controller=$5
top=$6
window=$7
feed=$8
versions=$9
tasks=${10}
pi=${11}
poll=${12}
rpc=${13}
structure=${14}
outbox=${15}
shard_map=${16}
sensors=${17}
here=${0%/*}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "FAILED: $1" >&2
    sed 's/^/    out: /' "$scratch/out" >&2
    sed 's/^/    err: /' "$scratch/err" >&2
    exit 1
}

# expect TEXT COMMAND...: the command succeeds, prints the text, and no errors.
expect() {
    local text=$1
    shift
    timeout 120 "$@" >"$scratch/out" 2>"$scratch/err" || fail "status $? of: $*"
    [ "$(cat "$scratch/out")" = "$text" ] || fail "not \"$text\" from: $*"
    [ ! -s "$scratch/err" ] || fail "errors from: $*"
}

run() {
    local text=$1 nodes=$2
    shift 2
    expect "$text" "$remo" run -n "$nodes" --fabric "$fabric" -- "$@"
}

# An error is reported by a sentence and the exit status.
refuses() {
    if REMO_FABRIC=pigeons "$hello" >"$scratch/out" 2>"$scratch/err"; then
        fail "hello runs on a fabric that does not exist"
    fi
    grep -q 'hello: EINVAL: there is no fabric called "pigeons"' "$scratch/err" ||
        fail "hello does not report the error"
}

# Each block of C in the tutorial is in a source below, without changes; the tutorial shows the whole object
# and the whole structure.
tutorial() {
    local fence='```' line block='' code=''
    local sources=("$top"/examples/{dispenser.c,directory.h,structure.c} "$here/test_tutorial.c")
    sed -n '/\[object\]/,/\[object\]/p' "$top/examples/dispenser.c" | sed '1d;$d' >"$scratch/built"
    truncate -s 0 "$scratch/out" "$scratch/err" "$scratch/shown"
    while IFS= read -r line; do
        if [ "$line" = "${fence}c" ]; then
            code=yes block=$'\n'
        elif [ "$line" = "$fence" ] && [ -n "$code" ]; then
            code=''
            printf '%s' "$block" | tee "$scratch/out" >>"$scratch/shown"
            [[ $(printf '\n' | cat - "${sources[@]}") == *"$block"* ]] ||
                fail "no example has this code of docs/tutorial.md"
        elif [ -n "$code" ]; then
            block+=$line$'\n'
        fi
    done <"$top/docs/tutorial.md"
    [ "$(wc -l <"$scratch/built")" -lt 60 ] || fail "the tutorial promises fewer than 60 lines"
    cat "$scratch/built" "$top/examples/directory.h" | grep -vxFf "$scratch/shown" >"$scratch/out" &&
        fail "docs/tutorial.md does not show these lines"
}

readme() {
    sed -n '/^.\{3\}c$/,/^.\{3\}$/p' "$top/README.md" | sed '1d;$d' >"$scratch/shown"
    diff "$top/examples/hello.c" "$scratch/shown" >"$scratch/out" ||
        fail "the code in README.md differs from examples/hello.c"
}

short() {
    local file
    for file in "$top"/examples/*.[ch]; do
        [ "$(wc -l <"$file")" -lt 100 ] || fail "$file has 100 lines or more"
    done
}

tutorial
readme
short
refuses
run 'the ranks of 4 nodes add up to 6' 4 "$hello"
run 'the ranks of 1 nodes add up to 0' 1 "$hello"
expect 'the ranks of 1 nodes add up to 0' env REMO_FABRIC="$fabric" "$hello"
run '9592 primes below 100000' 4 "$dispenser"
run '2262 primes below 20000' 3 "$dispenser" 20000
run '0 primes below 0' 2 "$dispenser" 0
run 'read 262144 words in a window of 16, 262144 of them right' 2 "$window"
run 'read 262144 words in a window of 1, 262144 of them right' 3 "$window" 1
run 'read 262144 words in a window of 64, 262144 of them right' 1 "$window" 64
run '2 nodes received 10000 lines in order' 3 "$feed"
run '0 nodes received 5 lines in order' 1 "$feed" 5
run 'version 10000 is the last; 256 bytes are in use' 3 "$versions"
run 'version 1 is the last; 256 bytes are in use' 1 "$versions" 1
run '64 of 64 tasks are at the end of 2000 links' 3 "$tasks"
run '1 of 1 tasks are at the end of 2000 links' 2 "$tasks" 1
run 'pi is 3.141592654 after 1000000 steps on 3 nodes' 3 "$pi"
run 'pi is 3.141800987 after 20 steps on 1 nodes' 1 "$pi" 20
run '3 nodes counted 35000 letters in 1000 calls' 3 "$rpc"
run '1 nodes counted 0 letters in 0 calls' 1 "$rpc" 0
run '32 keys of node 1: 0 local, 25 by a read, 7 by a call
32 keys of node 1: 0 local, 32 by a read, 0 by a call
key 0 of node 1 is absent: it has a new name' 3 "$structure"
run '32 keys of node 0: 32 local, 0 by a read, 0 by a call
32 keys of node 0: 32 local, 0 by a read, 0 by a call
key 0 of node 0 is absent: it has a new name' 1 "$structure"
run 'after 2000 changes the row has 1001000
after 2000 changes the copy has 1001000' 3 "$outbox"
run 'after 1000 changes the row has 500500
after 1000 changes the copy has 500500' 2 "$outbox"
run 'version 1001 is the last' 3 "$shard_map"
run 'version 6 is the last' 1 "$shard_map" 5
run 'no sensor was ahead of the one before it in 20 scans' 3 "$sensors" 320
run 'no sensor was ahead of the one before it in 1 scans' 1 "$sensors" 5
run 'node 0 received 20000 lines from 2 nodes' 3 "$poll"
run 'node 0 received 0 lines from 0 nodes' 1 "$poll" 5
# A sender waits until node 0 has opened its ring.
for _ in 1 2 3 4 5; do
    run 'node 0 received 2 lines from 2 nodes' 3 "$poll" 0
done
# A fifth of a second, a thousand times slower than real time: one line for each turn of the loop.
timeout 120 "$remo" run -n 3 --fabric "$fabric" -- "$power_controller" 40 0.19 1000 \
    >"$scratch/out" 2>"$scratch/err" || fail "status $? of power_controller"
[ "$(wc -l <"$scratch/out")" -eq 5 ] || fail "not 5 lines of power_controller"
