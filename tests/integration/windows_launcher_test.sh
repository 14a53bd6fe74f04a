#!/usr/bin/env bash
# What train_multi_gpu.bat makes of its arguments in Wine's cmd. Wine 8 expands a literal "%" once more and has no WSL, so percent
# signs and real runs stay untested.
source "$(dirname "$0")/check.sh"
command -v wine >/dev/null || {
  echo "skipped: no wine here (apt-get install --no-install-recommends wine64 wine)"
  exit 77
}
export WINEDEBUG=-all WINEPREFIX
WINEPREFIX=$(mktemp -d)
trap 'wineserver -k; rm -rf "$WINEPREFIX"' EXIT
unset CUDA_VISIBLE_DEVICES
wine cmd /c exit >/dev/null 2>&1

# expect_batch EXPECTED ARGUMENTS [LINE...]: output of the batch file in $project with these words as typed in cmd.exe. The call
# comes from a batch file, after LINEs, because Wine quotes the words of its own command line anew.
expect_batch() {
  local expected=$1 arguments=$2 output
  shift 2
  printf '%s\r\n' '@echo off' 'set DRY_RUN=1' "$@" "\"Z:${project//\//\\}\\scripts\\train_multi_gpu.bat\" $arguments" >"$work/driver.bat"
  output=$(cd "$work" && wine cmd /c driver.bat 2>/dev/null | tr -d '\r')
  expect_equal "$expected" "$output"
}

expect_wsl() { expect_batch "wsl --exec bash \"/mnt/z$project/scripts/train_multi_gpu.sh\"$1" "${@:2}"; }

test_count_config_and_name_reach_wsl_with_slashes() {
  project=$root
  expect_wsl "" ""
  expect_wsl ' 2' "2"
  expect_wsl ' 4 "configs/vla_config.yaml" "my_exp" --batch_size 4' '4 configs\vla_config.yaml my_exp --batch_size 4'
  expect_wsl ' all "/mnt/c/my data/c.yaml"' 'all "C:\my data\c.yaml"'
}

test_config_and_stage_reach_wsl() {
  project=$root
  expect_wsl ' "configs/vlm_pretrain.yaml" "pretrain"' 'configs\vlm_pretrain.yaml pretrain'
  expect_wsl ' "c.yaml" "sft" more' 'c.yaml sft more'
}

test_options_arrive_as_typed() {
  project=$root
  expect_wsl ' --training.steps=3' '--training.steps=3'
  expect_wsl ' optimizer.lr=3 a,b;c' 'optimizer.lr=3 a,b;c'
  expect_wsl ' 2 "a & b.yaml" "my  exp"  --lr=3 "x & y" "^ z! 1>2" "q|r" "C:\d e"' \
    '2 "a & b.yaml" "my  exp" --lr=3 "x & y" "^ z! 1>2" "q|r" "C:\d e"'
}

test_native_launcher_is_preferred_and_counts_gpus() {
  copy_project
  mkdir -p "$project/build/release/bin"
  touch "$project/build/release/bin/cxxrun.exe"
  local here="Z:${project//\//\\}\\scripts\\.."
  local command="\"$here\\build\\release\\bin\\cxxrun.exe\""
  expect_batch "$command --nproc_per_node=4 vla_worker --config \"$here\\configs\\act_demo.yaml\"" "" "set CXXRUN_FAKE_GPUS=4"
  expect_batch "$command --nproc_per_node=2 vla_worker --config \"$here\\configs\\act_demo.yaml\"" "all" "set CXXRUN_FAKE_GPUS=4" \
    "set CUDA_VISIBLE_DEVICES=2,3,-1,5"
  expect_batch "$command --nproc_per_node=2 vla_worker --config \"c.yaml\" --stage \"sft\" --x" "c.yaml sft --x"
  expect_batch "$command --nproc_per_node=3 vla_worker --config \"c.yaml\" --experiment_name \"n\"" "3 c.yaml n"
}

test_unknown_form_is_a_usage_error() {
  project=$root
  printf '@echo off\r\n"Z:%s\\scripts\\train_multi_gpu.bat" some_task\r\n' "${root//\//\\}" >driver.bat
  expect_failure 2 "CONFIG [STAGE]" wine cmd /c driver.bat
}

test_without_wsl_it_says_what_to_install() {
  printf '@echo off\r\n"Z:%s\\scripts\\train_multi_gpu.bat" 2\r\n' "${root//\//\\}" >driver.bat
  DRY_RUN='' expect_failure 1 "wsl --install" wine cmd /c driver.bat
}

run_tests
