#!/usr/bin/env bash
# Without /proc, as in a plain chroot, the commands that start themselves or other programs must work.
#   test_no_proc.sh REMO HELLO [SIM]      SIM: the simulator was built
# Skipped if this user cannot make a mount namespace.
set -u
remo=$1
hello=$2
sim=${3-}

if [ "${REMO_TEST_NO_PROC-}" != inside ]; then
    unshare --mount sh -c 'umount -l /proc && test ! -e /proc/self' 2>/dev/null || {
        echo "skipped: this user cannot unmount /proc in a mount namespace"
        exit 77
    }
    # shellcheck disable=SC2016 # for the inner shell
    REMO_TEST_NO_PROC=inside exec unshare --mount sh -c 'umount -l /proc && exec bash "$0" "$@"' "$0" "$@"
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# expect TEXT COMMAND...: the command ends with 0 and prints the text.
expect() {
    local text=$1
    shift
    if ! "$@" >"$scratch/out" 2>&1 || ! grep -q -- "$text" "$scratch/out"; then
        echo "FAILED: $*: no \"$text\", or a status other than 0:" >&2
        cat "$scratch/out" >&2
        exit 1
    fi
}

expect "/proc .*mount -t proc" "$remo" doctor
expect "of [1-9][0-9.]* GiB may be used" "$remo" doctor
expect '"bench":"read"' "$remo" bench read --seconds 0.1 --json
expect "equal to their last values" "$remo" demo --seconds 0.2
[ -z "$sim" ] || expect "" "$remo" sim --object lock --schedules 10
expect "add up to 1" "$remo" run -n 2 -- "$hello"
# The shell finds the command through PATH, or by a relative path.
cd "$(dirname "$remo")" || exit 1
expect '"bench":"read"' "./$(basename "$remo")" bench read --seconds 0.1 --json
expect '"bench":"read"' env PATH="$PWD:$PATH" "$(basename "$remo")" bench read --seconds 0.1 --json
