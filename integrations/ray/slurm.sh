#!/usr/bin/env bash
# A command of Stormpetrel on all nodes of a Slurm allocation, through a Ray that lives as long as the job:
#   sbatch --nodes=4 slurm.sh events evaluate logs/ --keep study/
# `ray` and `stormpetrel` have to be on the PATH of the nodes. HEAD_ADDRESS: the first node's address in the private network, where it has several.
# Not `ray symmetric-run`: it ends with `ray stop`, which would end every Ray of the same user on a node; a step of Slurm ends with its own processes.
#SBATCH --job-name=stormpetrel
#SBATCH --ntasks-per-node=1
set -euo pipefail
umask 077

# Known to the processes of this job only: who has it can run anything as you on these nodes, for as long as the job runs.
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_TMPDIR="/tmp/ray-$SLURM_JOB_ID" BASE=$((20000 + SLURM_JOB_ID % 9000))
export AUTOSCALER_METRIC_PORT=$((BASE + 9000)) HEAD="${HEAD_ADDRESS:-$(hostname -I | awk '{ print $1 }')}"
mkdir -p "$RAY_TMPDIR"

# The batch script runs on the first node (SLURM_NODEID 0), and so does the head.
# shellcheck disable=SC2016
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpus-per-task="${SLURM_CPUS_ON_NODE:-1}" \
  bash -c '
    start=(ray start --block --disable-usage-stats --include-log-monitor=false --num-cpus="${SLURM_CPUS_ON_NODE:-1}"
      --dashboard-agent-listen-port="$((BASE + 27000 + SLURM_NODEID))" ${OBJECT_STORE_BYTES:+--object-store-memory="$OBJECT_STORE_BYTES"})
    if [ "$SLURM_NODEID" = 0 ]; then
      start+=(--head --node-ip-address="$HEAD" --port="$BASE" --ray-client-server-port="$((BASE + 18000))"
        --include-dashboard=false --temp-dir="$RAY_TMPDIR")
    else
      start+=(--address="$HEAD:$BASE")
    fi
    for _ in $(seq 20); do "${start[@]}"; sleep 2; done  # it blocks once it runs; a busy node, or no head yet, takes more than one try
  ' > "$RAY_TMPDIR/ray.log" 2>&1 &
ray=$!

# End the step, and remove its files on each node: a step that was ended returns an error, which must not end this function.
clean_up() {
  kill "$ray" 2>/dev/null || true
  wait "$ray" 2>/dev/null || true
  srun --quiet --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 rm -rf "$RAY_TMPDIR" 2>/dev/null || true
  rm -rf "$RAY_TMPDIR"
}
trap clean_up EXIT

for _ in $(seq 240); do
  [ -s "$RAY_TMPDIR/ray_current_cluster" ] && break
  kill -0 "$ray" 2>/dev/null || { cat "$RAY_TMPDIR/ray.log" >&2; exit 1; }
  sleep 1
done
RAY_ADDRESS="$HEAD:$BASE" stormpetrel "$@" --engine ray
