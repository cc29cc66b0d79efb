#!/usr/bin/env bash
# A node does not change the signal handlers of its program, and loads the libraries of its own fabric only.
#   test_signals.sh REMO PROGRAM FABRIC      PROGRAM: tests/multiprocess/node/signals.c
set -u
set -m # a job in the background has its own process group

remo=$1
program=$2
fabric=$3
networks='lib(fabric|ibverbs|rdmacm|psm|infinipath|efa|pmix|munge)'
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ulimit -c 0

fail() {
    echo "FAILED: $1" >&2
    sed 's/^/    /' "$scratch"/* >&2
    exit 1
}

# expect STATUS COMMAND...: run a command; its output is in $scratch/{out,err}.
expect() {
    local expected=$1 status=0
    shift
    "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
    [ "$status" -eq "$expected" ] || fail "status $status instead of $expected of: $*"
}

# interrupted COMMAND...: start a command, wait until a node is ready, and send SIGINT as Ctrl-C does.
interrupted() {
    local status=0 i
    : >"$scratch/out" # the background process truncates it too late for the first grep
    env --default-signal=INT "$@" >"$scratch/out" 2>"$scratch/err" &
    for ((i = 0; i < 2000; i++)); do
        ! grep -q ready "$scratch/out" || break
        sleep 0.05
    done
    kill -INT -- "-$!"
    wait "$!" || status=$?
    [ "$status" -eq 130 ] || fail "status $status instead of 130 after SIGINT of: $*"
}

"$program" same "$fabric" 2>"$scratch/err"
case $? in
0) ;;
77)
    echo "skipped: $(cat "$scratch/err")"
    exit 77
    ;;
*) fail "signal handlers were replaced" ;;
esac

expect 0 "$program" loaded "$fabric"
grep -q libremo "$scratch/out" || fail "libremo.so is not among the libraries of a program that uses it"
if [ "$fabric" = shm ]; then
    ! grep -qE "$networks" "$scratch/out" || fail "a program on shared memory has loaded a network library"
else
    grep -qE "$networks" "$scratch/out" || fail "no network library is loaded on fabric $fabric"
fi

expect 139 "$program" crash "$fabric" # 128 + SIGSEGV
expect 139 "$remo" run -n 1 -- "$program" crash "$fabric"
grep -q 'killed by signal 11' "$scratch/err" || fail "remo run does not report a segmentation fault"

interrupted "$program" sleep "$fabric"
interrupted "$remo" run -n 1 -- "$program" sleep "$fabric"
