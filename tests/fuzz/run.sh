#!/usr/bin/env bash
# Fuzzes each of our readers of untrusted input (HDF5 is read by libhdf5): tests/fuzz/run.sh [NAME...]
#
# Builds tests/fuzz with clang, AddressSanitizer and UndefinedBehaviorSanitizer into build/fuzz and runs each fuzzer for FUZZ_SECONDS
# (default 60), one on each core, from FUZZ_SEED (default 1; 0 = another one every time). What they learn stays in build/fuzz/corpus. Fails if one of them found something: its
# last lines say where the input that shows it is; run the program with that file as its argument.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/fuzz
seconds=${FUZZ_SECONDS:-60} seed=${FUZZ_SEED:-1}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}

# Older ones do not compile C++20 as we write it: captured structured bindings, inherited constructors with constraints.
for version in 19 20 21 22; do
  command -v "clang++-$version" >/dev/null && compiler=$version
done
[[ ${compiler:-} ]] || { echo "clang 19 or newer is needed: apt-get install clang-19 libclang-rt-19-dev" >&2; exit 1; }
mkdir -p "$build"
# Deprecated: what libstdc++ 12 itself uses.
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_C_COMPILER="clang-$compiler" -DCMAKE_CXX_COMPILER="clang++-$compiler" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_FLAGS="-Wno-deprecated-declarations" -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" -DCXXRUN_WORKER=OFF -DCXXRUN_TESTS=ON \
  -DCXXRUN_SANITIZE=fuzzer-no-link,address,undefined >"$build/cmake.log" 2>&1 || { cat "$build/cmake.log"; exit 1; }
ninja -C "$build" fuzzers || exit 1

# The fuzzer of a name, and what it needs in its environment.
program_of() {
  case $1 in
    lerobot) echo "FUZZ_DATASET=$root/tests/data/lerobot_png $build/bin/fuzz_dataset" ;;
    lerobot_v2) echo "FUZZ_DATASET=$root/tests/data/lerobot_v21 $build/bin/fuzz_dataset" ;;
    zarr) echo "FUZZ_DATASET=$root/tests/data/zarr_sample $build/bin/fuzz_dataset" ;;
    *) echo "$build/bin/fuzz_$1" ;;
  esac
}

fuzz() {
  local name=$1 corpus=$build/corpus/$1 seeds=$root/tests/fuzz/corpus/$1 log=$build/$1.log program
  read -ra program < <(program_of "$name")
  mkdir -p "$corpus" "$build/found"
  [[ -d $seeds ]] && cp -n "$seeds"/* "$corpus"
  [[ ${program[-1]} == */fuzz_dataset ]] && env "${program[@]}" --seeds "$corpus"
  if env "${program[@]}" -max_total_time="$seconds" -seed="$seed" -timeout=10 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 \
    -artifact_prefix="$build/found/$name-" "$corpus" >"$log" 2>&1; then
    echo "$name: ok, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
  else
    tail -n 60 "$log"
    echo "$name: FAILED, see $log"
    return 1
  fi
}

export -f fuzz program_of
export root build seconds seed
(($# > 0)) || set -- lerobot lerobot_v2 zarr policy_protocol safetensors store tokenizer yaml
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}' || exit 1
echo "$# fuzzers found nothing in $seconds s each"
