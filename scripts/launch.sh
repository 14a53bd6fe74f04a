# shellcheck shell=bash disable=SC2154
# Sourced by the scripts that start a training: counts GPUs, builds what is run, becomes cxxrun. DRY_RUN=1 prints the command,
# quoted for the shell, and does nothing else.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

# As short as it can be typed here: relative in the root of the project, absolute elsewhere.
prefix=
[[ $PWD -ef $root ]] || prefix=$root/
default_config=${prefix}configs/act_demo.yaml

# Prints how many GPUs CUDA_VISIBLE_DEVICES leaves. CXXRUN_FAKE_GPUS=N stands for the N of this machine, for tests.
visible_gpus() {
  local gpus=${CXXRUN_FAKE_GPUS:-} token
  [[ $gpus ]] || gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ') || true
  if ((gpus > 0)) && [[ -v CUDA_VISIBLE_DEVICES ]]; then
    gpus=0
    for token in ${CUDA_VISIBLE_DEVICES//,/ }; do
      [[ $token == -1 ]] && break # as CUDA does
      gpus=$((gpus + 1))
    done
  fi
  echo "$gpus"
}

# launch NPROC|all CONFIG [launcher option...] -- [worker option...]
launch() {
  local nproc=$1 config=$2 launcher_options=()
  shift 2
  while [[ $1 != -- ]]; do
    launcher_options+=("$1")
    shift
  done
  shift
  if [[ $nproc == all ]]; then
    nproc=$(visible_gpus)
    if ((nproc == 0)); then
      nproc=2
      echo "${0##*/}: no GPU is visible here: 2 ranks on the CPU" >&2
    fi
  fi
  local command=("${prefix}build/release/bin/cxxrun" "--nproc_per_node=$nproc" "${launcher_options[@]}" vla_worker
    --config "$config" "$@")
  if [[ ${DRY_RUN:-0} != 0 ]]; then
    local quoted
    printf -v quoted '%q ' "${command[@]}"
    echo "${quoted% }"
    exit
  fi
  [[ -f $config ]] || usage_error "no configuration '$config' in $PWD; ready-made ones: $(echo "$root"/configs/*.yaml)"
  "$root/scripts/build.sh" release cxxrun vla_worker || exit
  exec "${command[@]}"
}
