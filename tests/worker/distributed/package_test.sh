#!/usr/bin/env bash
# package_test.sh BUILD_DIR TORCH_PREFIX: installs, moves the installed tree, builds a user's project against it, runs it on 2 ranks.
set -euo pipefail
build=$1 torch=$2
source_dir=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The toolkit's usual place is found although it is not in PATH.
if [[ -x /usr/local/cuda/bin/nvcc ]]; then PATH=$(tr : '\n' <<<"$PATH" | grep -v cuda | paste -sd :); fi
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"
cmake -S "$source_dir/package" -B "$work/user" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/moved;$torch" >"$work/log" 2>&1 ||
  { cat "$work/log"; exit 1; }
ninja -C "$work/user" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/moved/bin/cxxrun" --nproc_per_node=2 "$work/user/ddp_user"
