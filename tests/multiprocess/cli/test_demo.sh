#!/usr/bin/env bash
# Tests of remo demo: the records that it loads, its output, and the arguments that it refuses.
#   test_demo.sh REMO [FABRIC]
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

# expect_text FILE TEXT: the output (out) or the errors (err) contain the text.
expect_text() {
    grep -q -- "$2" "$folder/$1" || fail "\"$2\" is not in $1"
}

# Keys of several lengths, values from 0 bytes to some pages, a line that repeats a key, an empty line.
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
    expect_text out "500 records of"
    expect_text out "1 more are left out"
    expect_text out "read back  500 records"
    expect_text out "byte for byte"
    [ ! -s "$folder/err" ] || fail "a progress bar or an error in a pipe"
done

printf '%s\n' 'Package: one' 'Status: here' '' 'Package: two' 'Description: x' ' more of it' '' '' \
    'Package: three' >"$folder/packages"
demo 0 --file "$folder/packages" --nodes 4 --seconds 0.3
expect_text out "3 packages of"

demo 1 --file "$folder/nothing"
expect_text err "cannot read"
: >"$folder/empty"
demo 1 --file "$folder/empty"
expect_text err "no records"
printf 'key\tvalue\nno tab\n' >"$folder/bad"
demo 1 --file "$folder/bad"
expect_text err "bad:2: there is no tab"
printf '\tvalue\n' >"$folder/bad"
demo 1 --file "$folder/bad"
expect_text err "key is empty"
demo 2 --nodes 0
expect_text err "is not a number from 1"
demo 2 --seconds soon
expect_text err "is not a number"
demo 2 --fabric pigeons
expect_text err "no fabric 'pigeons'"

[ "$failed" -eq 0 ] && echo "ok"
exit "$failed"
