#!/usr/bin/env bash
# Makes the Python environment with LeRobot that golden values and comparisons come from: $CXXRUN_DEPS/reference (6 GiB).
#
#   scripts/reference/make_env.sh
#
# Not needed to build, to test or to train. LeRobot 0.6.1 wants Python 3.12 or newer; PYTHON=/path/to/python chooses one.
set -euo pipefail
source "$(dirname "$0")/../environment.sh"
case ${1:-} in -h | --help) print_help "$0"; exit ;; esac

environment=$deps/reference
requirements=$root/scripts/reference/requirements.txt
if ! cmp -s "$requirements" "$environment/.complete"; then
  for python in ${PYTHON:-} python3 python3.12 python3.13 "$HOME"/.pyenv/versions/3.1[23]*/bin/python none; do
    "$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 12) <= sys.version_info < (3, 14))' 2>/dev/null && break
  done
  [[ $python != none ]] || die "no Python 3.12 or 3.13 with its venv module: install one (pyenv install 3.12) or set PYTHON to it"
  [[ -x $environment/bin/python ]] || "$python" -m venv "$environment"
  "$environment/bin/python" -m pip install --disable-pip-version-check --no-deps -r "$requirements"
  "$environment/bin/python" -c 'from lerobot.policies.act.modeling_act import ACTPolicy'
  cp "$requirements" "$environment/.complete"
fi
echo "ready: $environment/bin/python"
