# shellcheck shell=bash disable=SC2154
# Sourced, after launch.sh, by scripts whose settings are the variables POLICY_PATH, DATASET_REPO_ID, OUTPUT_DIR, NUM_GPUS, BATCH_SIZE,
# MIXED_PRECISION, NUM_WORKERS, STEPS, ENABLE_WANDB, WANDB_RUN_ID and CONFIG: checks them, says what will run, and launches it.
hf_home=${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}

require_number() { # NAME VALUE
  [[ $2 =~ ^[1-9][0-9]*$ ]] || usage_error "$1 is '$2', not a number from 1"
}

# Prints the dataset's folder: DATASET_REPO_ID itself, or that of LeRobot's cache.
find_dataset() {
  local cached=${HF_LEROBOT_HOME:-$hf_home/lerobot}/$1
  if [[ -d $1 ]]; then
    echo "$1"
  elif [[ -d $cached ]]; then
    echo "$cached"
  else
    usage_error "DATASET_REPO_ID: no dataset '$1': neither a folder here nor $cached; nothing is downloaded"
  fi
}

# Prints the worker options that choose the policy: a type, a folder, or the snapshot of a/b in Hugging Face's cache.
policy_options() {
  local hub=${HF_HUB_CACHE:-$hf_home/hub}/models--${1//\//--}
  if [[ -e $1 ]]; then
    echo "--policy.path=$1"
  elif [[ $1 != */* ]]; then
    echo "--policy.type=$1"
  elif [[ -f $hub/refs/main && -d $hub/snapshots/$(<"$hub/refs/main") ]]; then
    echo "--policy.path=$hub/snapshots/$(<"$hub/refs/main")"
  else
    usage_error "POLICY_PATH: '$1' is neither a type of policy, nor a folder here, nor in $hub; nothing is downloaded"
  fi
}

require_space() { # FOLDER
  local folder=$1 kib
  while [[ ! -d $folder ]]; do folder=$(dirname "$folder"); done
  kib=$(df -Pk "$folder" | awk 'NR == 2 {print $4}')
  ((kib >= 2 * 1024 * 1024)) || die "OUTPUT_DIR: only $((kib / 1024)) MiB are free at $folder; checkpoints need more"
}

run_recipe() {
  case ${1:-} in -h | --help) print_help "$0"; exit ;; esac
  local name dataset policy gpus resumes=0 options=() argument
  for name in NUM_GPUS BATCH_SIZE NUM_WORKERS STEPS; do require_number "$name" "${!name}"; done
  [[ $MIXED_PRECISION =~ ^(bf16|fp16|no)$ ]] || usage_error "MIXED_PRECISION is '$MIXED_PRECISION': expected bf16, fp16 or no"
  [[ $ENABLE_WANDB =~ ^(true|false)$ ]] || usage_error "ENABLE_WANDB is '$ENABLE_WANDB': expected true or false"
  dataset=$(find_dataset "$DATASET_REPO_ID") || exit
  policy=$(policy_options "$POLICY_PATH") || exit
  gpus=$(visible_gpus)
  ((gpus == 0 || NUM_GPUS <= gpus)) || usage_error "NUM_GPUS is $NUM_GPUS, but $gpus are visible here (nvidia-smi, CUDA_VISIBLE_DEVICES)"
  ((gpus > 0)) || echo "${0##*/}: no GPU is visible here: $NUM_GPUS ranks on the CPU" >&2
  require_space "${OUTPUT_DIR:-.}"
  for argument in "$@"; do
    case ${argument//-/_} in __resume* | __checkpoint_path*) resumes=1 ;; esac
  done
  # A continued run has its policy from the checkpoint.
  ((resumes)) || options+=("$policy")
  options+=("--dataset.root=$dataset" "--batch_size=$BATCH_SIZE" --batch_size_mode=per_gpu "--mixed_precision=$MIXED_PRECISION"
    "--num_workers=$NUM_WORKERS" "--steps=$STEPS")
  [[ $dataset == "$DATASET_REPO_ID" ]] || options+=("--dataset.repo_id=$DATASET_REPO_ID")
  [[ ! $OUTPUT_DIR ]] || options+=("--output_dir=$OUTPUT_DIR")
  [[ $ENABLE_WANDB == false ]] || options+=(--wandb.enable=true "--wandb.run_id=$WANDB_RUN_ID")
  cat >&2 <<END
Policy:                $POLICY_PATH
Dataset:               $dataset
GPUs:                  $NUM_GPUS (CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-all})
Effective batch size:  $BATCH_SIZE x $NUM_GPUS = $((BATCH_SIZE * NUM_GPUS))
Mixed precision:       $MIXED_PRECISION
Decoding threads:      $NUM_WORKERS x $NUM_GPUS = $((NUM_WORKERS * NUM_GPUS))
Steps:                 $STEPS
Output:                ${OUTPUT_DIR:-outputs/DATE_TIME}
Weights & Biases:      $([[ $ENABLE_WANDB == true ]] && echo "$WANDB_RUN_ID" || echo off)
NCCL:                  $(env | grep '^NCCL_' | sort | xargs || true)
END
  launch "$NUM_GPUS" "$CONFIG" -- "${options[@]}" "$@"
}
