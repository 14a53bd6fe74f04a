#!/usr/bin/env bash
# set-up, build and test scripts where something is missing. All that would change the system is replaced by fakes.
source "$(dirname "$0")/check.sh"
unset CMAKE_PREFIX_PATH CXXRUN_PRESETS FUZZ_SECONDS
export PIP_RETRIES=0 PIP_FIND_LINKS=''

# A system where every package is installed, apt-get may not be called, and a CUDA toolkit is there.
complete_system() {
  export CXXRUN_DEPS=$work/deps CUDA_HOME=$work/cuda
  local tool
  for tool in cmake ninja g++ pkg-config ccache mold; do fake $tool 'exit 1'; done
  fake dpkg-query 'printf "installed %s\n" "${@:4}"'
  fake apt-get 'echo "E: must not be called"; exit 100'
  fake id 'echo 0'
  mkdir -p "$CUDA_HOME/bin"
  printf '#!/bin/bash\necho "Cuda compilation tools, release 13.0, V13.0.88"\n' >"$CUDA_HOME/bin/nvcc"
  chmod +x "$CUDA_HOME/bin/nvcc"
}

test_system_without_apt_is_named_unsupported() {
  local tool
  mkdir only
  for tool in bash dirname; do ln -s "$(command -v $tool)" only/; done
  PATH=$work/only expect_failure 1 "unsupported system: no apt-get" "$root/scripts/setup.sh"
}

test_missing_cuda_is_named_with_the_places_looked_at() {
  complete_system
  printf '#!/bin/bash\necho "Cuda compilation tools, release 12.4, V12.4.1"\n' >"$CUDA_HOME/bin/nvcc"
  expect_failure 1 "is CUDA 12.4, but LibTorch 2.11 needs 13.0" "$root/scripts/setup.sh"
  [[ -e /usr/local/cuda/bin/nvcc ]] && return
  rm "$CUDA_HOME/bin/nvcc"
  expect_failure 1 "set CUDA_HOME" "$root/scripts/setup.sh"
}

test_without_rights_it_prints_the_command_to_run() {
  complete_system
  fake dpkg-query 'exit 1'
  fake id 'echo 1000'
  fake sudo 'exit 1'
  expect_failure 1 "sudo sh -c 'apt-get update && apt-get install -y" "$root/scripts/setup.sh" --with-tests </dev/null
  expect_failure 1 "libgtest-dev" "$root/scripts/setup.sh" --with-tests </dev/null
}

test_packages_without_network_are_one_clear_line() {
  complete_system
  fake dpkg-query 'exit 1'
  fake apt-get "echo \"W: Temporary failure resolving 'mirror.example'\"; [[ \$* == *update* ]]"
  expect_failure 1 "no route to the package mirror" "$root/scripts/setup.sh"
}

test_wheels_without_network_are_one_clear_line() {
  complete_system
  PIP_INDEX_URL=http://127.0.0.1:9/simple expect_failure 1 "no route to the Python package index" "$root/scripts/setup.sh"
}

test_full_disk_is_told_before_anything_is_installed() {
  complete_system
  fake df 'printf "Filesystem 1024-blocks Used Available\n/dev/x 1 1 3145728\n"'
  expect_failure 1 "3 GiB are free at $CXXRUN_DEPS, but 8 are needed" "$root/scripts/setup.sh"
  [[ ! -e $CXXRUN_DEPS/venv ]]
}

test_folder_that_cannot_be_written_is_named() {
  complete_system
  CXXRUN_DEPS=/proc/cxxrun expect_failure 1 "cannot write to /proc/cxxrun" "$root/scripts/setup.sh"
}

test_launcher_alone_needs_neither_cuda_nor_wheels() {
  complete_system
  rm -r "$CUDA_HOME"
  "$root/scripts/setup.sh" --launcher-only
  [[ ! -e $CXXRUN_DEPS/venv ]]
}

