# shellcheck shell=bash disable=SC2034
# Sourced by the scripts beside it: where things are, how to fail, how many compile jobs fit. Changes nothing on the system.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=${CXXRUN_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/cxxrun}
[[ $deps == /* ]] || deps=$PWD/$deps
venv=$deps/venv
export CXXRUN_DEPS=$deps

die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

usage_error() {
  echo "${0##*/}: $*" >&2
  exit 2
}

# Prints the comment block at the head of a script, without its first line and comment signs.
print_help() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$1"
}

# Prints the folder of the CUDA toolkit; fails where there is none.
find_cuda() {
  local nvcc
  for nvcc in "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" /usr/local/cuda/bin/nvcc "$(command -v nvcc)"; do
    if [[ -x $nvcc ]]; then
      nvcc=$(readlink -f "$nvcc")
      echo "${nvcc%/bin/nvcc}"
      return
    fi
  done
  return 1
}

# A compile job that includes LibTorch takes up to 2 GiB: prints how many fit into the memory that is free (and that the
# control group allows), at most one a core. CXXRUN_JOBS overrides.
compile_jobs() {
  local cores kib limit
  cores=$(nproc)
  kib=$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null) || limit=max
  if [[ $limit != max ]] && ((limit / 1024 < kib)); then kib=$((limit / 1024)); fi
  local jobs=$((kib / (2 * 1024 * 1024)))
  if ((jobs > cores)); then jobs=$cores; fi
  if ((jobs < 1)); then jobs=1; fi
  echo "${CXXRUN_JOBS:-$jobs}"
}
