#!/usr/bin/env bash
# SmolVLA on 4 GPUs, in bf16, with 16 samples each and Weights & Biases. Change the variables below, or set them in the environment:
#
#   DATASET_REPO_ID=user/dataset POLICY_PATH=lerobot/smolvla_base scripts/train_smolvla_multi_gpu.sh [WORKER OPTION...]
#
# DRY_RUN=1 prints the configuration and the command, and runs nothing. What the variables mean: scripts/train_multi_gpu_template.sh.
set -euo pipefail
source "$(dirname "$0")/launch.sh"
source "$(dirname "$0")/recipe.sh"

POLICY_PATH=${POLICY_PATH:-smolvla}
DATASET_REPO_ID=${DATASET_REPO_ID:-${prefix}tests/data/metaworld_demo}
OUTPUT_DIR=${OUTPUT_DIR:-}
NUM_GPUS=${NUM_GPUS:-4}
BATCH_SIZE=${BATCH_SIZE:-16}
MIXED_PRECISION=${MIXED_PRECISION:-bf16}
NUM_WORKERS=${NUM_WORKERS:-8}
STEPS=${STEPS:-20000}
ENABLE_WANDB=${ENABLE_WANDB:-true}
WANDB_RUN_ID=${WANDB_RUN_ID:-smolvla_$(date +%Y%m%d_%H%M%S)}
# export NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_DEBUG=INFO  # if NCCL fails or hangs
CONFIG=${CONFIG:-${prefix}configs/smolvla.yaml}

run_recipe "$@"
