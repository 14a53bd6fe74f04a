# shellcheck shell=bash
# Sourced by the script tests. A test is a function test_*; run_tests calls each in a shell and a folder ($work) of its own and
# fails if one of them does.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

fail() {
  echo "  $*" >&2
  exit 1
}

expect_equal() { # EXPECTED ACTUAL
  [[ $1 == "$2" ]] || fail "expected: $1
  but got:  $2"
}

expect_contains() { # PART TEXT
  [[ $2 == *"$1"* ]] || fail "expected a text with: $1
  but got: $2"
}

# expect_failure STATUS PART COMMAND...: it exits with STATUS and says PART.
expect_failure() {
  local status=$1 part=$2 output actual=0
  shift 2
  output=$("$@" 2>&1) || actual=$?
  [[ $actual == "$status" ]] || fail "expected exit $status, got $actual: $output"
  expect_contains "$part" "$output"
}

# fake NAME LINE...: puts a program of these bash lines first in PATH.
fake() {
  local file=$work/bin/$1
  shift
  mkdir -p "$work/bin"
  printf '%s\n' '#!/bin/bash' "$@" >"$file"
  chmod +x "$file"
  [[ $PATH == "$work/bin:"* ]] || PATH=$work/bin:$PATH
}

# A copy of scripts/ in $work/project, for tests that replace some of them.
copy_project() {
  mkdir -p "$work/project"
  cp -r "$root/scripts" "$work/project/"
  project=$work/project
}

run_tests() {
  local test failed=0
  for test in $(compgen -A function test_); do
    echo "$test"
    work=$(mktemp -d)
    ( # not inside a condition: that would switch set -e off
      set -e
      cd "$work"
      "$test"
    )
    if (($?)); then
      echo "FAILED: $test"
      failed=1
    fi
    rm -rf "$work"
  done
  exit $failed
}
