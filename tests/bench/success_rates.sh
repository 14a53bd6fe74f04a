#!/usr/bin/env bash
# success_rates.sh BIN_DIR OUT [all|train|eval]: trains ACT and a small SmolVLA on the embedded Meta-World demo, each with vla_worker and with
# LeRobot's lerobot-train, with the same options, steps and batch; LeRobot's own lerobot-eval then runs the four checkpoints in the simulator.
# Prints a table of success rates in Markdown and draws OUT/episodes.png, the first button press of our two checkpoints. The four
# trainings run side by side, and so do the four evaluations: on two H200s in eight minutes.
#
#   BIN_DIR       holds cxxrun and vla_worker
#   OUT           gets vlm/ (the small SmolVLM's sizes), POLICY-ours, POLICY-lerobot, eval-* with videos, and what the programs printed
# Environment: PYTHON (has lerobot 0.6.1, metaworld 3.0.0, mujoco 3.3.2), STEPS (3000), BATCH (32), EPISODES (10), TASKS, DEVICE (cuda),
#   LEROBOT_OPTIONS (more for lerobot-train, e.g. --dataset.video_backend=pyav), MUJOCO_GL (egl)
set -euo pipefail
bin=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
what=${3:-all}
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3} steps=${STEPS:-3000} batch=${BATCH:-32} episodes=${EPISODES:-10} device=${DEVICE:-cuda}
tasks=${TASKS:-button-press-topdown-v3,reach-v3}
demo=$root/tests/data/metaworld_demo
export MUJOCO_GL=${MUJOCO_GL:-egl} HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
gpus=$( (nvidia-smi -L 2>/dev/null || true) | wc -l)
policies=(act smolvla)

act=(--policy.type=act --policy.chunk_size=16 --policy.n_action_steps=16 --policy.dim_model=128 --policy.n_heads=4
  --policy.dim_feedforward=512 --policy.n_encoder_layers=2 --policy.n_vae_encoder_layers=2 --policy.pre_norm=true
  --policy.optimizer_lr=1e-4 --policy.optimizer_lr_backbone=1e-4)
# Nothing is pretrained, so the vision-language model learns too.
smolvla=(--policy.type=smolvla --policy.vlm_model_name="$out/vlm" --policy.load_vlm_weights=false --policy.chunk_size=16
  --policy.n_action_steps=16 '--policy.resize_imgs_with_padding=[128,128]' --policy.num_vlm_layers=6 --policy.train_expert_only=false
  --policy.freeze_vision_encoder=false --policy.optimizer_lr=3e-4 --policy.scheduler_warmup_steps=200 --policy.scheduler_decay_steps="$steps")

