#!/usr/bin/env bash
# Trains RoboTwin's diffusion policy on several GPUs, in a folder with RoboTwin's data/ (policy/DP).
#
#   scripts/robotwin/train_multi_gpu.sh TASK SETTING DEMOS SEED GPUS [GPU_IDS] [WORKER OPTION...]
#
# The dataset is data/TASK.zarr (a merged one, such as six_tasks) or data/TASK-SETTING-DEMOS.zarr, which is made of the raw recordings
# if it is missing (see process_data.sh); the configuration, robot_dp_10, _14 or
# _16, follows from the width of its actions. Results: data/outputs/TASK-robot_dp-train_seedSEED. GPUS above what is visible means all.
# GPU_IDS (0,2,3) chooses them like CUDA_VISIBLE_DEVICES.
#
# Environment: DRY_RUN=1 prints the command and runs nothing.
#
#   scripts/robotwin/train_multi_gpu.sh six_tasks demo_clean 1200 0 4
set -euo pipefail
source "$(dirname "$0")/robot_dp.sh"

case ${1:-} in -h | --help) print_help "$0"; exit ;; esac
(($# >= 5)) || usage_error "needed: TASK SETTING DEMOS SEED GPUS, for example six_tasks demo_clean 1200 0 4; see --help"
task=$1 setting=$2 demos=$3 seed=$4 gpus=$5
shift 5
for number in "$demos" "$seed" "$gpus"; do
  is_number "$number" || usage_error "'$number' is not a number: needed are TASK SETTING DEMOS SEED GPUS"
done
((gpus > 0)) || usage_error "GPUS must be 1 or more, not $gpus"
if [[ ${1:-} =~ ^[0-9]+(,[0-9]+)*$ ]]; then
  export CUDA_VISIBLE_DEVICES=$1
  shift
fi
visible=$(visible_gpus)
if ((visible > 0 && gpus > visible)); then
  echo "${0##*/}: $gpus GPUs are asked for, $visible are visible: $visible are used" >&2
  gpus=$visible
fi
train_robot_dp "$task" "$setting" "$demos" "$seed" "$gpus" "$@"
