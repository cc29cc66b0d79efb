#!/usr/bin/env bash
# Tests of srun --mpi=pmix, on a Slurm of one node that runs during this test: test_srun.sh MEMBER
# Needs Debian's slurm-client, slurmctld and slurmd. SLURM_ROOT is the folder in which they are unpacked, by
# default the root.
set -u

member=$1
root=${SLURM_ROOT-}
libraries=$root/usr/lib/x86_64-linux-gnu
scratch=$(mktemp -d)
pids=()

cleanup() {
    [ "${#pids[@]}" -eq 0 ] || kill "${pids[@]}" 2>/dev/null
    wait
    rm -rf "$scratch"
}
trap cleanup EXIT

fail() {
    echo "FAILED: $1" >&2
    tail -n 20 "$scratch"/out "$scratch"/err "$scratch"/*.log >&2
    exit 1
}

# find_program NAME: print the path of a program; Debian's daemons have a second name.
find_program() {
    local path
    for path in "$root/usr/sbin/$1-wlm" "$root/usr/sbin/$1" "$root/usr/bin/$1"; do
        [ ! -x "$path" ] || { echo "$path"; return; }
    done
    return 1
}

if ! { ctld=$(find_program slurmctld) && slurmd=$(find_program slurmd) && stepd=$(find_program slurmstepd) &&
    srun=$(find_program srun) && sinfo=$(find_program sinfo); }; then
    echo "skipped: no Slurm (packages slurm-client, slurmctld, slurmd)"
    exit 77
fi
[ "$(id -u)" -eq 0 ] || {
    echo "skipped: starting Slurm needs root"
    exit 77
}
export LD_LIBRARY_PATH=$libraries/slurm-wlm:$libraries SLURM_CONF=$scratch/slurm.conf

# Ports that are probably free, below the range of the kernel's ephemeral ports.
port=$((20000 + $$ % 10000))
mkdir "$scratch/state" "$scratch/spool"
cat >"$SLURM_CONF" <<END
ClusterName=remo
SlurmctldHost=$(hostname)(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/slurmd.pid
SlurmctldLogFile=$scratch/slurmctld.log
SlurmdLogFile=$scratch/slurmd.log
PluginDir=$libraries/slurm-wlm
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
NodeName=$(hostname) NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END

"$ctld" -D >"$scratch/ctld.log" 2>&1 &
pids+=($!)
"$slurmd" -D -d "$stepd" >"$scratch/d.log" 2>&1 &
pids+=($!)
for ((i = 0; i < 600; i++)); do
    ! "$sinfo" -h -o %t 2>/dev/null | grep -qx idle || break
    sleep 0.1
done
[ "$i" -lt 600 ] || fail "Slurm does not start"

# try NODES ARGUMENT...: run the members; their output is in $scratch/{out,err}.
try() {
    local nodes=$1
    shift
    timeout 120 "$srun" --mpi=pmix --overcommit -n "$nodes" "$member" "$@" >"$scratch/out" 2>"$scratch/err"
    status=$?
}

for nodes in 1 4; do
    try "$nodes"
    [ "$status" -eq 0 ] || fail "status $status"
    [ "$(grep -c "^rank [0-9]* of $nodes, job mpi-" "$scratch/out")" -eq "$nodes" ] ||
        fail "not all $nodes ranks have joined"
    [ "$(sed 's/.*job //' "$scratch/out" | sort -u | wc -l)" -eq 1 ] ||
        fail "the ranks have different names of the job"
done
try 2 --size 5
[ "$status" -ne 0 ] || fail "the wrong size is accepted"
grep -q 'the program gives 5 nodes, but PMIx (mpirun, srun) gives 2' "$scratch/err" ||
    fail "the wrong size is not reported"

# Without PMIx each task would be a job of one node. A program that runs in an allocation without srun is no
# task.
timeout 120 "$srun" --mpi=none --overcommit -n 2 "$member" >"$scratch/out" 2>"$scratch/err"
status=$?
[ "$status" -ne 0 ] || fail "srun without --mpi=pmix ran jobs of one node"
grep -q 'srun --mpi=pmix' "$scratch/err" || fail "no sentence names the option"
SLURM_NTASKS=4 "$member" >"$scratch/out" 2>"$scratch/err" ||
    fail "a start without srun inside an allocation is refused"
