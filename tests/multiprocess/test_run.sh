#!/usr/bin/env bash
# remo run, mpirun and their like: what nodes are given, what becomes of their ends.
#   test_run.sh REMO MEMBER [CASE...]       without cases: all but other_hosts and mpirun
# A case that this machine cannot run says so; with only such cases the status is 77.
# Much of this is meant for the shells of the nodes, and stands in single quotes:
# shellcheck disable=SC2016
set -u

remo=$1
member=$2
shift 2
scratch=$(mktemp -d)
ran=0
skipped=0
near=
far=

cleanup() {
    [ -z "$near" ] || hosts_remove
    rm -rf "$scratch"
}
trap cleanup EXIT

fail() {
    echo "FAILED: $1" >&2
    sed 's/^/    out: /' "$scratch/out" >&2
    sed 's/^/    err: /' "$scratch/err" >&2
    exit 1
}

# Run a command; its output is in $scratch/{out,err}, its status in $status.
try() {
    "$@" >"$scratch/out" 2>"$scratch/err"
    status=$?
}

expect_status() {
    [ "$status" -eq "$1" ] || fail "status $status instead of $1"
}

expect_lines() {
    local count
    count=$(grep -c -- "$2" "$scratch/out")
    [ "$count" -eq "$1" ] || fail "$count lines with \"$2\" instead of $1"
}

expect_error() {
    grep -q -- "$1" "$scratch/err" || fail "no \"$1\" on standard error"
}

# Wait until so many lines of the output hold a text.
await_lines() {
    local i
    for ((i = 0; i < 200; i++)); do
        [ "$(grep -c -- "$2" "$scratch/out")" -lt "$1" ] || return 0
        sleep 0.05
    done
    fail "no $1 lines with \"$2\" within 10 s"
}

await_end() {
    local i
    for ((i = 0; i < 200; i++)); do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.05
    done
    fail "process $1 was left behind"
}

nodes_gone() {
    while read -r _ node; do
        await_end "$node"
    done < <(grep '^pid ' "$scratch/out")
}

skip() {
    echo "   skipped: $1"
    skipped=$((skipped + 1))
}

# ---- what the nodes are given -------------------------------------------------------------------------------------

case_environment() {
    try env REMO_INCARNATION=3 "$remo" run -n 3 --fabric ofi -- sh -c 'echo "$REMO_RANK/$REMO_SIZE $REMO_FABRIC ${REMO_INCARNATION-none}"'
    expect_status 0
    for rank in 0 1 2; do expect_lines 1 "^$rank/3 ofi none$"; done
    try "$remo" run -n 2 -- sh -c 'stat -c %a "$REMO_JOB_DIR" "$REMO_KEY_FILE"; stat -c size=%s "$REMO_KEY_FILE"; echo "dir $REMO_JOB_DIR"'
    expect_status 0
    expect_lines 2 '^700$'
    expect_lines 2 '^600$'
    expect_lines 2 '^size=32$'
    [ ! -e "$(sed -n 's/^dir //p;T;q' "$scratch/out")" ] || fail "the job's folder is still there"
    try env XDG_RUNTIME_DIR="$scratch" "$remo" run -- sh -c 'echo "$REMO_JOB_DIR"'
    expect_lines 1 "^$scratch/remo-"
}

# The key is nowhere where others could read it.
case_secret() {
    try "$remo" run -n 2 -- sh -c 'key=$(od -An -tx1 "$REMO_KEY_FILE" | tr -d " \n"); test ${#key} = 64 || exit 1
        for file in /proc/self/environ /proc/self/cmdline /proc/$PPID/environ /proc/$PPID/cmdline; do
            tr "\0" "\n" <$file | grep -qi "$key" && exit 9; done; exit 0'
    expect_status 0
}

case_standard_input() {
    try "$remo" run -n 3 -- sh -c 'sed "s/^/$REMO_RANK:/"' <<<"hello"
    expect_status 0
    expect_lines 1 '^0:hello$'
    expect_lines 1 ':'
}

case_tag() {
    try "$remo" run -n 2 --tag -- sh -c 'printf "one\ntwo"; echo three >&2'
    expect_status 0
    for rank in 0 1; do
        expect_lines 1 "^\[$rank\] one$"
        expect_lines 1 "^\[$rank\] two$"
        expect_error "^\[$rank\] three$"
    done
    # Far longer than a line may be: nothing is lost.
    try "$remo" run --tag -- sh -c 'head -c 100000 /dev/zero | tr "\0" x'
    [ "$(sed 's/^\[0\] //' "$scratch/out" | tr -d '\n' | wc -c)" -eq 100000 ] || fail "bytes are lost"
}

