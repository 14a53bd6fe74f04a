#!/usr/bin/env bash
# Installs what a build needs: scripts/setup.sh [--with-tests] [--launcher-only]
#
#   --with-tests      also what only the tests need (GoogleTest)
#   --launcher-only   only what cxxrun needs: no LibTorch, no CUDA, no FFmpeg
#
# Debian packages come by apt (through sudo where needed), LibTorch and Arrow as the pinned wheels of requirements.txt in a
# private Python environment in $CXXRUN_DEPS/venv (default: ~/.cache/cxxrun/venv). A LibTorch in CMAKE_PREFIX_PATH is used
# instead of the wheel. What is there already is not touched, so a second run takes a second and no network.
set -euo pipefail
source "$(dirname "$0")/environment.sh"

with_tests= launcher_only=
for argument in "$@"; do
  case $argument in
    --with-tests) with_tests=1 ;;
    --launcher-only) launcher_only=1 ;;
    -h | --help) print_help "$0"; exit ;;
    *) usage_error "unknown option '$argument' (known: --with-tests, --launcher-only, --help)" ;;
  esac
done

command -v apt-get >/dev/null ||
  die "unsupported system: no apt-get here. Debian 12 and Ubuntu 24.04 or newer are supported; elsewhere install the" \
    "equivalents of the packages listed in scripts/setup.sh by hand and build with cmake --preset release"
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
case $codename in
  buster | bullseye | focal | jammy) die "unsupported system: $codename has no Boost 1.81; use Debian 12, Ubuntu 24.04 or newer" ;;
esac

