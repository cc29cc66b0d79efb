#!/usr/bin/env bash
# Tests of remo run, mpirun and srun: the environment of the nodes, and the status after their end.
#   test_run.sh REMO MEMBER [CASE...]       without cases: all except those of other hosts and mpirun
# A case that this machine cannot run is skipped; if all cases are skipped, the status is 77.
# Commands for the shells of the nodes are in single quotes:
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

# await_lines COUNT TEXT: wait until COUNT lines of the output contain TEXT.
await_lines() {
    local i
    for ((i = 0; i < 2000; i++)); do
        [ "$(grep -c -- "$2" "$scratch/out")" -lt "$1" ] || return 0
        sleep 0.05
    done
    fail "no $1 lines with \"$2\" within 100 s"
}

await_end() {
    local i
    for ((i = 0; i < 2000; i++)); do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.05
    done
    fail "process $1 has not ended"
}

await_nodes_end() {
    while read -r _ node; do
        await_end "$node"
    done < <(grep '^pid ' "$scratch/out")
}

# Print the first child of a process.
child_of() {
    ps -o pid= --ppid "$1" | head -n 1 | tr -d ' '
}

skip() {
    echo "   skipped: $1"
    skipped=$((skipped + 1))
}

# ---- the environment of the nodes ----------------------------------------------------------------

case_environment() {
    try env REMO_INCARNATION=3 "$remo" run -n 3 --fabric ofi -- \
        sh -c 'echo "$REMO_RANK/$REMO_SIZE $REMO_FABRIC ${REMO_INCARNATION-none}"'
    expect_status 0
    for rank in 0 1 2; do expect_lines 1 "^$rank/3 ofi none$"; done
    try "$remo" run -n 2 -- sh -c 'stat -c %a "$REMO_JOB_DIR" "$REMO_KEY_FILE"
        stat -c size=%s "$REMO_KEY_FILE"; echo "dir $REMO_JOB_DIR"'
    expect_status 0
    expect_lines 2 '^700$'
    expect_lines 2 '^600$'
    expect_lines 2 '^size=32$'
    [ ! -e "$(sed -n 's/^dir //p;T;q' "$scratch/out")" ] || fail "the job's folder was not removed"
    try env XDG_RUNTIME_DIR="$scratch" "$remo" run -- sh -c 'echo "$REMO_JOB_DIR"'
    expect_lines 1 "^$scratch/remo-"
}

