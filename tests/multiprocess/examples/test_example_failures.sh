#!/usr/bin/env bash
# Tests of the examples that survive failures: kill some processes, and check the output of the others.
#   test_example_failures.sh FABRIC REMO NAME PROGRAM
set -u

fabric=$1 remo=$2 name=$3 program=$4
scratch=$(mktemp -d)
launcher=

# The launcher ends its nodes when it gets SIGTERM.
clean() {
    [ -z "$launcher" ] || kill "$launcher" 2>/dev/null
    rm -rf "$scratch"
}
trap clean EXIT

fail() {
    echo "FAILED: $1" >&2
    sed 's/^/    out: /' "$scratch/out" >&2
    sed 's/^/    err: /' "$scratch/err" >&2
    exit 1
}

start() {
    : >"$scratch/out" # before the first read
    "$remo" run -n 4 --fabric "$fabric" -- "$program" >"$scratch/out" 2>"$scratch/err" &
    launcher=$!
}

# await COUNT PATTERN: wait until COUNT lines match; after 100 s, fail.
await() {
    local tries
    for ((tries = 0; tries < 2000; tries++)); do
        [ "$(grep -cE "$2" "$scratch/out")" -lt "$1" ] || return 0
        sleep 0.05
    done
    fail "not $1 lines with: $2"
}

# finish STATUS: wait for the launcher, which must end with this status.
finish() {
    wait "$launcher"
    local status=$?
    launcher=
    [ "$status" -eq "$1" ] || fail "status $status, not $1"
    ! grep -qE "^$name: " "$scratch/err" || fail "a node reports an error"
}

# process PATTERN: print the process number in the last line that matches.
process() {
    grep -E "$1" "$scratch/out" | tail -n 1 | sed -E 's/.*process ([0-9]+).*/\1/'
}

# The home of the lock is killed, leader or not; then two leaders, one after the other.
leader() {
    start
    await 4 ' has joined '
    await 1 ' leads term '
    kill -9 "$(process '^node 0 has joined')"
    await 1 ' with home [1-3] '
    kill -9 "$(process ' leads term ')"
    await 2 ' with home [1-3] '
    kill -9 "$(process ' leads term ')"
    await 1 ' is the last$'
    finish 137
    [ -z "$(grep -oE 'term [0-9]+' "$scratch/out" | sort | uniq -d)" ] || fail "a term was led twice"
    [ "$(grep -oE '^node [1-3] leads' "$scratch/out" | sort -u | wc -l)" -eq 3 ] || fail "a node never led"
}

# One node of four is killed: the keys of the other three remain.
map_after_failure() {
    start
    await 4 ' is ready '
    kill -9 "$(process "^node $1 is ready")"
    finish 137
    grep -q '^3 of 4 nodes remain; their map has 300 keys$' "$scratch/out" || fail "the map is wrong"
}

# A node that is not the owner is killed during its transfers: the sum stays.
bank() {
    local owner
    start
    await 4 ' transfers, '
    owner=$(grep -oE 'node [0-3] is the owner' "$scratch/out" | head -n 1 | tr -dc 0-3)
    kill -9 "$(process "^node $(((owner + $1) % 4)) transfers")"
    finish 137
    [ "$(grep -cE '^node [0-3]: the accounts have 6400 in all$' "$scratch/out")" -eq 3 ] ||
        fail "the sum is wrong"
}

# start_workers: start, and wait until all workers work. The work lasts for a third of a second.
start_workers() {
    start
    await 3 ' works '
}

# Two of three workers are killed. If they have done all work before, the run is repeated.
workers() {
    local tries status=0
    for ((tries = 0; tries < 100 && status == 0; tries++)); do
        start_workers
        kill -9 "$(process '^node 2 works')" 2>/dev/null
        sleep 0.1
        kill -9 "$(process '^node 3 works')" 2>/dev/null
        wait "$launcher"
        status=$?
        launcher=
        ! grep -q '^workers: ' "$scratch/err" || fail "a node reports an error"
        grep -q '^the squares of 1 to 1000 add up to 333833500$' "$scratch/out" || fail "the sum is wrong"
    done
    [ "$status" -eq 137 ] || fail "status $status, not 137"
}

# All workers are killed: node 0 ends with an error, unless they have done all work before.
no_workers() {
    local tries node
    for ((tries = 0; tries < 100; tries++)); do
        start_workers
        for node in 1 2 3; do
            kill -9 "$(process "^node $node works")" 2>/dev/null
        done
        wait "$launcher"
        launcher=
        grep -q '^the squares ' "$scratch/out" || break
    done
    grep -q '^workers: EHOSTDOWN: ' "$scratch/err" || fail "node 0 does not report the failure of all workers"
}

case $name in
bank)
    bank 1
    bank 3
    ;;
leader) leader ;;
map_after_failure)
    map_after_failure 0
    map_after_failure 3
    ;;
workers)
    workers
    no_workers
    start
    finish 0
    ;;
*) fail "no such example" ;;
esac
