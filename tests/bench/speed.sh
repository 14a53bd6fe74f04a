#!/usr/bin/env bash
# Samples per second of vla_worker and of LeRobot on this machine, as one markdown table. LeRobot 0.6.1 must be importable by --peer-python.
#   tests/bench/speed.sh [--quick] [--policies "smolvla act diffusion"] [--batches "8 64"] [--gpus "1 2 4"] [--skip-peer] [--peer-python PYTHON] [BIN]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$here/../../build/release/bin policies="smolvla act diffusion" batches="8 64" gpus="1 2 4" peer=1 python=python3 steps=30 warmup=15
while (($#)); do
  case $1 in
    --quick) steps=5 gpus=1 batches=8 ;;
    --policies) policies=$2; shift ;;
    --batches) batches=$2; shift ;;
    --gpus) gpus=$2; shift ;;
    --skip-peer) peer=0 ;;
    --peer-python) python=$2; shift ;;
    -*) echo "speed.sh: unknown option $1" >&2; exit 2 ;;
    *) bin=$1 ;;
  esac
  shift
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The published sizes of SmolVLM2-500M around the small tokenizer of the tests.
"$python" - "$here/../data/tiny_smolvlm" "$work/smolvlm" <<'PY'
import json, pathlib, shutil, sys
source, target = map(pathlib.Path, sys.argv[1:])
shutil.copytree(source, target)
config = json.loads((target / "config.json").read_text())
config["scale_factor"] = 4
config["text_config"].update(hidden_size=960, intermediate_size=2560, num_hidden_layers=32, num_attention_heads=15, num_key_value_heads=5,
                             head_dim=64, max_position_embeddings=8192, vocab_size=49280)
config["text_config"]["rope_parameters"]["rope_theta"] = 100000.0
config["vision_config"].update(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, image_size=512, patch_size=16)
(target / "config.json").write_text(json.dumps(config))
PY

declare -A peer_options=([smolvla]="--cameras 2 --height 256 --width 256" [act]="--cameras 2 --height 480 --width 640"
  [diffusion]="--cameras 1 --height 96 --width 96")

ours() { # policy batch gpus
  local extra=()
  [[ $1 == smolvla ]] && extra=(--policy.vlm_model_name="$work/smolvlm")
  "$bin/cxxrun" --nproc_per_node="$3" "$bin/vla_worker" bench --config "$here/configs/$1.yaml" --json="$work/ours.json" --resident \
    --steps "$steps" --warmup "$warmup" --training.batch_size="$2" "${extra[@]}" >"$work/log" 2>&1 || { tail -5 "$work/log" >&2; return 1; }
  "$python" -c 'import json, sys; print(round(json.load(open(sys.argv[1]))["samples_per_s_per_gpu"], 1))' "$work/ours.json"
}

theirs() { # policy batch gpus
  # shellcheck disable=SC2086
  "$python" -m torch.distributed.run --nproc-per-node "$3" "$here/lerobot_peer.py" --policy "$1" --batch "$2" ${peer_options[$1]} \
    --steps "$steps" 2>"$work/log" | grep '^{' | "$python" -c 'import json, sys; print(json.load(sys.stdin)["samples_s_gpu"])' ||
    { tail -5 "$work/log" >&2; return 1; }
}

echo "| policy | batch per GPU | GPUs | vla_worker, samples/s per GPU | LeRobot | ratio |"
echo "|---|---|---|---|---|---|"
for policy in $policies; do
  for batch in $batches; do
    for count in $gpus; do
      own=$(ours "$policy" "$batch" "$count") || own=failed
      other=- ratio=-
      ((peer)) && { other=$(theirs "$policy" "$batch" "$count") || other=failed; }
      [[ $own$other =~ ^[0-9.]+$ ]] && ratio=$(awk "BEGIN { printf \"%.1f\", $own / $other }")
      echo "| $policy | $batch | $count | $own | $other | $ratio |"
    done
  done
done
