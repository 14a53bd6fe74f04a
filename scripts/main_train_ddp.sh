#!/usr/bin/env bash
# Trains with named flags only; the same as scripts/train_multi_gpu.sh otherwise.
#
#   --config FILE          the configuration (also --config_path; default: configs/act_demo.yaml)
#   --world_size N         processes on this machine (default: all GPUs, or 2 on the CPU where there is none)
#   --port PORT            rendezvous port (also --master_port)
#   --wandb_project NAME   becomes --wandb.enable=true --wandb.project=NAME
#   anything else          a worker option, passed on as it is
#
# Values follow after a space or an equals sign. Environment: see scripts/train_multi_gpu.sh --help.
set -euo pipefail
source "$(dirname "$0")/launch.sh"

nproc=all config=$default_config
launcher_options=() worker_options=()
while (($#)); do
  case $1 in
    -h | --help) print_help "$0"; exit ;;
    --config | --config_path | --world_size | --port | --master_port | --wandb_project)
      (($# > 1)) || usage_error "$1 needs a value"
      set -- "$1=$2" "${@:3}"
      continue
      ;;
    --config=* | --config_path=*) config=${1#*=} ;;
    --world_size=*) nproc=${1#*=} ;;
    --port=* | --master_port=*) launcher_options+=("--master_port=${1#*=}") ;;
    --wandb_project=*) worker_options+=(--wandb.enable=true "--wandb.project=${1#*=}") ;;
    *) worker_options+=("$1") ;;
  esac
  shift
done
[[ $nproc =~ ^([1-9][0-9]*|all)$ ]] || usage_error "--world_size is '$nproc', not a number of processes (1 or more, or all)"
launch "$nproc" "$config" "${launcher_options[@]}" -- "${worker_options[@]}"