if [[ ! $launcher_only ]]; then
  cuda=$(find_cuda) ||
    die "no CUDA toolkit (no nvcc in CUDA_HOME='${CUDA_HOME:-}', /usr/local/cuda or PATH), which LibTorch needs even for" \
      "the CPU: install CUDA 13.0 from https://developer.nvidia.com/cuda-downloads or set CUDA_HOME"
  release=$("$cuda/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  [[ $release == 13.* ]] || die "$cuda is CUDA $release, but LibTorch 2.11 needs 13.0: install that or set CUDA_HOME to it"
fi

mkdir -p "$deps" 2>/dev/null && [[ -w $deps ]] ||
  die "cannot write to $deps: set CXXRUN_DEPS to a folder of yours with 8 GiB free"
exec 9>"$deps/setup.lock"
flock --nonblock 9 || {
  echo "waiting for another set-up of $deps"
  flock 9
}

# Fails unless `$1` GiB are free at $deps.
require_space() {
  local free
  free=$(df -Pk "$deps" | awk 'NR == 2 {print $4}')
  ((free >= $1 * 1024 * 1024)) || die "$((free / 1024 / 1024)) GiB are free at $deps, but $1 are needed: free some or set" \
    "CXXRUN_DEPS to a folder on another disk"
}

# Python with its venv module: the first that is new enough and has a wheel of our LibTorch.
find_python() {
  local python
  for python in python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  return 1
}

# --- Debian packages: tools by their command, libraries by their package.
missing=()
for tool in cmake ninja:ninja-build g++ pkg-config ccache mold; do
  command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
done
boost=
[[ $codename == bookworm ]] && boost=1.81
libraries=(libboost$boost-dev libboost-filesystem$boost-dev libboost-program-options$boost-dev
  libyaml-cpp-dev libfmt-dev nlohmann-json3-dev)
if [[ ! $launcher_only ]]; then
  libraries+=(libgloo-dev libavformat-dev libavcodec-dev libavutil-dev libswscale-dev libblosc-dev
    libhdf5-dev libjpeg-dev libprotozero-dev libicu-dev)
  find_python >/dev/null || missing+=(python3 python3-venv)
fi
[[ $with_tests ]] && libraries+=(libgtest-dev libgmock-dev clang-19 libclang-rt-19-dev)
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${libraries[@]}" 2>/dev/null) || true
for library in "${libraries[@]}"; do
  grep -qx "installed $library" <<<"$installed" || missing+=("$library")
done

if ((${#missing[@]})); then
  by_hand="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  as_root=()
  if [[ $(id -u) != 0 ]]; then
    as_root=(sudo)
    [[ -t 0 ]] || as_root+=(--non-interactive)
    command -v sudo >/dev/null && "${as_root[@]}" true ||
      die "no rights to install packages. Let an administrator run, then start again: sudo sh -c '$by_hand'"
  fi
  echo "installing packages: ${missing[*]}"
  log=$(mktemp)
  # --no-remove: a package that would push out another one is the user's decision.
  apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends --no-remove "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    if grep -qE 'Temporary failure resolving|Could not connect|Failed to fetch|Connection (failed|timed out)' "$log"; then
      die "no route to the package mirror: check the network or /etc/apt/sources.list, then start again (log: $log)"
    elif grep -q 'No space left\|enough free space' "$log"; then
      die "the system disk is full: free 2 GiB, then start again (log: $log)"
    fi
    die "apt-get failed (log: $log). Run by hand: sudo sh -c '$by_hand'"
  fi
  rm -f "$log"
fi

# --- Wheels.
[[ $launcher_only ]] && exit

wheels=$(grep -v '^#' "$root/scripts/requirements.txt")
IFS=':;' read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
for prefix in "${prefixes[@]}"; do
  if [[ -f $prefix/Torch/TorchConfig.cmake || -f $prefix/share/cmake/Torch/TorchConfig.cmake ]]; then
    # Of LibTorch's dependencies only NCCL's header is ours to find.
    wheels=$(grep -E '^(pyarrow|nvidia-nccl-cu13)==' <<<"$wheels")
    break
  fi
done

# Prints the wheels that are not installed wholly: another version, or a file that is absent or has not its recorded size
# (an installation that was killed).
damaged_wheels() {
  "$venv/bin/python" - $wheels <<'PYTHON'
import csv, importlib.metadata, os, sys

def is_whole(name, version):
    try:
        wheel = importlib.metadata.distribution(name)
        rows = [row for row in csv.reader((wheel.read_text("RECORD") or "").splitlines()) if row[2]]
        return wheel.version == version and rows and all(
            os.path.getsize(wheel.locate_file(path)) == int(size) for path, _, size in rows)
    except (importlib.metadata.PackageNotFoundError, OSError):
        return False

print(*(wheel for wheel in sys.argv[1:] if not is_whole(*wheel.split("=="))))
PYTHON
}

# The stamp holds what was installed, and is written last.
stamp=$venv/.complete
if [[ -x $venv/bin/python && -f $stamp && $(<"$stamp") == "$wheels" ]]; then exit; fi
rm -f "$stamp"
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  if [[ $wheels == *torch==* ]]; then require_space 8; else require_space 1; fi
  "$(find_python)" -m venv --clear "$venv" || die "cannot make a Python environment in $venv"
fi
damaged=$(damaged_wheels)
if [[ $damaged ]]; then
  if [[ $damaged == *torch==* ]]; then require_space 8; fi
  echo "installing $(wc -w <<<"$damaged") of $(wc -w <<<"$wheels") wheels into $venv (all of them: 3 GB to download)"
  log=$deps/pip.log
  if ! "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off --no-deps --force-reinstall \
    $damaged >"$log" 2>&1; then
    tail -n 3 "$log" >&2
    if grep -q 'No space left' "$log"; then
      die "the disk is full: free 8 GiB at $deps and at ${TMPDIR:-/tmp}, then start again (log: $log)"
    elif grep -qE 'Max retries|NewConnectionError|NameResolutionError|Read ?[Tt]ime(d )?out|ProxyError|No matching' "$log"; then
      die "no route to the Python package index: check the network or PIP_INDEX_URL, then start again (log: $log)"
    fi
    die "pip failed (log: $log)"
  fi
  damaged=$(damaged_wheels)
  [[ ! $damaged ]] || die "still incomplete after installation: $damaged. Remove $venv and start again"
fi
printf '%s\n' "$wheels" >"$stamp.new"
mv "$stamp.new" "$stamp"
