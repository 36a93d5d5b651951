#!/bin/bash
# Made by `paceline render slurm`. Submit it with: sbatch FILE
#SBATCH --job-name=paceline
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:SIGUSR1@60
#SBATCH --requeue
#SBATCH --open-mode=append


set -o pipefail

# The job's secret: a file that its owner alone can read, where all nodes see it.
export PACELINE_SECRET_FILE="$PWD/.paceline-secret-$SLURM_JOB_ID"
rm -f -- "$PACELINE_SECRET_FILE"
if ! (umask 077 && set -C && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > "$PACELINE_SECRET_FILE"); then
    echo "paceline: no secret could be written to $PACELINE_SECRET_FILE. Submit from a folder of yours that all nodes see." >&2
    exit 78
fi
trap 'rm -f -- "$PACELINE_SECRET_FILE"' EXIT

# Slurm announces the end with SIGUSR1, to this shell alone.
step=
trap 'if [ -n "$step" ]; then kill -s USR1 "$step"; fi' USR1
# With SIGTERM Slurm ends the job itself, perhaps because it was cancelled: then it must not come back.
ended_by_slurm=no
trap 'ended_by_slurm=yes' TERM

srun \
    --nodes=2 \
    --ntasks-per-node=1 \
    --export=ALL \
    --mpi=none \
    --kill-on-bad-exit=0 \
    paceline run --workers 2 train.py --epochs 3 &
step=$!

# No `wait` before the job has ended: of two signals that interrupt one, bash may lose the second.
while kill -0 "$step" 2> /dev/null; do
    sleep 1
done
wait "$step"
code=$?
if [ "$code" -gt 128 ]; then  # by a signal, which has ended either the job or this wait for it
    wait "$step"
    again=$?
    if [ "$again" -ne 127 ]; then code=$again; fi  # 127: it was the job
fi

if [ "$code" -eq 75 ] && [ "$ended_by_slurm" = no ]; then
    echo "paceline: preempted; job $SLURM_JOB_ID goes back to the queue" >&2
    scontrol requeue "$SLURM_JOB_ID" || echo "paceline: requeue failed; submit the script again to go on" >&2
fi

exit "$code"
