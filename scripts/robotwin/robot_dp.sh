# shellcheck shell=bash disable=SC2154
# Sourced by the scripts that train RoboTwin's diffusion policy. Data and results lie below data/ in the working directory, as in
# RoboTwin's policy/DP.
source "$(dirname "${BASH_SOURCE[0]}")/../launch.sh"

# Prints the dataset of a task: data/TASK.zarr if it has one of its own (a merged dataset), else data/TASK-SETTING-DEMOS.zarr.
robot_dp_dataset() {
  local task=$1 name
  for name in "$task" "${task//_/-}" "$task-$2-$3"; do
    if [[ -d data/$name.zarr ]]; then
      echo "data/$name.zarr"
      return
    fi
  done
  usage_error "no dataset of task '$task' in $PWD: neither data/$task.zarr nor data/$task-$2-$3.zarr, nor recordings in" \
    "../../data/$task/$2/data or data/$task/$2/data"
}

# Prints the folder of a task's raw recordings; fails if there is none.
robot_dp_recordings() {
  local folder
  for folder in "../../data/$1/$2/data" "data/$1/$2/data"; do
    if [[ -f $folder/episode0.hdf5 ]]; then
      echo "$folder"
      return
    fi
  done
  return 1
}

# convert_robot_dp RECORDINGS DATASET DEMOS [option of vla_worker data convert...]
convert_robot_dp() {
  local command=("${prefix}build/release/bin/vla_worker" data convert "$1" "$2" --episodes "$3" --overwrite "${@:4}")
  if [[ ${DRY_RUN:-0} != 0 ]]; then
    printf '%q ' "${command[@]}" | sed 's/ $/\n/'
    return
  fi
  "$root/scripts/build.sh" release cxxrun vla_worker && mkdir -p data && "${command[@]}"
}

# Prints the configuration for a dataset's width of actions.
robot_dp_config() {
  local array=$1/data/action/.zarray width
  [[ -r $array ]] || usage_error "$array cannot be read: $1 is not a dataset of RoboTwin"
  width=$(tr -d '[:space:]' <"$array" | sed -n 's/.*"shape":\[[0-9]*,\([0-9]*\)\].*/\1/p')
  [[ $width ]] || usage_error "$array names no shape of two dimensions"
  if [[ ! -f $root/configs/robot_dp_$width.yaml ]]; then
    echo "${0##*/}: warning: actions of $1 have $width numbers, for which there is no configuration: robot_dp_14.yaml is taken" >&2
    width=14
  fi
  echo "${prefix}configs/robot_dp_$width.yaml"
}

# train_robot_dp TASK SETTING DEMOS SEED GPUS [worker option...]
train_robot_dp() {
  local task=$1 setting=$2 demos=$3 seed=$4 gpus=$5 dataset config recordings
  shift 5
  if ! (robot_dp_dataset "$task" "$setting" "$demos") >/dev/null 2>&1 && recordings=$(robot_dp_recordings "$task" "$setting"); then
    convert_robot_dp "$recordings" "data/$task-$setting-$demos.zarr" "$demos" || exit
    if [[ ${DRY_RUN:-0} != 0 ]]; then
      echo "${0##*/}: what follows depends on the width of the actions, known after that" >&2
      exit
    fi
  fi
  dataset=$(robot_dp_dataset "$task" "$setting" "$demos") || exit
  config=$(robot_dp_config "$dataset") || exit
  launch "$gpus" "$config" -- "--dataset.root=$dataset" "--seed=$seed" "--experiment_name=$task-robot_dp-train" \
    "--output_dir=data/outputs/$task-robot_dp-train_seed$seed" "$@"
}

is_number() { [[ $1 =~ ^[0-9]+$ ]]; }
