#!/usr/bin/env bash
# remo demo, from outside: what it loads, what it says, and what it refuses.  test_demo.sh REMO [FABRIC]
set -euo pipefail

remo=$1
fabric=${2-shm}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

fail() {
    echo "FAIL $1"
    sed 's/^/     /' "$folder/out" "$folder/err"
    failed=1
}

# demo STATUS ARGUMENT...: run it and compare the exit status.
demo() {
    local expected=$1 status=0
    shift
    "$remo" demo --fabric "$fabric" "$@" >"$folder/out" 2>"$folder/err" || status=$?
    [ "$status" -eq "$expected" ] || fail "demo $*: exit status $status, not $expected"
}

says() {
    grep -q -- "$2" "$folder/$1" || fail "\"$2\" is not in $1"
}

# Keys of mixed lengths, values from none to some pages, a line that repeats a key, an empty line.
awk 'BEGIN {
    for (i = 0; i < 500; i++) {
        value = ""
        for (j = 0; j < i % 60; j++)
            value = value "value " i " of the test, piece " j "; "
        printf "key%d%s\t%s\n", i, i % 7 == 0 ? "-which-is-rather-a-long-one" : "", value
    }
    print "key1\tanother value"
    print ""
}' >"$folder/records"

for nodes in 1 2 3; do
    demo 0 --file "$folder/records" --nodes "$nodes" --seconds 0.3
    says out "500 records of"
    says out "1 more are left out"
    says out "read back  500 records"
    says out "byte for byte"
    [ ! -s "$folder/err" ] || fail "a progress bar, or a complaint, in a pipe"
done

printf 'Package: one\nStatus: here\n\nPackage: two\nDescription: x\n more of it\n\n\nPackage: three\n' >"$folder/packages"
demo 0 --file "$folder/packages" --nodes 4 --seconds 0.3
says out "3 packages of"

demo 1 --file "$folder/nothing"
says err "cannot read"
: >"$folder/empty"
demo 1 --file "$folder/empty"
says err "no records"
printf 'key\tvalue\nno tab\n' >"$folder/bad"
demo 1 --file "$folder/bad"
says err "bad:2: there is no tab"
printf '\tvalue\n' >"$folder/bad"
demo 1 --file "$folder/bad"
says err "key is empty"
demo 2 --nodes 0
says err "is not a number from 1"
demo 2 --seconds soon
says err "is not a number"
demo 2 --fabric pigeons
says err "no fabric 'pigeons'"

[ "$failed" -eq 0 ] && echo "ok"
exit "$failed"
