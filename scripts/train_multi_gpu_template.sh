#!/usr/bin/env bash
# A training of any policy on any dataset, on several GPUs: copy this file beside itself, change the variables below, run it.
#
#   cp scripts/train_multi_gpu_template.sh scripts/my_training.sh
#   scripts/my_training.sh [WORKER OPTION...]
#
# Every variable can also come from the environment, and WORKER OPTIONs follow as they are:
#
#   POLICY_PATH=act NUM_GPUS=2 BATCH_SIZE=32 scripts/my_training.sh --optimizer.lr=2e-4 --save_freq=1000
#   scripts/my_training.sh --resume=true --checkpoint_path=outputs/20250115_123456/checkpoints/last
#
# DRY_RUN=1 prints the configuration and the command, and runs nothing.
set -euo pipefail
source "$(dirname "$0")/launch.sh"
source "$(dirname "$0")/recipe.sh"

# A type of policy (act, smolvla, diffusion), or what to start from: a checkpoint's folder or a Hugging Face name (a/b) in the cache.
POLICY_PATH=${POLICY_PATH:-act}

# A dataset's folder, or the name (user/dataset) of one that LeRobot has in its cache (HF_LEROBOT_HOME).
DATASET_REPO_ID=${DATASET_REPO_ID:-${prefix}tests/data/metaworld_demo}

# Where the results go; empty: outputs/DATE_TIME.
OUTPUT_DIR=${OUTPUT_DIR:-}

# Which GPUs is said by CUDA_VISIBLE_DEVICES, for example: export CUDA_VISIBLE_DEVICES=0,1,2,3
NUM_GPUS=${NUM_GPUS:-4}

# Of each GPU. The effective batch is BATCH_SIZE x NUM_GPUS: who comes from one GPU with 64 takes 16 on 4 to train the same. After
# another effective batch the learning rate may need a change (--optimizer.lr=2e-4); the default is the policy's own.
BATCH_SIZE=${BATCH_SIZE:-16}

# bf16 (A100, RTX 3090 and later), fp16 (older GPUs such as V100), no
MIXED_PRECISION=${MIXED_PRECISION:-bf16}

# Decoding threads of each GPU; 4 to 8 is usual.
NUM_WORKERS=${NUM_WORKERS:-8}

# Try a new configuration with 100 first.
STEPS=${STEPS:-100000}

ENABLE_WANDB=${ENABLE_WANDB:-false}
WANDB_RUN_ID=${WANDB_RUN_ID:-run_$(date +%Y%m%d_%H%M%S)}

# If NCCL fails or hangs:
# export NCCL_P2P_DISABLE=1
# export NCCL_IB_DISABLE=1
# export NCCL_DEBUG=INFO

# What else is set: see there.
CONFIG=${CONFIG:-${prefix}configs/multi_gpu_template.yaml}

run_recipe "$@"
