#!/usr/bin/env bash
# speed.sh [OPTION...] BIN_DIR: how fast vla_worker trains beside LeRobot, one case after the other on this machine; prints tables in Markdown.
#
#   --peer-python PYTHON         has lerobot 0.6.1 (python3)
#   --skip-peer, --skip-ours     run nothing of LeRobot, or of BIN_DIR; results that DIR has already still are in the tables
#   --parts "step scaling whole checkpoint"
#   --policies "act diffusion smolvla"
#   --batches "8 64"             per GPU
#   --precisions "default bf16-mixed"    LeRobot's, of steps on one GPU
#   --gpus "1 2 4"               for scaling; numbers above the machine's are left out
#   --buckets "1:25 1:100"       for scaling: with the most GPUs, these buckets of gradients as well (the first : the others, in MiB)
#   --gradient-dtypes "auto"     for each of --buckets: gradients that travel in these types (auto, float32, bfloat16)
#   --variables "A=1 B=1"        for scaling: with the most GPUs, each of these variables by itself, such as TORCH_NCCL_HIGH_PRIORITY=1
#                                (NCCL's kernels before others), DDP_SET_LAST_BUCKET_CAP=1 (the size of the first bucket is that of the last)
#   --device cuda                or cpu, to try the script out: ranks without GPUs, as many as --gpus says
#   --steps 30                   that are measured
#   --limit 120                  seconds that a case may take
#   --out DIR                    gets every case's JSON and log; a case whose JSON is there is not run again, so DIR belongs to one machine
# Environment: VLA_LIBRARY_PATH (LD_LIBRARY_PATH of BIN_DIR's programs alone); further options: OURS_OPTIONS (vla_worker), PEER_OPTIONS
#   (lerobot_peer.py), LEROBOT_OPTIONS (lerobot_whole_path.py).
# Exits with 1 when a case failed.
set -uo pipefail
command="speed.sh $*"
peer_python=python3 with_peer=1 with_ours=1 parts="step scaling whole checkpoint" policies="act diffusion smolvla" batches="8 64" gpus="1 2 4"
precisions="default bf16-mixed" buckets="" gradient_dtypes=auto variables="" device=cuda steps=30 limit=120 out=
while (($# > 1)); do
  case $1 in
    --skip-peer) with_peer=0 && shift && continue ;;
    --skip-ours) with_ours=0 && shift && continue ;;
    --peer-python) peer_python=$2 ;;
    --parts) parts=$2 ;;
    --policies) policies=$2 ;;
    --batches) batches=$2 ;;
    --precisions) precisions=$2 ;;
    --gpus) gpus=$2 ;;
    --buckets) buckets=$2 ;;
    --gradient-dtypes) gradient_dtypes=$2 ;;
    --variables) variables=$2 ;;
    --device) device=$2 ;;
    --steps) steps=$2 ;;
    --limit) limit=$2 ;;
    --out) out=$2 ;;
    *) echo "speed.sh: no option $1" >&2 && exit 2 ;;
  esac
  shift 2
done
bin=$(realpath "${1:?speed.sh: BIN_DIR is missing}")
here=$(cd "$(dirname "$0")" && pwd)
root=$(realpath "$here/../..")
demo=$root/tests/data/metaworld_demo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${out:-$work/out}
mkdir -p "$out"
out=$(realpath "$out")
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
read -ra our_options <<<"${OURS_OPTIONS:-}"
read -ra peer_options <<<"${PEER_OPTIONS:-}"
read -ra lerobot_options <<<"${LEROBOT_OPTIONS:-}"
present=$( (nvidia-smi -L 2>/dev/null || echo none) | wc -l)
[[ $device == cpu ]] && present=1000
failed=0

# attempt NAME COMMAND...: what it prints becomes NAME.json; the object is its last line
attempt() {
  local name=$1 start=$SECONDS
  shift
  tail -n 1 "$out/$name.json" 2>/dev/null | grep -q '^{' && return
  if timeout --kill-after=10 "$limit" "$@" >"$out/$name.json" 2>"$out/$name.log" && tail -n 1 "$out/$name.json" | grep -q '^{'; then
    echo "$name: $((SECONDS - start)) s" >&2
  else
    echo "$name: FAILED after $((SECONDS - start)) s" >&2
    ((SECONDS - start < limit)) || echo "stopped after the limit of $limit s" >>"$out/$name.log"
    tail -n 5 "$out/$name.log" >&2
    rm -f "$out/$name.json"
    failed=1
  fi
}
# ours NAME GPUS COMMAND OPTION...
ours() {
  local name=$1 ranks=$2 launcher=()
  shift 2
  ((with_ours)) || return 0
  ((ranks > 1)) && launcher=("$bin/cxxrun" --nproc_per_node="$ranks")
  local program=(env "LD_LIBRARY_PATH=${VLA_LIBRARY_PATH:-${LD_LIBRARY_PATH:-}}" "${launcher[@]}" "$bin/vla_worker" "$@"
    --device="$device" --training.precision=bf16-true --training.batch_size_mode=per_gpu "${our_options[@]}")
  if [[ $1 == train ]]; then
    # shellcheck disable=SC2016
    attempt "$name" bash -c 'run=$1 && shift && "$@" --output_dir="$run" >&2 && cat "$run/metrics.jsonl"' - "$work/$name" "${program[@]}"
    rm -rf "${work:?}/$name"
  else
    attempt "$name" "${program[@]}" --json
  fi
}
# peer NAME GPUS SCRIPT OPTION...
peer() {
  local name=$1 ranks=$2 script=$here/$3 launcher=("$peer_python")
  shift 3
  ((with_peer)) || return 0
  ((ranks > 1)) && launcher+=(-m torch.distributed.run --standalone --nproc-per-node "$ranks")
  attempt "$name" "${launcher[@]}" "$script" "$@" --device="$device"
}

