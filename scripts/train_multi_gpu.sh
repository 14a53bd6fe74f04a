#!/usr/bin/env bash
# Trains on all GPUs of this machine, or with 2 ranks on the CPU where there is none. Sets up and builds first, if needed.
#
#   scripts/train_multi_gpu.sh [N|all] [CONFIG] [NAME] [WORKER OPTION...]
#       N processes (default: all GPUs), CONFIG (default: configs/act_demo.yaml), NAME becomes --experiment_name
#   scripts/train_multi_gpu.sh CONFIG [STAGE] [WORKER OPTION...]
#       all GPUs; STAGE becomes --stage, for example pretrain or sft
#   scripts/train_multi_gpu.sh TASK SETTING DEMOS SEED GPUS [GPU_IDS] [WORKER OPTION...]
#       RoboTwin's diffusion policy: scripts/robotwin/train_multi_gpu.sh
#
# The first argument decides: a number, "all" or an option is the first form, an existing file or *.yaml, *.yml, *.json the
# second; the third has three numbers after two names. --style=a, --style=d or --style=e before all others decides by hand. WORKER OPTIONs start at the first argument that looks like
# one (--key value, --key=value, key=value) and are passed on as they are; `build/release/bin/vla_worker --help` lists them.
#
# Environment: DRY_RUN=1 prints the command and runs nothing; CUDA_VISIBLE_DEVICES chooses the GPUs.
#
#   scripts/train_multi_gpu.sh 2 configs/act_demo.yaml first_try --training.steps 500
set -euo pipefail
source "$(dirname "$0")/launch.sh"

is_option() { [[ $1 == -* || $1 =~ ^\+?[A-Za-z_][A-Za-z0-9_.]*= ]]; }
is_count() { [[ $1 =~ ^[1-9][0-9]*$ || $1 == all ]]; }
is_config() { [[ -f $1 || $1 =~ \.(yaml|yml|json)$ ]]; }
grammars() {
  usage_error "$1
  scripts/train_multi_gpu.sh [N|all] [CONFIG] [NAME] [WORKER OPTION...]
  scripts/train_multi_gpu.sh CONFIG [STAGE] [WORKER OPTION...]
  scripts/train_multi_gpu.sh TASK SETTING DEMOS SEED GPUS [GPU_IDS] [WORKER OPTION...]"
}

style=
if [[ ${1:-} == --style=* ]]; then
  style=${1#--style=}
  shift
fi
case ${1:-} in -h | --help) print_help "$0"; exit ;; esac
if [[ ! $style ]]; then
  if (($# == 0)) || is_count "$1" || is_option "$1"; then
    style=a
  elif is_config "$1"; then
    style=d
  elif (($# >= 5)) && [[ "$3,$4,$5" =~ ^[0-9]+,[0-9]+,[0-9]+$ ]]; then
    style=e
  else
    grammars "'$1' is neither a number of processes (1 or more, or all) nor a configuration file; known forms:"
  fi
fi

[[ $style != e ]] || exec "$root/scripts/robotwin/train_multi_gpu.sh" "$@"

positional=()
while (($# && ${#positional[@]} < 3)) && ! is_option "$1"; do
  [[ $style == d && ${#positional[@]} == 2 ]] && break
  positional+=("$1")
  shift
done
case $style in
  a)
    nproc=${positional[0]:-all}
    is_count "$nproc" || grammars "'$nproc' is not a number of processes (1 or more, or all); known forms:"
    launch "$nproc" "${positional[1]:-$default_config}" -- ${positional[2]+--experiment_name "${positional[2]}"} "$@"
    ;;
  d)
    if ((${#positional[@]} == 0)); then positional=("${prefix}configs/vlm_pretrain.yaml" pretrain); fi
    launch all "${positional[0]}" -- ${positional[1]+--stage "${positional[1]}"} "$@"
    ;;
  *) grammars "the form '$style' is not supported; known forms:" ;;
esac