case_pin() {
    try "$remo" run -n 4 --pin -- sh -c 'echo "$REMO_RANK $(sed -n "s/^Cpus_allowed_list:\t//p" /proc/self/status)"'
    expect_status 0
    local cpus=() expected
    mapfile -t cpus < <(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | while IFS=- read -r first last; do seq "$first" "${last:-$first}"; done)
    for rank in 0 1 2 3; do
        expected=${cpus[$((rank % ${#cpus[@]}))]}
        expect_lines 1 "^$rank $expected$"
    done
}

# ---- how they end --------------------------------------------------------------------------------------------------

case_status() {
    try "$remo" run -n 3 -- sh -c '[ "$REMO_RANK" != 1 ] || exit 7'
    expect_status 7
    expect_error '^remo run: node 1 (process [0-9]*) ended with status 7$'
    try "$remo" run -n 3 -- sh -c '[ "$REMO_RANK" != 2 ] || kill -9 $$; sleep 0.2; echo alive'
    expect_status 137
    expect_error '^remo run: node 2 (process [0-9]*) was killed by signal 9 (Killed)$'
    expect_lines 2 alive
    try "$remo" run -n 2 -- "$scratch/absent"
    expect_status 127
    expect_error "$scratch/absent"
    try "$remo" run -n 2 -- "$scratch"
    expect_status 125
    try "$remo" run
    expect_status 2
    try "$remo" run -n 1000 -- true
    expect_status 2
}

case_first_failure_counts() {
    try "$remo" run -n 3 -- sh -c 'sleep $REMO_RANK; exit $((10 + REMO_RANK))'
    expect_status 10
}

case_kill_on_failure() {
    SECONDS=0
    try "$remo" run -n 3 --kill-on-failure -- sh -c '[ "$REMO_RANK" != 0 ] || exit 5; exec sleep 60'
    expect_status 5
    [ "$(wc -l <"$scratch/err")" -eq 1 ] || fail "more than the first failure is reported"
    try "$remo" run -n 3 --kill-on-failure -- sh -c '[ "$REMO_RANK" != 0 ] || { sleep 0.3; exit 5; }; trap "" TERM; while :; do sleep 0.1; done'
    expect_status 5
    [ "$SECONDS" -lt 50 ] || fail "took $SECONDS s"
}

case_timeout() {
    SECONDS=0
    try "$remo" run -n 2 --timeout 0.5 -- sleep 60
    expect_status 124
    expect_error 'have not ended'
    [ "$SECONDS" -lt 50 ] || fail "took $SECONDS s"
}

case_signals() {
    "$remo" run -n 2 -- sh -c 'trap "echo caught; exit 4" TERM; echo ready; while :; do sleep 0.05; done' >"$scratch/out" 2>"$scratch/err" &
    local pid=$!
    await_lines 2 ready
    kill -TERM "$pid"
    wait "$pid"
    status=$?
    expect_status 4
    expect_lines 2 caught
    # A launcher that is killed takes its nodes with it.
    "$remo" run -n 2 -- sh -c 'echo "pid $$"; exec sleep 60' >"$scratch/out" 2>"$scratch/err" &
    pid=$!
    await_lines 2 pid
    local folder
    folder=$(tr '\0' '\n' <"/proc/$(sed -n 's/pid //p;q' "$scratch/out")/environ" | sed -n 's/^REMO_JOB_DIR=//p')
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
    nodes_gone
    rm -rf "${folder:?}"
}

# ---- real members ---------------------------------------------------------------------------------------------------

case_members() {
    for nodes in 1 2 8; do
        try "$remo" run -n "$nodes" --timeout 60 -- "$member"
        expect_status 0
        expect_lines "$nodes" "^rank [0-9]* of $nodes, job r"
    done
    # Nodes that start late, in no order.
    try "$remo" run -n 5 --timeout 60 -- sh -c 'sleep 0.$(( (REMO_RANK * 7 + 3) % 5 )); exec "$0"' "$member"
    expect_status 0
    expect_lines 5 'of 5'
    try "$remo" run -n 2 --timeout 60 -- "$member" --size 3
    expect_status 3
    expect_error 'the program says 3 nodes, but its environment (remo run) says 2'
}

case_death_is_told() {
    try "$remo" run -n 4 --timeout 60 -- "$member" --die 2
    expect_status 137
    expect_error 'node 2 .* killed'
    expect_lines 3 'was told of 2'
}

case_many_members() {
    local start=$EPOCHREALTIME
    try "$remo" run -n 64 --timeout 100 -- "$member"
    expect_status 0
    expect_lines 64 'of 64'
    awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "   64 members, from start to end: %.0f ms\n", (b - a) * 1000 }'
}

# ---- other hosts ----------------------------------------------------------------------------------------------------

case_bad_hosts() {
    printf 'localhost slots=2\nlocalhost port\n' >"$scratch/hosts"
    try "$remo" run --hosts "$scratch/hosts" -- true
    expect_status 125
    expect_error "$scratch/hosts:2: "
    printf 'localhost\n' >"$scratch/hosts"
    try "$remo" run -n 2 --hosts "$scratch/hosts" -- true
    expect_status 125
    expect_error 'slots for 1'
    printf 'localhost\nhost.invalid\n' >"$scratch/hosts"
    try "$remo" run --hosts "$scratch/hosts" -- true
    expect_status 125
    expect_error 'cannot reach localhost'
    try "$remo" run --hosts "$scratch/absent" -- true
    expect_status 127
    printf 'localhost slots=2\n127.0.0.1:7000\n' >"$scratch/hosts"
    try "$remo" run --hosts "$scratch/hosts" --timeout 60 -- "$member"
    expect_status 0
    expect_lines 3 'of 3'
}

# Two network namespaces joined by a cable stand for two hosts; "ssh" enters one. There the job's folder is another one, so that
# Unix sockets do not reach across.
hosts_make() {
    near=remo-near-$$
    far=remo-far-$$
    { ip netns add "$near" && ip netns add "$far" &&
        ip -n "$near" link add cable type veth peer name cable netns "$far" &&
        ip -n "$near" addr add 10.99.7.1/24 dev cable && ip -n "$far" addr add 10.99.7.2/24 dev cable &&
        ip -n "$near" link set cable up && ip -n "$far" link set cable up &&
        ip -n "$near" link set lo up && ip -n "$far" link set lo up; } 2>/dev/null || return 1
    cat >"$scratch/ssh" <<END
#!/usr/bin/env bash
while [[ \$1 == -* ]]; do shift; done
[ "\$1" = 10.99.7.2 ] || exit 255
shift
folder=\$(grep -o '/tmp/remo-r[0-9a-f]*' <<<"\$*" | head -n 1)
export folder command="\$*"
exec ip netns exec $far env -i PATH="\$PATH" folder="\$folder" command="\$command" \
    unshare -m sh -c 'mount -t tmpfs -o mode=700 tmpfs "\$folder"; exec sh -c "\$command"'
END
    chmod +x "$scratch/ssh"
    printf '10.99.7.1 slots=2\n10.99.7.2 slots=2\n' >"$scratch/hosts"
}

hosts_remove() {
    ip netns del "$near" 2>/dev/null
    ip netns del "$far" 2>/dev/null
}

near_run() {
    try ip netns exec "$near" env REMO_SSH="$scratch/ssh" "$remo" run --hosts "$scratch/hosts" "$@"
}

case_other_hosts() {
    if [ "$(id -u)" -ne 0 ] || ! command -v ip >/dev/null || ! hosts_make; then
        skip "no network namespaces for this user"
        return
    fi
    near_run --timeout 60 -- "$member" && expect_status 0 && expect_lines 4 'of 4'
    near_run -- sh -c 'echo "$REMO_RANK $PWD $1 $REMO_BIND"' x "it's \"quoted\" \$HOME"
    expect_status 0
    expect_lines 1 "^0 $PWD it's \"quoted\" \$HOME 10.99.7.1\$"
    expect_lines 1 "^3 $PWD it's \"quoted\" \$HOME 10.99.7.2\$"
    near_run -- sh -c '[ "$REMO_RANK" != 3 ] || exit 6'
    expect_status 6
    expect_error 'node 3 (on 10.99.7.2) ended with status 6'
    near_run --timeout 60 -- "$member" --die 3
    expect_status 137
    expect_lines 3 'was told of 3'
    # The nodes over there end with the launcher's patience.
    near_run --timeout 1 -- sh -c 'echo "pid $$"; exec sleep 60'
    expect_status 124
    nodes_gone
}

# ---- mpirun ---------------------------------------------------------------------------------------------------------

case_mpirun() {
    local mpirun
    mpirun=$(command -v mpirun.openmpi) || { skip "no mpirun.openmpi"; return; }
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    for nodes in 1 4; do
        try timeout 60 "$mpirun" --oversubscribe --bind-to none -n "$nodes" "$member"
        expect_status 0
        expect_lines "$nodes" "^rank [0-9]* of $nodes, job mpi-"
        [ "$(sed 's/.*job //' "$scratch/out" | sort -u | wc -l)" -eq 1 ] || fail "the ranks disagree about the job's name"
    done
    try timeout 60 "$mpirun" --oversubscribe --bind-to none -n 2 "$member" --size 5
    [ "$status" -ne 0 ] || fail "a contradiction is not noticed"
    expect_error 'the program says 5 nodes, but PMIx (mpirun, srun) says 2'
    # The launcher's name is not enough: without a server it is said what to do.
    try env PMIX_NAMESPACE=nothing PMIX_RANK=0 "$member"
    expect_status 3
    expect_error 'mpirun'
}

cases=(environment secret standard_input tag pin status first_failure_counts kill_on_failure timeout signals members death_is_told
    many_members bad_hosts)
for name in "${@:-${cases[@]}}"; do
    echo "$name"
    "case_$name"
    ran=$((ran + 1))
done
[ "$skipped" -lt "$ran" ] || exit 77
