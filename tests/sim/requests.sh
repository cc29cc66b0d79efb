#!/usr/bin/env bash
# Requests that select no case of the simulator end with an error and a sentence: requests.sh REMO-SIM
set -euo pipefail
sim=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

[[ $("$sim" --version) == 'remo '[0-9]*.[0-9]*.[0-9]* ]] || {
    echo "--version does not print the version"
    exit 1
}
status=0
"$sim" --nope >out 2>&1 || status=$?
[ "$status" -eq 2 ] || { echo "an unknown option: status $status instead of 2"; exit 1; }

# refused SENTENCE ARGUMENT...
refused() {
    local sentence=$1
    shift
    if timeout 60 "$sim" "$@" >out 2>err; then
        echo "$*: status 0, although no case ran"
        exit 1
    fi
    grep -q -- "$sentence" err || { echo "$*: expected \"$sentence\", got:"; cat err; exit 1; }
    [ ! -s out ] || { echo "$*: printed a result"; exit 1; }
}

claimed='ibta_rc, rc_relaxed, efa, tcp, ofi, shm'
for object in atomic_var lock queue ringbuffer kv collective rpc structure table task tree tx; do
    refused "$object: it does not claim cxl_nc, because .*; it claims $claimed;" \
        --object "$object" --profile cxl_nc
done
refused 'lock: it does not claim cxl_nc' --object lock --search --profile cxl_nc
refused 'there is no profile nope' --profile nope
refused 'there is no object nope' --object nope
refused 'it has no case nope' --object lock --case nope
refused 'no object has such a case' --case nope
refused 'none of its cases is for this profile and fault' --object kv --case threads --fail-post

# Without --object, the objects that claim the profile run.
"$sim" --profile cxl_nc --schedules 1 >out 2>err
if [ "$(wc -l <out)" -ne 7 ] || [ "$(wc -l <err)" -ne 12 ]; then
    cat out err
    exit 1
fi
