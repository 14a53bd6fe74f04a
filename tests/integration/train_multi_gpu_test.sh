#!/usr/bin/env bash
# The commands that the training scripts make of their arguments.
source "$(dirname "$0")/check.sh"
unset CUDA_VISIBLE_DEVICES
export DRY_RUN=1 CXXRUN_FAKE_GPUS=4

# expect_command SCRIPT EXPECTED ARGUMENT...: what it prints in the root of the project, without the part that is always there.
expect_command() {
  local script=$1 expected=$2
  shift 2
  expect_equal "build/release/bin/cxxrun $expected" "$(cd "$root" && "scripts/$script.sh" "$@" 2>/dev/null)"
}

test_no_argument_takes_all_gpus_and_the_demo() {
  expect_command train_multi_gpu "--nproc_per_node=4 vla_worker --config configs/act_demo.yaml"
}

test_without_a_gpu_there_are_two_ranks_and_a_notice() {
  CXXRUN_FAKE_GPUS=0 expect_command train_multi_gpu "--nproc_per_node=2 vla_worker --config configs/act_demo.yaml"
  expect_contains "2 ranks on the CPU" "$(CXXRUN_FAKE_GPUS=0 "$root/scripts/train_multi_gpu.sh" 2>&1)"
}

test_gpus_are_counted_by_nvidia_smi() {
  unset CXXRUN_FAKE_GPUS
  fake nvidia-smi 'printf "GPU %s: NVIDIA H100 (UUID: GPU-x)\n  MIG 1g.10gb Device 0:\n" 0 1 2'
  expect_command train_multi_gpu "--nproc_per_node=3 vla_worker --config configs/act_demo.yaml"
}

test_cuda_visible_devices_is_a_list_of_names_that_ends_at_minus_one() {
  CUDA_VISIBLE_DEVICES=2,3 expect_command train_multi_gpu "--nproc_per_node=2 vla_worker --config configs/act_demo.yaml"
  CUDA_VISIBLE_DEVICES=GPU-1a-1b,0,-1,3 expect_command train_multi_gpu "--nproc_per_node=2 vla_worker --config c.yaml" all c.yaml
  expect_contains "on the CPU" "$(CUDA_VISIBLE_DEVICES='' "$root/scripts/train_multi_gpu.sh" 2>&1)"
}

test_count_config_name_and_options() {
  expect_command train_multi_gpu "--nproc_per_node=2 vla_worker --config configs/act_demo.yaml" 2
  expect_command train_multi_gpu "--nproc_per_node=4 vla_worker --config configs/vla_config.yaml --experiment_name my_experiment" \
    4 configs/vla_config.yaml my_experiment
  expect_command train_multi_gpu \
    "--nproc_per_node=2 vla_worker --config configs/vla_config.yaml --experiment_name my_exp --batch_size 4 --epochs 20" \
    2 configs/vla_config.yaml my_exp --batch_size 4 --epochs 20
}

test_config_and_stage() {
  expect_command train_multi_gpu "--nproc_per_node=4 vla_worker --config configs/vlm_pretrain.yaml --stage pretrain" \
    configs/vlm_pretrain.yaml pretrain
  expect_command train_multi_gpu "--nproc_per_node=4 vla_worker --config c.json --stage sft more --lr=1" c.json sft more --lr=1
  touch "$work/no_suffix"
  expect_command train_multi_gpu "--nproc_per_node=4 vla_worker --config $work/no_suffix" "$work/no_suffix"
}

test_options_may_follow_anywhere() {
  expect_command train_multi_gpu "--nproc_per_node=4 vla_worker --config configs/act_demo.yaml --training.steps 5" --training.steps 5
  expect_command train_multi_gpu "--nproc_per_node=2 vla_worker --config configs/act_demo.yaml optimizer.lr=1" 2 optimizer.lr=1
  expect_command train_multi_gpu "--nproc_per_node=4 vla_worker --config c.yaml +a.b=c" c.yaml +a.b=c
}

test_style_overrides_the_guess() {
  expect_command train_multi_gpu "--nproc_per_node=4 vla_worker --config configs/vlm_pretrain.yaml --stage pretrain" --style=d
  expect_command train_multi_gpu "--nproc_per_node=4 vla_worker --config 8 --stage sft" --style=d 8 sft
}

test_unknown_forms_are_usage_errors_that_list_the_known_ones() {
  expect_failure 2 "CONFIG [STAGE]" "$root/scripts/train_multi_gpu.sh" some_task
  expect_failure 2 "[N|all] [CONFIG] [NAME]" "$root/scripts/train_multi_gpu.sh" 0
  expect_failure 2 "no dataset of task 'beat_block'" "$root/scripts/train_multi_gpu.sh" beat_block demo_clean 1200 0 8
}

test_named_flags_make_the_same_command() {
  expect_command run_ddp_training "$(cd "$root" && scripts/train_multi_gpu.sh all c.yaml e --lr 1 | cut -d' ' -f2-)" \
    --config c.yaml --experiment_name e --lr 1
  expect_command run_ddp_training "--nproc_per_node=4 vla_worker --config configs/act_demo.yaml --wandb.enable=true --wandb.project=p" \
    --wandb_project p
  expect_command main_train_ddp \
    "--nproc_per_node=2 --master_port=12356 vla_worker --config configs/vla_config.yaml --keep_effective_batch_size --use_wandb" \
    --config_path configs/vla_config.yaml --world_size 2 --keep_effective_batch_size --use_wandb --port=12356
  expect_failure 2 "--world_size needs a value" "$root/scripts/main_train_ddp.sh" --world_size
  expect_failure 2 "'x'" "$root/scripts/main_train_ddp.sh" --world_size=x
}

test_printed_command_is_quoted_for_the_shell() {
  local command words
  command=$("$root/scripts/train_multi_gpu.sh" 2 "my config.yaml" "it's" --text 'a "b" $HOME & *' '')
  eval "words=($command)"
  expect_equal "--config|my config.yaml|--experiment_name|it's|--text|a \"b\" \$HOME & *|" "$(IFS='|' && echo "${words[*]:3}")"
}

test_dry_run_touches_nothing() {
  copy_project
  CXXRUN_DEPS=$work/deps "$project/scripts/train_multi_gpu.sh" >/dev/null
  expect_equal "scripts" "$(ls "$project")"
  [[ ! -e $work/deps ]]
}

test_run_builds_the_two_programs_and_passes_arguments_verbatim() {
  copy_project
  export DRY_RUN=0
  printf '#!/bin/bash\necho "built: $*"\n' >"$project/scripts/build.sh"
  mkdir -p "$project/build/release/bin"
  printf '#!/bin/bash\nprintf "[%%s]" "$@"\n' >"$project/build/release/bin/cxxrun"
  chmod +x "$project/build/release/bin/cxxrun"
  touch "my config.yaml"
  expect_equal "built: release cxxrun vla_worker
[--nproc_per_node=2][vla_worker][--config][my config.yaml][--experiment_name][n][--x][a  b][][*]" \
    "$("$project/scripts/train_multi_gpu.sh" 2 "my config.yaml" n --x "a  b" "" "*")"
  expect_failure 2 "no configuration 'absent.yaml'" "$project/scripts/train_multi_gpu.sh" 2 absent.yaml
  printf '#!/bin/bash\nexit 1\n' >"$project/scripts/build.sh"
  expect_failure 1 "" "$project/scripts/train_multi_gpu.sh" 2 "my config.yaml"
}

run_tests