small_vlm() {
  mkdir -p "$out/vlm"
  cp "$root"/tests/data/tiny_smolvlm/* "$out/vlm"
  "$python" - "$out/vlm/config.json" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
config["text_config"] |= dict(hidden_size=192, intermediate_size=512, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=2, head_dim=32)
config["vision_config"] |= dict(hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=6, image_size=128, patch_size=16)
json.dump(config, open(sys.argv[1], "w"), indent=2)
PYTHON
}

# on_gpu N COMMAND...: in the background, on the N-th GPU in turn
on_gpu() {
  local index=$(($1 % (gpus > 0 ? gpus : 1)))
  shift
  CUDA_VISIBLE_DEVICES=$index MUJOCO_EGL_DEVICE_ID=$index "$@" &
  running+=($!)
}
wait_all() { for pid in "${running[@]}"; do wait "$pid" || failed=1; done; running=(); }

ours() {
  local -n options=$1
  local more=()
  [[ $1 == act ]] && more=(--policy.backbone_weights=none)
  "$bin/cxxrun" --nproc_per_node=1 "$bin/vla_worker" "${options[@]}" "${more[@]}" --dataset.root="$demo" --dataset.val_episodes=0 --device="$device" \
    --training.steps="$steps" --training.batch_size="$batch" --training.save_freq="$steps" --training.log_freq=200 --training.seed=1000 \
    --output_dir="$out/$1-ours" >"$out/$1-ours.log" 2>&1
}
lerobot() {
  local -n options=$1
  local more=()
  [[ $1 == act ]] && more=(--policy.pretrained_backbone_weights=null)
  "$python" -m lerobot.scripts.lerobot_train "${options[@]}" "${more[@]}" --policy.push_to_hub=false --policy.device="$device" \
    --dataset.repo_id=local/demo --dataset.root="$demo" --steps="$steps" --batch_size="$batch" --save_freq="$steps" --log_freq=200 --seed=1000 \
    --output_dir="$out/$1-lerobot" ${LEROBOT_OPTIONS:-} >"$out/$1-lerobot.log" 2>&1
}
# The simulator's images are 480x480, the demo's were shrunk to 128x128 by this step of LeRobot's.
shrink_images() {
  "$python" - "$1/policy_preprocessor.json" <<'PYTHON'
import json, sys
processor = json.load(open(sys.argv[1]))
step = {"registry_name": "image_crop_resize_processor", "config": {"crop_params_dict": None, "resize_size": [128, 128]}}
if step not in processor["steps"]:
    processor["steps"].insert(1, step)
json.dump(processor, open(sys.argv[1], "w"), indent=2)
PYTHON
}
evaluate() {
  local checkpoint=$out/$1/checkpoints/last/pretrained_model
  shrink_images "$checkpoint"
  "$python" -m lerobot.scripts.lerobot_eval --policy.path="$checkpoint" --policy.device="$device" --env.type=metaworld --env.task="$tasks" \
    --eval.n_episodes="$episodes" --eval.batch_size="$episodes" --output_dir="$out/eval-$1" >"$out/eval-$1.log" 2>&1
}

running=() failed=0 turn=0
if [[ $what != eval ]]; then
  small_vlm
  for policy in "${policies[@]}"; do
    on_gpu $((turn++)) ours "$policy"
    on_gpu $((turn++)) lerobot "$policy"
  done
  wait_all
  ((failed)) && { tail -n 15 "$out"/*-ours.log "$out"/*-lerobot.log; exit 1; }
fi
if [[ $what != train ]]; then
  for policy in "${policies[@]}"; do
    for trainer in ours lerobot; do on_gpu $((turn++)) evaluate "$policy-$trainer"; done
  done
  wait_all
  ((failed)) && { tail -n 15 "$out"/eval-*.log; exit 1; }
  "$python" - "$out" "$tasks" "$steps" "$batch" <<'PYTHON'
import json, pathlib, sys
out, tasks, steps, batch = pathlib.Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3], sys.argv[4]
print(f"{steps} steps of batch {batch}\n\n| policy | task | trained by vla_worker | trained by lerobot-train |\n| --- | --- | --- | --- |")
def successes(policy, trainer, task):
    info = json.loads((out / f"eval-{policy}-{trainer}/eval_info.json").read_text())
    for entry in info["per_task"]:
        if entry["task_group"] == task:
            values = entry["metrics"]["successes"]
            return f"{sum(map(bool, values))} of {len(values)}"
    sys.exit(f"no task {task} in {out}/eval-{policy}-{trainer}/eval_info.json")
for policy in ("act", "smolvla"):
    for task in tasks:
        print(f"| {policy} | {task} | {successes(policy, 'ours', task)} | {successes(policy, 'lerobot', task)} |")

import av
from PIL import Image
COLUMNS, SIZE, GAP = 8, 112, 2
strip = Image.new("RGB", (COLUMNS * (SIZE + GAP) - GAP, 2 * (SIZE + GAP) - GAP), "white")
for row, policy in enumerate(("act", "smolvla")):
    frames = [frame.to_image() for frame in av.open(next(out.glob(f"eval-{policy}-ours/videos/{tasks[0]}*/eval_episode_0.mp4"))).decode(video=0)]
    for column in range(COLUMNS):
        frame = frames[round(column * (len(frames) - 1) / (COLUMNS - 1))]
        strip.paste(frame.resize((SIZE, SIZE), Image.LANCZOS), (column * (SIZE + GAP), row * (SIZE + GAP)))
strip.quantize(96, dither=Image.Dither.NONE).save(out / "episodes.png", optimize=True)
PYTHON
fi
