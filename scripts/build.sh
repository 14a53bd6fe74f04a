#!/usr/bin/env bash
# Sets up, configures where needed and builds: scripts/build.sh [--with-tests] [PRESET] [TARGET...]
#
#   PRESET         release (default), asan, tsan or launcher-only: see CMakePresets.json
#   TARGET...      what to build (default: everything), for example: cxxrun vla_worker
#   --with-tests   also set up and build the tests
#
# Programs land in build/PRESET/bin. Environment: CXXRUN_JOBS (compile jobs at once; default: what fits into the memory),
# CXXRUN_UNITY=OFF (for a new build folder: compile LibTorch files one by one, which makes small changes quicker and the
# first build slower).
set -euo pipefail
source "$(dirname "$0")/environment.sh"

tests=OFF
setup_options=()
while [[ ${1:-} == -* ]]; do
  case $1 in
    --with-tests) tests=ON setup_options+=(--with-tests) ;;
    -h | --help) print_help "$0"; exit ;;
    *) usage_error "unknown option '$1' (known: --with-tests, --help)" ;;
  esac
  shift
done
preset=${1:-release}
shift || true
[[ $preset == launcher-only ]] && setup_options+=(--launcher-only)
"$root/scripts/setup.sh" "${setup_options[@]}"

if cuda=$(find_cuda); then export CUDA_HOME=$cuda PATH=$cuda/bin:$PATH; fi
# Without these ccache refuses every file that uses the precompiled header.
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

build=$root/build/$preset
stamp=$build/.dependencies
dependencies="$deps ${CMAKE_PREFIX_PATH:-} ${cuda:-} $(cksum <"$root/scripts/requirements.txt")"
if [[ -f $stamp && $(<"$stamp") != "$dependencies" ]]; then
  rm -rf "$build/CMakeCache.txt" "$build/CMakeFiles" # the cache holds the old places
fi
if [[ ! -f $build/build.ninja || ! -f $build/CMakeCache.txt || ! -f $stamp ]] ||
  { [[ $tests == ON ]] && ! grep -q '^CXXRUN_TESTS:BOOL=ON' "$build/CMakeCache.txt"; }; then
  options=()
  [[ -f $build/CMakeCache.txt ]] || options=(-DCXXRUN_TESTS=OFF -DCXXRUN_UNITY="${CXXRUN_UNITY:-ON}")
  [[ $tests == OFF ]] || options+=(-DCXXRUN_TESTS=ON)
  (cd "$root" && cmake --preset "$preset" "${options[@]}")
  echo "$dependencies" >"$stamp"
fi
exec ninja -C "$build" -j "$(compile_jobs)" "$@"
