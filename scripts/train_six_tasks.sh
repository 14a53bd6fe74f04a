#!/usr/bin/env bash
# Trains RoboTwin's diffusion policy on the merged dataset data/six_tasks.zarr with one GPU.
#
#   scripts/train_six_tasks.sh SETTING DEMOS SEED GPU_ID [WORKER OPTION...]
#
# The configuration, robot_dp_10, _14 or _16, follows from the width of the data's actions. Results:
# data/outputs/six_tasks-robot_dp-train_seedSEED. On several GPUs: scripts/robotwin/train_multi_gpu.sh.
#
# Environment: DRY_RUN=1 prints the command and runs nothing.
#
#   scripts/train_six_tasks.sh demo_clean 1200 0 0
set -euo pipefail
source "$(dirname "$0")/robotwin/robot_dp.sh"

case ${1:-} in -h | --help) print_help "$0"; exit ;; esac
(($# >= 4)) || usage_error "needed: SETTING DEMOS SEED GPU_ID, for example demo_clean 1200 0 0; see --help"
for number in "$2" "$3" "$4"; do
  is_number "$number" || usage_error "'$number' is not a number: needed are SETTING DEMOS SEED GPU_ID"
done
export CUDA_VISIBLE_DEVICES=$4
train_robot_dp six_tasks "$1" "$2" "$3" 1 "${@:5}"
