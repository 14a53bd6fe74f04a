#!/usr/bin/env bash
# The commands that the scripts of RoboTwin's diffusion policy make of their arguments and the data.
source "$(dirname "$0")/check.sh"
unset CUDA_VISIBLE_DEVICES
export DRY_RUN=1 CXXRUN_FAKE_GPUS=4

# make_data NAME WIDTH
make_data() {
  mkdir -p "data/$1.zarr/data/action"
  printf '{"chunks": [100, %s],\n "shape": [\n 25,\n %s ], "zarr_format": 2}' "$2" "$2" >"data/$1.zarr/data/action/.zarray"
}

multi_gpu() { "$root/scripts/robotwin/train_multi_gpu.sh" "$@"; }

expected() { # GPUS WIDTH DATASET TASK SEED
  echo "$root/build/release/bin/cxxrun --nproc_per_node=$1 vla_worker --config $root/configs/robot_dp_$2.yaml --dataset.root=data/$3.zarr \
--seed=$5 --experiment_name=$4-robot_dp-train --output_dir=data/outputs/$4-robot_dp-train_seed$5"
}

test_the_configuration_follows_from_the_width_of_the_actions() {
  local width
  for width in 10 14 16; do
    make_data six_tasks "$width"
    expect_equal "$(expected 4 "$width" six_tasks six_tasks 0)" "$(multi_gpu six_tasks demo_clean 1200 0 4)"
  done
}

test_another_width_is_warned_of() {
  make_data six_tasks 7
  expect_contains "have 7 numbers" "$(multi_gpu six_tasks demo_clean 1200 0 4 2>&1 >/dev/null)"
}

test_a_task_of_its_own_has_setting_and_demos_in_its_name() {
  make_data beat_block-demo_clean-50 14
  expect_equal "$(expected 2 14 beat_block-demo_clean-50 beat_block 3) --steps=10" "$(multi_gpu beat_block demo_clean 50 3 2 --steps=10)"
}

test_the_merged_dataset_may_be_written_with_a_dash() {
  make_data six-tasks 14
  expect_contains "--dataset.root=data/six-tasks.zarr" "$(multi_gpu six_tasks demo_clean 1200 0 2)"
}

test_more_gpus_than_there_are_means_all() {
  make_data six_tasks 14
  expect_contains "--nproc_per_node=4" "$(multi_gpu six_tasks demo_clean 1200 0 8 2>/dev/null)"
  expect_contains "--nproc_per_node=2" "$(multi_gpu six_tasks demo_clean 1200 0 8 1,3 2>/dev/null)"
}

test_six_tasks_on_one_gpu() {
  make_data six_tasks 16
  expect_equal "$(expected 1 16 six_tasks six_tasks 7)" "$("$root/scripts/train_six_tasks.sh" demo_clean 1200 7 0)"
}

# make_recordings FOLDER
make_recordings() {
  mkdir -p "$1/data/beat_block/demo_clean/data"
  touch "$1/data/beat_block/demo_clean/data/episode0.hdf5"
}

process_data() { "$root/scripts/robotwin/process_data.sh" "$@"; }

converted() { # RECORDINGS
  echo "$root/build/release/bin/vla_worker data convert $1/beat_block/demo_clean/data data/beat_block-demo_clean-50.zarr --episodes 50 --overwrite"
}

test_recordings_are_converted() {
  mkdir -p policy/DP
  make_recordings policy/DP
  cd policy/DP
  expect_equal "$(converted data)" "$(process_data beat_block demo_clean 50)"
  make_recordings ../..
  expect_equal "$(converted ../../data) --camera left_camera" "$(process_data beat_block demo_clean 50 --camera left_camera)"
}

test_a_missing_dataset_is_made_of_recordings() {
  make_recordings .
  expect_equal "$(converted data)" "$(multi_gpu beat_block demo_clean 50 3 2 2>/dev/null)"
  make_data beat_block-demo_clean-50 14
  expect_equal "$(expected 2 14 beat_block-demo_clean-50 beat_block 3)" "$(multi_gpu beat_block demo_clean 50 3 2)"
}

test_the_converter_is_built_and_its_failure_ends_the_training() {
  copy_project
  printf '#!/bin/bash\necho "built: $*"\n' >"$project/scripts/build.sh"
  mkdir -p "$project/build/release/bin"
  printf '#!/bin/bash\necho "ran: $*"; exit 5\n' >"$project/build/release/bin/vla_worker"
  chmod +x "$project/build/release/bin/vla_worker"
  make_recordings .
  export DRY_RUN=0
  expect_failure 5 "built: release cxxrun vla_worker
ran: data convert data/beat_block/demo_clean/data data/beat_block-demo_clean-50.zarr --episodes 50 --overwrite" \
    "$project/scripts/robotwin/train_multi_gpu.sh" beat_block demo_clean 50 3 2
}

test_what_is_wrong_is_named() {
  expect_failure 2 "needed: TASK SETTING DEMOS" process_data beat_block demo_clean
  expect_failure 2 "DEMOS must be 1 or more, not '0'" process_data beat_block demo_clean 0
  expect_failure 2 "neither ../../data/beat_block/demo_clean/data nor data/beat_block" process_data beat_block demo_clean 50
  expect_failure 2 "needed: TASK SETTING DEMOS SEED GPUS" multi_gpu six_tasks
  expect_failure 2 "'x' is not a number" multi_gpu six_tasks demo_clean 1200 x 4
  expect_failure 2 "neither data/six_tasks.zarr nor data/six_tasks-demo_clean-1200.zarr" multi_gpu six_tasks demo_clean 1200 0 4
  mkdir -p data/six_tasks.zarr
  expect_failure 2 "data/six_tasks.zarr/data/action/.zarray cannot be read" multi_gpu six_tasks demo_clean 1200 0 4
  expect_failure 2 "needed: SETTING DEMOS SEED GPU_ID" "$root/scripts/train_six_tasks.sh" demo_clean
}

run_tests
