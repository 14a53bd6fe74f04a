#!/usr/bin/env bash
# Makes data/TASK-SETTING-DEMOS.zarr, which a diffusion policy trains on, of RoboTwin's first DEMOS recordings, in a folder with
# RoboTwin's data/ (policy/DP). One that is there is replaced.
#
#   scripts/robotwin/process_data.sh TASK SETTING DEMOS [OPTION OF vla_worker data convert...]
#
# The recordings are ../../data/TASK/SETTING/data/episode*.hdf5, as RoboTwin's process_data.sh has it, or else
# data/TASK/SETTING/data/episode*.hdf5.
#
# Environment: DRY_RUN=1 prints the command and runs nothing.
#
#   scripts/robotwin/process_data.sh beat_block_hammer demo_clean 50
set -euo pipefail
source "$(dirname "$0")/robot_dp.sh"

case ${1:-} in -h | --help) print_help "$0"; exit ;; esac
(($# >= 3)) || usage_error "needed: TASK SETTING DEMOS, for example beat_block_hammer demo_clean 50; see --help"
is_number "$3" && (($3 > 0)) || usage_error "DEMOS must be 1 or more, not '$3'"
recordings=$(robot_dp_recordings "$1" "$2") ||
  usage_error "no recordings of task '$1' in $PWD: neither ../../data/$1/$2/data nor data/$1/$2/data has episode0.hdf5"
convert_robot_dp "$recordings" "data/$1-$2-$3.zarr" "$3" "${@:4}"