# The key is neither in the environment nor in the command line of a process.
case_secret() {
    try "$remo" run -n 2 -- sh -c 'key=$(od -An -tx1 "$REMO_KEY_FILE" | tr -d " \n")
        test ${#key} = 64 || exit 1
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
    # Output that is far longer than the limit of a line is complete.
    try "$remo" run --tag -- sh -c 'head -c 100000 /dev/zero | tr "\0" x'
    [ "$(sed 's/^\[0\] //' "$scratch/out" | tr -d '\n' | wc -c)" -eq 100000 ] || fail "bytes are lost"
}

case_env() {
    try env INHERITED=before SECOND=old "$remo" run -n 2 --env FIRST=1=one --env INHERITED --env=SECOND= -- \
        sh -c 'echo "$FIRST $INHERITED ${SECOND-unset}."'
    expect_status 0
    expect_lines 2 '^1=one before \.$'
    for wrong in '=x' '1A=x' 'A-B=x' REMO_RANK=1 REMO_KEY_FILE NOT_SET_ANYWHERE $'A=a\nb'; do
        try "$remo" run --env "$wrong" -- true
        expect_status 2
        expect_error '--env='
    done
}

case_output() {
    try "$remo" run -n 3 --output "$scratch/logs" -- sh -c 'echo "one $REMO_RANK"; echo two >&2; printf three'
    expect_status 0
    [ ! -s "$scratch/out" ] || fail "output did not go to the files"
    for rank in 0 1 2; do
        [ "$(cat "$scratch/logs/rank-$rank.log")" = "one $rank"$'\ntwo\nthree' ] ||
            fail "the file of rank $rank is wrong"
    done
    try "$remo" run --output "$scratch/logs" -- echo again
    [ "$(cat "$scratch/logs/rank-0.log")" = again ] || fail "the file contains the output of an earlier run"
    try "$remo" run --output "$scratch/absent/logs" -- true
    expect_status 125
    expect_error "cannot make the output folder $scratch/absent/logs: .*; "
    try "$remo" run --output "$scratch/logs" --tag -- true
    expect_status 2
}

# The help lists every option.
case_help() {
    try "$remo" run --help
    expect_status 0
    for option in --nodes=N --fabric=FABRIC --hosts=FILE --pin --tag --output=DIR '--env=NAME\[=VALUE\]' \
        --timeout=SECONDS --kill-on-failure --version; do
        expect_lines 1 "^ .* $option"
    done
    for command in '' run demo doctor; do
        try "$remo" ${command:+"$command"} --version
        expect_status 0
        expect_lines 1 '^remo [0-9]*\.[0-9]*\.[0-9]*$'
    done
}

case_pin() {
    try "$remo" run -n 4 --pin -- \
        sh -c 'echo "$REMO_RANK $(sed -n "s/^Cpus_allowed_list:\t//p" /proc/self/status)"'
    expect_status 0
    local cpus=() expected
    mapfile -t cpus < <(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' |
        while IFS=- read -r first last; do seq "$first" "${last:-$first}"; done)
    for rank in 0 1 2 3; do
        expected=${cpus[$((rank % ${#cpus[@]}))]}
        expect_lines 1 "^$rank $expected$"
    done
}

# More descriptors than the soft limit allows; the nodes keep the limit of the user. A launcher that never
# ends fails here by its status of 137, not by the clock.
case_descriptors() {
    local pid i
    try bash -c 'ulimit -Sn 40; exec timeout -s KILL 100 "$@"' x "$remo" run -n 50 --tag -- sh -c 'ulimit -Sn'
    expect_status 0
    expect_lines 50 '^\[[0-9]*\] 40$'
    try bash -c 'ulimit -n 40; exec timeout -s KILL 100 "$@"' x "$remo" run -n 50 -- true
    expect_status 125
    expect_error 'cannot start 50 nodes: .* the hard limit is 40; raise it (ulimit -Hn)'
    # The limit shrinks while nodes run, so poll fails: the launcher kills the nodes and ends.
    if ! command -v prlimit >/dev/null; then
        skip "no prlimit"
        return
    fi
    : >"$scratch/out"
    timeout -s KILL 100 "$remo" run -n 12 -- sh -c 'echo "pid $$"; while :; do sleep 0.1; done' \
        >"$scratch/out" 2>"$scratch/err" &
    pid=$!
    await_lines 12 pid
    prlimit --pid "$(child_of "$pid")" --nofile=5
    kill "$(sed -n 's/pid //p;q' "$scratch/out")" # the launcher calls poll again
    wait "$pid"
    status=$?
    expect_status 125
    expect_error 'cannot wait for the nodes: '
    await_nodes_end
}

# ---- the end of the nodes ------------------------------------------------------------------------

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
    expect_status 126
    try env REMO_SSH="$scratch/absent" "$remo" run --hosts <(echo 192.0.2.1) -- true
    expect_status 125
    expect_error "there is no program $scratch/absent"
    try "$remo" run
    expect_status 2
    try "$remo" run -n 1000 -- true
    expect_status 2
}

case_first_failure_counts() {
    # Each node ends after the launcher has recorded the end of the node before it.
    try "$remo" run -n 3 -- sh -c '[ "$REMO_RANK" = 0 ] ||
        until grep -q "^$((REMO_RANK - 1)) " "$REMO_JOB_DIR/ended" 2>/dev/null; do sleep 0.1; done
        exit $((10 + REMO_RANK))'
    expect_status 10
}

case_kill_on_failure() {
    SECONDS=0
    try "$remo" run -n 3 --kill-on-failure -- sh -c '[ "$REMO_RANK" != 0 ] || exit 5; exec sleep 60'
    expect_status 5
    [ "$(wc -l <"$scratch/err")" -eq 1 ] || fail "more than the first failure is reported"
    try "$remo" run -n 3 --kill-on-failure -- sh -c '[ "$REMO_RANK" != 0 ] || { sleep 0.3; exit 5; }
        trap "" TERM; while :; do sleep 0.1; done'
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
    "$remo" run -n 2 -- sh -c 'trap "echo caught; exit 4" TERM; echo ready; while :; do sleep 0.05; done' \
        >"$scratch/out" 2>"$scratch/err" &
    local pid=$!
    await_lines 2 ready
    kill -TERM "$pid"
    wait "$pid"
    status=$?
    expect_status 4
    expect_lines 2 caught
}

# Signals that the launcher inherits as ignored have no effect on the job.
case_ignored_signals() {
    (
        trap '' HUP INT
        exec "$remo" run -n 2 -- sh -c 'echo ready; while [ ! -e "$0" ]; do sleep 0.1; done
            exit $((3 * REMO_RANK))' "$scratch/go"
    ) >"$scratch/out" 2>"$scratch/err" &
    local pid=$!
    await_lines 2 ready
    for _ in 1 2; do
        kill -HUP "$pid"
        kill -INT "$pid"
        sleep 0.2 # otherwise the second is merged with the first
    done
    touch "$scratch/go"
    wait "$pid"
    status=$?
    expect_status 3
    expect_error 'node 1 (process [0-9]*) ended with status 3'
}

# Print the folder of the job whose first node has printed its pid.
folder_of_job() {
    tr '\0' '\n' <"/proc/$(sed -n 's/pid //p;q' "$scratch/out")/environ" | sed -n 's/^REMO_JOB_DIR=//p'
}

await_removed() {
    local i
    for ((i = 0; i < 2000; i++)); do
        [ -e "$1" ] || return 0
        sleep 0.05
    done
    fail "$1 was not removed"
}

# job_start COMMAND COUNT: start two nodes of a shell in the background, which print COUNT process numbers.
# Sets $launcher and $folder.
job_start() {
    : >"$scratch/out" # the background process truncates it too late for await_lines
    XDG_RUNTIME_DIR=$scratch "$remo" run -n 2 -- sh -c "$1" >"$scratch/out" 2>"$scratch/err" &
    launcher=$!
    await_lines "$2" pid
    folder=$(folder_of_job)
    [ -d "$folder" ] || fail "no folder $folder"
}

# Children of wrapper scripts end when their job is stopped, also if they ignore SIGTERM.
case_children() {
    # Rank 2 fails, and so stops the job, when the other nodes have started their children.
    local fail_last='[ "$REMO_RANK" != 2 ] || {
            while [ ! -e "$0/0" ] || [ ! -e "$0/1" ]; do sleep 0.1; done
            rm "$0/0" "$0/1"; exit 5
        }; '
    try "$remo" run -n 3 --kill-on-failure -- \
        sh -c "$fail_last"'sleep 1000 & echo "pid $!"; touch "$0/$REMO_RANK"; wait' "$scratch"
    expect_status 5
    expect_lines 2 pid
    await_nodes_end
    try "$remo" run -n 3 --kill-on-failure -- sh -c "$fail_last"'
        (trap "" TERM; touch "$0/deaf-$REMO_RANK"; while :; do sleep 0.1; done) &
        echo "pid $!"; while [ ! -e "$0/deaf-$REMO_RANK" ]; do sleep 0.1; done
        touch "$0/$REMO_RANK"; wait' "$scratch"
    expect_status 5
    expect_lines 2 pid
    await_nodes_end
    try "$remo" run -n 2 --timeout 0.5 -- sh -c 'sleep 1000 & echo "pid $!"; wait'
    expect_status 124
    await_nodes_end
    # A child of a node that ends by itself is not stopped.
    try "$remo" run -- sh -c 'sleep 1000 >/dev/null & echo "pid $!"'
    expect_status 0
    kill "$(sed -n 's/^pid //p' "$scratch/out")" || fail "the child has ended"
}

# If the launcher is killed, its guard ends the nodes and their children, and removes the folder.
case_killed_launcher() {
    local launcher folder
    job_start 'sleep 1000 & echo "pid $$"; echo "pid $!"; wait' 4
    kill -KILL "$launcher"
    wait "$launcher" 2>/dev/null
    await_nodes_end
    await_removed "$folder"
}

# If the guard is killed as well, the next launcher removes the folder. It keeps the folder of a running job.
case_stale_folder() {
    local launcher folder guard live live_launcher
    job_start 'echo "pid $$"; exec sleep 1000' 2
    live=$folder
    live_launcher=$launcher
    job_start 'echo "pid $$"; exec sleep 1000' 2
    guard=$(ps -o pid=,comm= --ppid "$launcher" | sed -n 's/ *\([0-9]*\) remo-guard/\1/p')
    [ -n "$guard" ] || fail "no guard process"
    kill -KILL "$guard" "$launcher"
    wait "$launcher" 2>/dev/null
    await_nodes_end
    [ -e "$folder/key" ] || fail "the folder was removed before the next launcher: the test proves nothing"
    mkdir "$scratch/remo-r0123456789abcdef" # without a lock: of a launcher on another machine
    XDG_RUNTIME_DIR=$scratch try "$remo" run -- true
    expect_status 0
    [ ! -e "$folder" ] || fail "the folder of a killed launcher was not removed"
    [ -e "$live/key" ] || fail "the folder of a running job was removed"
    [ -d "$scratch/remo-r0123456789abcdef" ] || fail "a folder without a lock was removed"
    kill "$live_launcher"
    wait "$live_launcher"
    await_removed "$live"
}

# The reader of the output ends: nodes get SIGPIPE at their next write, and the folder is removed.
case_broken_pipe() {
    XDG_RUNTIME_DIR=$scratch timeout -s KILL 100 "$remo" run -n 2 --tag -- \
        sh -c 'while echo "pid $$"; do :; done' 2>"$scratch/err" | head -n 1 >"$scratch/out"
    status=${PIPESTATUS[0]}
    expect_status 141
    await_nodes_end
    [ -z "$(find "$scratch" -name 'remo-r*' -newer "$scratch/err")" ] ||
        fail "the job's folder was not removed"
}

# ---- members -------------------------------------------------------------------------------------

case_members() {
    for nodes in 1 2 8; do
        try "$remo" run -n "$nodes" --timeout 60 -- "$member"
        expect_status 0
        expect_lines "$nodes" "^rank [0-9]* of $nodes, job r"
    done
    # Nodes that start late, in any order.
    try "$remo" run -n 5 --timeout 60 -- sh -c 'sleep 0.$(( (REMO_RANK * 7 + 3) % 5 )); exec "$0"' "$member"
    expect_status 0
    expect_lines 5 'of 5'
    try "$remo" run -n 2 --timeout 60 -- "$member" --size 3
    expect_status 3
    expect_error 'the program gives 3 nodes, but its environment (remo run) gives 2'
}

case_failure_is_reported() {
    try "$remo" run -n 4 --timeout 60 -- "$member" --fail 2
    expect_status 137
    expect_error 'node 2 .* killed'
    expect_lines 3 'detected the failure of 2'
}

# If a node ends before it joins, its peers do not wait for the join timeout, whose sentence differs.
case_early_end() {
    try "$remo" run -n 3 -- sh -c '[ "$REMO_RANK" != 1 ] || exit 7; exec "$0" --open 0' "$member"
    expect_status 7
    local sentence='EHOSTDOWN: cannot join: node 1 ended with status 7 before it joined'
    [ "$(grep -c "$sentence" "$scratch/err")" -eq 2 ] || fail "the peers do not report the early end"
    # Also with a peer that begins to join later, and an end by a signal.
    try "$remo" run -n 2 -- sh -c '[ "$REMO_RANK" != 0 ] || kill -KILL $$; exec "$0" --open 500' "$member"
    expect_status 137
    expect_error 'EHOSTDOWN: cannot join: node 0 ended with status 137 before it joined'
    # A node that has joined, left and ended before its peers join has not ended early.
    try "$remo" run -n 4 -- sh -c 'exec "$0" --open $((REMO_RANK * 100))' "$member"
    expect_status 0
    expect_lines 4 'opened'
}

# Settings in the environment reach the nodes; invalid settings are refused.
case_settings() {
    try "$remo" run -n 2 --env REMO_LOG=info --env REMO_ARENA_BYTES=256M --env REMO_JOIN_TIMEOUT=100 -- \
        "$member" --open 0
    expect_status 0
    for rank in 0 1; do expect_error "^remo: node $rank: info: node $((1 - rank)) is up\$"; done
    try "$remo" run -n 2 -- "$member" --open 0
    [ ! -s "$scratch/err" ] || fail "messages without REMO_LOG"
    for wrong in REMO_LOG=loud REMO_ARENA_BYTES=many REMO_JOIN_TIMEOUT=0 REMO_OP_TIMEOUT=1s; do
        try "$remo" run --env "$wrong" -- "$member" --open 0
        expect_status 3
        expect_error "EINVAL: cannot open the node: ${wrong%%=*}="
    done
}

# A node without address space for the default reservation: all nodes of the job use the smallest one.
case_little_address_space() {
    local limited='[ "$REMO_RANK" != 1 ] || ulimit -v 4000000; exec "$0" --region "$1"'
    try "$remo" run -n 3 -- sh -c "$limited" "$member" 8
    expect_status 0
    expect_lines 3 ': opened$'
    try "$remo" run -n 3 -- sh -c "$limited" "$member" 4096
    expect_status 0
    expect_lines 3 ': ENOSPC$'
    # A size that was set is used, or the node is refused.
    try "$remo" run -n 2 --env REMO_ARENA_BYTES=64G -- sh -c "$limited" "$member" 8
    expect_status 3
    expect_error 'ENOMEM: cannot reserve 65536 MiB'
    try "$remo" run -n 2 -- \
        sh -c '[ "$REMO_RANK" = 1 ] || export REMO_ARENA_BYTES=64G; '"$limited" "$member" 8
    expect_status 3
    expect_error 'it has reserved .* MiB for its arena, .*REMO_ARENA_BYTES'
    try "$remo" run -n 2 -- \
        sh -c '[ "$REMO_RANK" = 1 ] || export REMO_ARENA_BYTES=128M; exec "$0" --region 256' "$member"
    expect_status 0
    expect_lines 2 ': ENOSPC$'
}

case_valgrind() {
    command -v valgrind >/dev/null || {
        skip "no valgrind"
        return
    }
    try "$remo" run -n 2 -- sh -c '[ "$REMO_RANK" = 1 ] || exec valgrind -q --error-exitcode=9 "$0" --region 8
        exec "$0" --region 8' "$member"
    expect_status 0
    expect_lines 2 ': opened$'
    try "$remo" run -n 2 -- valgrind -q --error-exitcode=9 "$member" --region 8
    expect_status 0
    expect_lines 2 ': opened$'
}

# Nodes in containers that share only the job's folder. Each has its own mounts (and /dev/shm), IPC, process
# numbers, network and host name.
case_containers() {
    mkdir "$scratch/run"
    unshare -m -i -p -n -u -f --mount-proc true 2>/dev/null || {
        skip "no namespaces for this user"
        return
    }
    try env XDG_RUNTIME_DIR="$scratch/run" "$remo" run -n 3 -- unshare -m -i -p -n -u -f --mount-proc sh -c '
        mount -t tmpfs none /dev/shm && mkdir /dev/shm/keep && mount --bind "$REMO_JOB_DIR" /dev/shm/keep &&
        mount -t tmpfs none "$XDG_RUNTIME_DIR" && mkdir "$REMO_JOB_DIR" &&
        mount --bind /dev/shm/keep "$REMO_JOB_DIR" &&
        REMO_FABRIC=shm exec "$0" --region 8' "$member"
    expect_status 0
    expect_lines 3 ': opened$'
}

# hidden_open RANK: open a node of a job of two on fabric shm. The folder of its Unix socket is its own, so
# the nodes connect by TCP, which carries no descriptors.
hidden_open() {
    REMO_RANK=$1 REMO_SIZE=2 REMO_FABRIC=shm REMO_ADDRESSES="$addresses" "${namespaces[@]}" sh -c '
        mount -t tmpfs none "$0" && exec timeout 100 "$1" --open 0' "$scratch/hidden" "$member"
}

# Nodes in containers that share no Unix socket: the error names the network that works there.
case_separate_containers() {
    local namespaces=(unshare -m) host=127.77.$(($$ / 256 % 256)).$(($$ % 256)) other addresses
    mkdir "$scratch/hidden"
    "${namespaces[@]}" mount -t tmpfs none "$scratch/hidden" 2>/dev/null || namespaces=(unshare -Urm)
    "${namespaces[@]}" mount -t tmpfs none "$scratch/hidden" 2>/dev/null || {
        skip "no mount namespaces for this user"
        return
    }
    addresses="unix:$scratch/hidden/0,tcp:$host:7001;unix:$scratch/hidden/1,tcp:$host:7002"
    hidden_open 1 >"$scratch/other" 2>&1 &
    other=$!
    try hidden_open 0
    wait "$other"
    expect_status 3
    cat "$scratch/other" >>"$scratch/err" # the peer may detect first that the other has ended
    expect_error 'EPROTO: node [01]: .*no Unix socket connects the nodes.*; set REMO_FABRIC=ofi on all nodes'
}

case_many_members() {
    local start=$EPOCHREALTIME
    try "$remo" run -n 64 --timeout 100 -- "$member"
    expect_status 0
    expect_lines 64 'of 64'
    awk -v a="$start" -v b="$EPOCHREALTIME" \
        'BEGIN { printf "   64 members, from start to end: %.0f ms\n", (b - a) * 1000 }'
}

# ---- other hosts ---------------------------------------------------------------------------------

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
    expect_status 125
    printf 'localhost slots=2\n127.0.0.1:7000\n' >"$scratch/hosts"
    try "$remo" run --hosts "$scratch/hosts" --timeout 60 -- "$member"
    expect_status 0
    expect_lines 3 'of 3'
}

# A replacement of ssh that runs the command on this machine, in another session. As ssh does, it ends on
# SIGTERM before the command ends. The address belongs to no machine.
case_far_children() {
    cat >"$scratch/ssh" <<'END'
#!/usr/bin/env bash
while [[ $1 == -* ]]; do shift; done
shift
setsid sh -c "$*" <&0 &
wait
END
    chmod +x "$scratch/ssh"
    echo 192.0.2.1 >"$scratch/hosts"
    REMO_SSH=$scratch/ssh "$remo" run --hosts "$scratch/hosts" -- sh -c '
        (trap "" TERM; echo deaf; while :; do sleep 0.1; done) &
        echo "pid $!"; echo "pid $$"; wait' >"$scratch/out" 2>"$scratch/err" &
    local pid=$!
    await_lines 2 pid
    await_lines 1 deaf
    kill "$pid"
    wait "$pid"
    status=$?
    expect_status 143
    await_nodes_end
}

# Two network namespaces, connected by a cable, represent two hosts; "ssh" enters one. The job's folder
# differs there, so Unix sockets do not connect the two.
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
    near=
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
    near_run --env "GREETING=it's me" --output "$scratch/logs" -- sh -c 'echo "$GREETING"'
    expect_status 0
    [ "$(cat "$scratch"/logs/rank-[0123].log | grep -c "^it's me\$")" -eq 4 ] ||
        fail "--env or --output has no effect on the other host"
    near_run -- sh -c '[ "$REMO_RANK" != 3 ] || exit 6'
    expect_status 6
    expect_error 'node 3 (on 10.99.7.2) ended with status 6'
    near_run -- sh -c '[ "$REMO_RANK" != 1 ] || exit 7; exec "$0" --open 0' "$member"
    expect_status 7
    [ "$(grep -c 'cannot join: node 1 ended with status 7' "$scratch/err")" -eq 3 ] ||
        fail "the other host does not report the early end"
    near_run --timeout 60 -- "$member" --fail 3
    expect_status 137
    expect_lines 3 'detected the failure of 3'
    # After the launcher's timeout the nodes on the other host end too.
    near_run --timeout 1 -- sh -c 'echo "pid $$"; exec sleep 1000'
    expect_status 124
    await_nodes_end
    near_run --timeout 1 -- sh -c 'sleep 1000 & echo "pid $!"; wait'
    expect_status 124
    await_nodes_end
    hosts_remove
}

# open_at HOST RANK KEY: open a node of a job with a node on each host. The timeout of the join is longer than
# that of the command.
open_at() {
    ip netns exec "$1" env REMO_RANK="$2" REMO_SIZE=2 REMO_FABRIC=ofi REMO_JOIN_TIMEOUT=1000000 \
        REMO_KEY_FILE="$scratch/key$3" REMO_ADDRESSES="tcp:10.99.7.1:7001;tcp:10.99.7.2:7002" \
        timeout 100 "$member" --open 0
}

# Nodes of two hosts: with different keys, both report the error at once; with one key, both join.
case_keys_of_other_hosts() {
    if [ "$(id -u)" -ne 0 ] || ! command -v ip >/dev/null || ! hosts_make; then
        skip "no network namespaces for this user"
        return
    fi
    for key in 1 2; do
        (umask 077 && printf '%064d' "$key" >"$scratch/key$key")
    done
    for far_key in 2 1; do
        open_at "$near" 0 1 >"$scratch/near" 2>&1 &
        try open_at "$far" 1 "$far_key"
        wait "$!"
        near_status=$?
        expect_status $((far_key == 1 ? 0 : 3))
        [ "$near_status" -eq "$status" ] || fail "status $near_status on one host, $status on the other"
        [ "$far_key" -eq 2 ] || continue
        expect_error 'EACCES: node 0: the credential is wrong'
        grep -q 'EACCES: node 1: the credential is wrong' "$scratch/near" ||
            fail "the near node reports: $(cat "$scratch/near")"
    done
    hosts_remove
}

# ---- mpirun --------------------------------------------------------------------------------------

case_mpirun() {
    local mpirun
    mpirun=$(command -v mpirun.openmpi) || { skip "no mpirun.openmpi"; return; }
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    for nodes in 1 4; do
        try timeout 60 "$mpirun" --oversubscribe --bind-to none -n "$nodes" "$member"
        expect_status 0
        expect_lines "$nodes" "^rank [0-9]* of $nodes, job mpi-"
        [ "$(sed 's/.*job //' "$scratch/out" | sort -u | wc -l)" -eq 1 ] ||
            fail "the ranks have different names of the job"
    done
    try timeout 60 "$mpirun" --oversubscribe --bind-to none -n 2 "$member" --size 5
    [ "$status" -ne 0 ] || fail "the wrong size is accepted"
    expect_error 'the program gives 5 nodes, but PMIx (mpirun, srun) gives 2'
    # mpirun ends the job at the first failure (README). With --enable-recovery the other nodes continue.
    try timeout 100 "$mpirun" --oversubscribe --bind-to none -n 2 \
        sh -c '[ "$OMPI_COMM_WORLD_RANK" != 1 ] || exit 7; exec sleep 1000'
    expect_status 7
    try timeout 100 "$mpirun" --enable-recovery --oversubscribe --bind-to none -n 4 "$member" --fail 2
    expect_lines 3 'detected the failure of 2'
    # The environment of PMIx without its server: the error names the remedy.
    try env PMIX_NAMESPACE=nothing PMIX_RANK=0 "$member"
    expect_status 3
    expect_error 'mpirun'
}

cases=(environment secret standard_input tag env output help pin descriptors status first_failure_counts
    kill_on_failure timeout signals ignored_signals children killed_launcher stale_folder broken_pipe members
    failure_is_reported early_end settings little_address_space valgrind containers separate_containers
    many_members bad_hosts far_children)
for name in "${@:-${cases[@]}}"; do
    echo "$name"
    : >"$scratch/out" # a case that waits for lines must not find those of an earlier case
    "case_$name"
    ran=$((ran + 1))
done
[ "$skipped" -lt "$ran" ] || exit 77
