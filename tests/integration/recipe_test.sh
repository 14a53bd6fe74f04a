#!/usr/bin/env bash
# The commands that train_smolvla_multi_gpu.sh and train_multi_gpu_template.sh make of their variables.
source "$(dirname "$0")/check.sh"
unset CUDA_VISIBLE_DEVICES POLICY_PATH DATASET_REPO_ID OUTPUT_DIR NUM_GPUS BATCH_SIZE MIXED_PRECISION NUM_WORKERS STEPS ENABLE_WANDB \
  WANDB_RUN_ID CONFIG HF_HUB_CACHE HF_LEROBOT_HOME
export DRY_RUN=1 CXXRUN_FAKE_GPUS=4

command_of() { (cd "$root" && "scripts/$1.sh" "${@:2}" 2>/dev/null); }
banner_of() { (cd "$root" && "scripts/$1.sh" "${@:2}" 2>&1 >/dev/null); }

test_smolvla_trains_on_four_gpus_in_bf16_and_logs_to_wandb() {
  expect_equal "build/release/bin/cxxrun --nproc_per_node=4 vla_worker --config configs/smolvla.yaml --policy.type=smolvla \
--dataset.root=tests/data/metaworld_demo --batch_size=16 --batch_size_mode=per_gpu --mixed_precision=bf16 --num_workers=8 --steps=20000 \
--wandb.enable=true --wandb.run_id=r" "$(WANDB_RUN_ID=r command_of train_smolvla_multi_gpu)"
}

test_the_template_takes_every_variable() {
  mkdir "$work/data"
  export POLICY_PATH=act DATASET_REPO_ID=$work/data OUTPUT_DIR=$work/out NUM_GPUS=2 BATCH_SIZE=32 MIXED_PRECISION=fp16 NUM_WORKERS=4 STEPS=100 \
    ENABLE_WANDB=true WANDB_RUN_ID=mine
  expect_equal "build/release/bin/cxxrun --nproc_per_node=2 vla_worker --config configs/multi_gpu_template.yaml --policy.type=act \
--dataset.root=$work/data --batch_size=32 --batch_size_mode=per_gpu --mixed_precision=fp16 --num_workers=4 --steps=100 --output_dir=$work/out \
--wandb.enable=true --wandb.run_id=mine --optimizer.lr=2e-4" "$(command_of train_multi_gpu_template --optimizer.lr=2e-4)"
}

test_the_configuration_is_shown_first() {
  local banner
  banner=$(NUM_GPUS=2 NCCL_DEBUG=INFO banner_of train_multi_gpu_template)
  expect_contains "16 x 2 = 32" "$banner"
  expect_contains "8 x 2 = 16" "$banner"
  expect_contains "NCCL_DEBUG=INFO" "$banner"
}

test_a_continued_run_has_its_policy_from_the_checkpoint() {
  local command
  command=$(command_of train_multi_gpu_template --resume=true --checkpoint_path=outputs/20250115_123456/checkpoints/last)
  [[ $command != *--policy* ]] || fail "$command"
  expect_contains "--resume=true --checkpoint_path=outputs/20250115_123456/checkpoints/last" "$command"
}

test_a_copy_of_the_template_works() {
  copy_project
  mkdir -p data
  cp "$project/scripts/train_multi_gpu_template.sh" "$project/scripts/my_training.sh"
  expect_contains "--config $project/configs/multi_gpu_template.yaml" "$(DATASET_REPO_ID=data "$project/scripts/my_training.sh" 2>/dev/null)"
}

test_names_are_found_in_the_caches() {
  mkdir -p "lerobot/user/set" "hub/models--a--b/refs" "hub/models--a--b/snapshots/123"
  printf 123 >hub/models--a--b/refs/main
  local command
  command=$(HF_LEROBOT_HOME=$work/lerobot HF_HUB_CACHE=$work/hub DATASET_REPO_ID=user/set POLICY_PATH=a/b command_of train_multi_gpu_template)
  expect_contains "--policy.path=$work/hub/models--a--b/snapshots/123 --dataset.root=$work/lerobot/user/set" "$command"
  expect_contains "--dataset.repo_id=user/set" "$command"
}

test_what_is_wrong_is_named_before_anything_starts() {
  local script=$root/scripts/train_multi_gpu_template.sh
  cd "$root"
  DATASET_REPO_ID=your-username/your-dataset expect_failure 2 "no dataset 'your-username/your-dataset'" "$script"
  POLICY_PATH=lerobot/none expect_failure 2 "POLICY_PATH: 'lerobot/none'" "$script"
  NUM_GPUS=8 expect_failure 2 "NUM_GPUS is 8, but 4 are visible" "$script"
  CUDA_VISIBLE_DEVICES=2,3 NUM_GPUS=3 expect_failure 2 "but 2 are visible" "$script"
  NUM_GPUS=0 expect_failure 2 "NUM_GPUS is '0'" "$script"
  BATCH_SIZE=many expect_failure 2 "BATCH_SIZE is 'many'" "$script"
  MIXED_PRECISION=int8 expect_failure 2 "MIXED_PRECISION is 'int8'" "$script"
  ENABLE_WANDB=maybe expect_failure 2 "ENABLE_WANDB is 'maybe'" "$script"
  fake df 'printf "Filesystem 1024-blocks Used Available\n/dev/x 1 1 1024\n"'
  expect_failure 1 "only 1 MiB are free" "$script"
}

test_without_a_gpu_the_ranks_run_on_the_cpu() {
  expect_contains "no GPU is visible here: 2 ranks on the CPU" "$(CXXRUN_FAKE_GPUS=0 NUM_GPUS=2 banner_of train_multi_gpu_template)"
}

run_tests