# shellcheck disable=SC2034,SC2054
{
  act=(--config="$here/configs/act.yaml" --dataset.root=synthetic:frames=FRAMES,state=7,action=7,image=480x640,cameras=2)
  diffusion=(--config="$here/configs/diffusion.yaml" --dataset.root=synthetic:frames=FRAMES,state=7,action=7,image=96x96)
  smolvla=(--config="$here/configs/smolvla.yaml" --policy.vlm_model_name="$work/vlm" --policy.load_vlm_weights=false
    --dataset.root=synthetic:frames=FRAMES,state=7,action=7,image=256x256,cameras=2)
  peer_act=(--policy act --height 480 --width 640)
  peer_diffusion=(--policy diffusion --cameras 1 --height 96 --width 96)
  peer_smolvla=(--policy smolvla)
}
cp -r "$root/tests/data/tiny_smolvlm" "$work/vlm"
python3 - "$work/vlm/config.json" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
config["scale_factor"] = 4
config["text_config"] |= dict(hidden_size=960, intermediate_size=2560, num_hidden_layers=32, num_attention_heads=15, num_key_value_heads=5,
                              head_dim=64, vocab_size=49280, max_position_embeddings=8192)
config["vision_config"] |= dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, image_size=512, patch_size=16)
json.dump(config, open(sys.argv[1], "w"))
PYTHON

# step_case POLICY BATCH GPUS [VARIANT OPTION...]: on two full batches
step_case() {
  local -n options=$1
  local frames=$((2 * $2 * $3 + 64))
  ours "ours-$1-$2-$3${4:+-$4}" "$3" bench --resident --steps="$steps" "${options[@]/FRAMES/$frames}" --data.cache=none \
    --training.batch_size="$2" "${@:5}"
}
# peer_step_case POLICY BATCH GPUS PRECISION
peer_step_case() {
  local -n options=peer_$1
  peer "peer-$1-$2-$3-$4" "$3" lerobot_peer.py "${options[@]}" --batch "$2" --precision "$4" --steps "$steps" "${peer_options[@]}"
}
one_gpu() {
  local policy batch precision kept
  for policy in $policies; do
    for batch in $batches; do
      for precision in $precisions; do peer_step_case "$policy" "$batch" 1 "$precision"; done
      step_case "$policy" "$batch" 1
      [[ $policy == smolvla ]] || continue
      for kept in vision prefix; do
        ours "ours-smolvla_$kept-$batch-1" 1 bench --steps="$steps" "${smolvla[@]/FRAMES/$((8 * (batch > 64 ? batch : 64)))}" \
          --training.batch_size="$batch" --training.frozen_cache=$kept
      done
    done
  done
}
scaling() {
  local policy batch ranks pair type variable most=1
  for ranks in $gpus; do ((ranks <= present && ranks > most)) && most=$ranks; done
  for policy in $policies; do
    for batch in $batches; do
      for ranks in $gpus; do ((ranks <= present)) && step_case "$policy" "$batch" "$ranks"; done
      ((most > 1)) || continue
      for pair in $buckets; do
        for type in $gradient_dtypes; do
          step_case "$policy" "$batch" "$most" "$pair $type" --training.first_bucket_mb="${pair%:*}" --training.bucket_mb="${pair#*:}" \
            --training.gradient_dtype="$type"
        done
      done
      for variable in $variables; do
        export "${variable?}"
        step_case "$policy" "$batch" "$most" "$variable"
        unset "${variable%%=*}"
      done
      peer_step_case "$policy" "$batch" 1 default
      peer_step_case "$policy" "$batch" "$most" default
    done
  done
}
# Frames are decoded in the first epoch and come from the frame cache in later ones.
whole_path() {
  local batch epoch warmup=15 first options frames
  frames=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["total_frames"])' "$demo/meta/info.json")
  for batch in $batches; do
    epoch=$((frames / batch)) first=$((epoch - warmup))
    options=(--policy.type=act --dataset.root="$demo" --training.num_workers=4 --training.batch_size="$batch")
    peer "peer-whole-$batch" 1 lerobot_whole_path.py --dataset "$demo" --batch "$batch" --steps 60 --dataset.video_backend=pyav "${lerobot_options[@]}"
    ours "ours-whole_first-$batch" 1 bench --warmup=$warmup --steps=$((first > 60 ? 60 : first)) "${options[@]}"
    ours "ours-whole_later-$batch" 1 bench --warmup=$((epoch + 10)) --steps=100 "${options[@]}"
  done
}
# Far enough apart for one to be on disk before the next; three count.
checkpoints() {
  local batch period
  for batch in $batches; do
    period=$((batch < 32 ? 800 : 200))
    ours "checkpoint-$batch" 1 train --policy.type=act --dataset.root="$demo" --training.num_workers=4 --training.batch_size="$batch" \
      --training.steps=$((4 * period)) --training.save_freq=$period --training.log_freq=$((period / 20)) --training.keep_checkpoints=1
  done
}

for part in $parts; do
  case $part in
    step) one_gpu ;;
    scaling) scaling ;;
    whole) whole_path ;;
    checkpoint) checkpoints ;;
    *) echo "speed.sh: no part $part" >&2 && exit 2 ;;
  esac
done

printf 'Machine: %s\n' "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort | uniq -c | sed -E 's/^ *([0-9]+) (.*), /\1 x \2 with driver /' | paste -sd ';' -)"
((with_peer)) && "$peer_python" -c 'import platform, lerobot, torch
print(f"LeRobot {lerobot.__version__} with torch {torch.__version__}, Python {platform.python_version()}")' 2>/dev/null
python3 "$here/speed_table.py" "$out" "$command"
exit $failed