# Two tiny wheels stand for LibTorch and Arrow. Sets installed_file.
project_with_tiny_wheels() {
  complete_system
  copy_project
  mkdir wheels
  python3 - <<'PYTHON'
import base64, hashlib, zipfile
for name in ("torch", "pyarrow"):
    files = {f"{name}/lib.txt": "library\n",
             f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
             f"{name}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    digest = lambda text: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    record = f"{name}-1.0.dist-info/RECORD"
    files[record] = "".join(f"{path},sha256={digest(text)},{len(text)}\n" for path, text in files.items()) + f"{record},,\n"
    with zipfile.ZipFile(f"wheels/{name}-1.0-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
PYTHON
  printf '# pinned\ntorch==1.0\npyarrow==1.0\n' >"$project/scripts/requirements.txt"
  export PIP_NO_INDEX=1 PIP_FIND_LINKS=$work/wheels
}

installed() { cat "$CXXRUN_DEPS"/venv/lib/python3*/site-packages/"$1"/lib.txt; }

test_killed_installations_are_repaired_and_complete_ones_left_alone() {
  project_with_tiny_wheels
  "$project/scripts/setup.sh" & # two at once: one waits for the other
  "$project/scripts/setup.sh" >/dev/null
  wait $!
  expect_equal library "$(installed torch)"

  PIP_FIND_LINKS=/nowhere "$project/scripts/setup.sh" # complete: needs no wheel

  rm "$CXXRUN_DEPS/venv/.complete"
  : >"$(echo "$CXXRUN_DEPS"/venv/lib/python3*/site-packages/torch/lib.txt)"
  expect_contains "installing 1 of 2 wheels" "$("$project/scripts/setup.sh")"
  expect_equal library "$(installed torch)"

  rm "$CXXRUN_DEPS/venv/bin/python"
  "$project/scripts/setup.sh" >/dev/null
  expect_equal library "$(installed pyarrow)"

  sed -i 's/pyarrow==1.0/pyarrow==2.0/' "$project/scripts/requirements.txt"
  expect_failure 1 "no route to the Python package index" "$project/scripts/setup.sh"
}

test_libtorch_in_the_prefix_path_is_not_installed_again() {
  project_with_tiny_wheels
  mkdir -p libtorch/share/cmake/Torch
  touch libtorch/share/cmake/Torch/TorchConfig.cmake
  CMAKE_PREFIX_PATH=/nowhere:$work/libtorch "$project/scripts/setup.sh" >/dev/null
  expect_equal library "$(installed pyarrow)"
  [[ ! -e $(echo "$CXXRUN_DEPS"/venv/lib/python3*/site-packages/torch) ]]
}

test_build_configures_once_and_again_when_dependencies_move() {
  complete_system
  copy_project
  printf '#!/bin/bash\n' >"$project/scripts/setup.sh"
  fake cmake 'echo "configured $*"; mkdir -p build/release; touch build/release/{build.ninja,CMakeCache.txt}'
  fake ninja 'echo "ninja $*"'
  expect_contains "configured --preset release -DCXXRUN_TESTS=OFF" "$("$project/scripts/build.sh" release cxxrun)"
  expect_equal "ninja -C $project/build/release -j 3 cxxrun" "$(CXXRUN_JOBS=3 "$project/scripts/build.sh" release cxxrun)"
  expect_contains "-DCXXRUN_TESTS=ON" "$("$project/scripts/build.sh" --with-tests)"
  expect_contains configured "$(CXXRUN_DEPS=$work/elsewhere "$project/scripts/build.sh")"
}

test_test_script_tries_every_build_and_fails_if_one_fails() {
  copy_project
  printf '#!/bin/bash\n' | tee "$project/scripts/setup.sh" >"$project/scripts/build.sh"
  fake ctest 'echo "$*" >>'"$work/calls" '[[ $2 != "$FAILING" ]] || printf "%s\n" "1/7 Test #1: Foo.Bar ...***Failed" why "2/7 Test #2: Foo.Good ... Passed"' \
    'echo "100% tests passed, 0 tests failed out of 7"' '[[ $2 != "$FAILING" ]]'
  mkdir -p "$project/tests/fuzz"
  printf '#!/bin/bash\necho "6 fuzzers found nothing in 60 s each"\n' >"$project/tests/fuzz/run.sh"
  chmod +x "$project/tests/fuzz/run.sh"
  local summary
  summary=$("$project/scripts/test.sh" | tail -n 2)
  expect_contains "100% tests passed, 0 tests failed out of 7" "$summary"
  expect_contains "6 fuzzers found nothing" "$summary"
  expect_equal "release asan tsan" "$(cut -d' ' -f2 calls | xargs)"
  expect_contains "policy" "$(grep asan calls)"
  expect_contains "slow" "$(grep release calls)"
  FAILING=asan expect_failure 1 "test asan: 1/7 Test #1: Foo.Bar ...***Failed"$'\n'"  why"$'\n'"=== summary" "$project/scripts/test.sh"
  rm calls
  FAILING=asan expect_failure 1 "test asan      FAILED" "$project/scripts/test.sh" --all -R Foo
  expect_equal 3 "$(wc -l <calls)"
  expect_contains "-R Foo" "$(grep tsan calls)"
  [[ $(cat calls) != *slow* ]]
}

run_tests
