#!/usr/bin/env bash
# Run a program on NODES nodes, of which SURVIVORS print "passed" and the others fail on purpose.
#   run_nodes.sh REMO FABRIC NODES SURVIVORS PROGRAM [ARGUMENT...]
set -u

remo=$1 fabric=$2 nodes=$3 survivors=$4
shift 4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$remo" run -n "$nodes" --fabric "$fabric" --tag -- "$@" >"$scratch/out" 2>"$scratch/err"
status=$?
passed=$(grep -c 'passed$' "$scratch/out")
expected=0
[ "$survivors" -eq "$nodes" ] || expected=137 # killed by SIGKILL
if [ "$passed" -ne "$survivors" ] || [ "$status" -ne "$expected" ] || grep -q FAILED "$scratch/err"; then
    echo "status $status, $passed of $survivors nodes passed: $*"
    sed 's/^/    out: /' "$scratch/out"
    sed 's/^/    err: /' "$scratch/err"
    exit 1
fi
