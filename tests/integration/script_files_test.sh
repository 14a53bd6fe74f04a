#!/usr/bin/env bash
source "$(dirname "$0")/check.sh"

test_every_script_is_valid_bash() {
  local script
  for script in "$root"/scripts/*.sh "$root"/scripts/{reference,robotwin}/*.sh "$root"/tests/integration/*.sh "$root/.ci/run"; do
    bash -n "$script"
  done
}

test_scripts_that_are_typed_are_executable() {
  local script
  for script in "$root"/scripts/*.sh "$root"/scripts/robotwin/*.sh "$root/.ci/run"; do
    head -n 1 "$script" | grep -q '^#!' || continue # sourced ones
    [[ -x $script ]] || fail "$script is not executable"
  done
}

test_every_script_has_help() {
  local script
  for script in train_six_tasks robotwin/train_multi_gpu setup build test train_multi_gpu main_train_ddp run_ddp_training train_multi_gpu_template train_smolvla_multi_gpu; do
    expect_contains "scripts/" "$("$root/scripts/$script.sh" --help)"
  done
}

test_batch_file_has_windows_line_endings_here_and_in_every_checkout() {
  expect_equal 0 "$(grep -cv $'\r$' "$root/scripts/train_multi_gpu.bat")"
  grep -q '^\*\.bat .*eol=crlf' "$root/.gitattributes"
}

test_ci_is_nothing_but_the_test_script() {
  expect_equal 1 "$(grep -c . <(tail -n +2 "$root/.ci/run"))"
  expect_contains scripts/test.sh "$(cat "$root/.ci/run")"
}

run_tests
