#!/usr/bin/env bash
# A command of Stormpetrel on all nodes of a Slurm allocation, through a Ray that lives as long as the job:
#   sbatch --nodes=4 --exclusive slurm.sh events evaluate logs/ --keep study/
# --exclusive: Ray's own end (`ray stop`) ends every Ray of the same user on a node.
#SBATCH --job-name=stormpetrel
#SBATCH --ntasks-per-node=1
set -euo pipefail
umask 077

# Known to this job's processes only. Who has it can run anything as you on these nodes while the job runs.
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(getent ahostsv4 "$head" | awk 'NR == 1 { print $1 }'):$((20000 + SLURM_JOB_ID % 10000))

exec srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpus-per-task="${SLURM_CPUS_ON_NODE:-1}" \
  ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" \
  --num-cpus="${SLURM_CPUS_ON_NODE:-1}" --include-dashboard=false --disable-usage-stats \
  -- env RAY_ADDRESS="$address" stormpetrel "$@" --engine ray
