#!/bin/bash
#SBATCH --job-name=covariance
#SBATCH --ntasks=4
#SBATCH --mem-per-cpu=2G
# A batch job, unchanged but for one line: every rank writes its own trace, and `memshim analyze trace.r0.jsonl` reads the job's.
export MEMSHIM_OUT='trace.r%r.jsonl'
srun env "$(memshim env)" python3 covariance.py 4000
