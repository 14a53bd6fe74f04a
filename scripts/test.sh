#!/usr/bin/env bash
# Sets up, builds and runs the tests: scripts/test.sh [--all] [CTEST OPTION...]
#
#   --all             also the slow ones: network namespaces, real SLURM and MPI, Wine
#   CTEST OPTION...   passed to every ctest, for example: -R Supervisor; nothing is fuzzed then
#
# Three builds are tested: release; asan (AddressSanitizer and UndefinedBehaviorSanitizer, everything but whole policies and trainings
# of more ranks than two, which run the same code); tsan (ThreadSanitizer, launcher and data loader). Then each of our readers of
# untrusted input is fuzzed for a minute (tests/fuzz/run.sh).
# Environment: CXXRUN_PRESETS (default "release asan tsan"), FUZZ_SECONDS (default 60).
# Exits with 1 if anything failed, after having tried all of it.
set -uo pipefail
source "$(dirname "$0")/environment.sh"

skipped_labels=bench
case ${1:-} in
  --all) shift ;;
  -h | --help) print_help "$0"; exit ;;
  *) skipped_labels+="|slow" ;;
esac
nvidia-smi -L >/dev/null 2>&1 || skipped_labels+="|gpu"
# A selection may leave nothing in one of the builds; without one, an empty suite is a broken suite.
is_selection=$#
if (($# == 0)); then set -- --no-tests=error; fi

# UBSan's default is to print and go on, which no test would notice.
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
summary=() failures=()

# failed_tests PHASE <LOG: of each test that failed, its line and the end of its output.
failed_tests() {
  awk -v phase="$1" '
    function show(i) {
      if (count) print phase ": " lines[0]
      for (i = count > 40 ? count - 40 : 1; i < count; ++i) print "  " lines[i]
      count = 0
    }
    /^ *Start +[0-9]+: / || / Test +#[0-9]+: / || /^[0-9]+% tests passed/ { show() }
    count || /\*\*\*(Failed|Timeout|Exception|Not Run)/ { lines[count++] = $0 }'
}

# phase NAME COMMAND...: runs the command and notes its result, duration and, of ctest, the line that counts and what failed.
phase() {
  local name=$1 start=$SECONDS result=ok counts
  shift
  echo "=== $name"
  "$@" 2>&1 | tee "$log" || { result=FAILED failed=1; }
  counts=$(grep -E '^[0-9]+% tests passed|^No tests were found|^[0-9]+ fuzzers' "$log" | tail -n 1)
  summary+=("$(printf '%-14s %-6s %5d s  %s' "$name" "$result" $((SECONDS - start)) "$counts")")
  failures+=("$(failed_tests "$name" <"$log")")
  [[ $result == ok ]]
}

cd "$root" || exit
if phase set-up scripts/setup.sh --with-tests; then
  for preset in ${CXXRUN_PRESETS:-release asan tsan}; do
    labels=$skipped_labels cases=()
    if [[ $preset == asan ]]; then labels+="|policy|gpu" cases=(-E '(Three|Four|Eight)Ranks'); fi
    phase "build $preset" scripts/build.sh --with-tests "$preset" &&
      phase "test $preset" ctest --preset "$preset" -j "$(nproc)" -LE "^($labels)\$" "${cases[@]}" "$@"
  done
  ((is_selection)) || phase fuzz tests/fuzz/run.sh
fi
if listing=$(printf '%s\n' "${failures[@]}" | grep .); then printf '=== failed tests\n%s\n' "$listing"; fi
echo "=== summary"
printf '%s\n' "${summary[@]}"
exit $failed
