#!/usr/bin/env bash
# train_demo_gpu.sh BIN_DIR: trains the embedded demo on 1 and on 2 GPUs with NCCL, checks that both loss curves agree, continues
# a checkpoint of 2 GPUs on 1, and prints tables of samples/s, of the parts of a step, and of every precision.
# Exits with 1 when the curves differ. About four minutes on two H100s; with one GPU, what needs two is left out.
set -euo pipefail
bin=$(realpath "$1")
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# train GPUS NAME OPTION...: into $work/NAME
train() {
  local gpus=$1 name=$2
  shift 2
  "$bin/cxxrun" --nproc_per_node="$gpus" "$bin/vla_worker" "$@" >"$work/$name.log" 2>&1 || { cat "$work/$name.log"; exit 1; }
}
demo() {
  local gpus=$1 name=$2
  shift 2
  train "$gpus" "$name" --config "$root/configs/act_demo.yaml" --device=cuda --output_dir="$work/$name" "$@"
}

nvidia-smi -L
most=$(nvidia-smi -L | wc -l)
((most > 2)) && most=2
short=(--training.steps=60 --training.log_freq=1 --training.save_freq=30)
demo 1 exact_one "${short[@]}" --training.dtype=float64
demo "$most" exact_two "${short[@]}" --training.dtype=float64
demo 1 one "${short[@]}"
demo "$most" two "${short[@]}"
demo "$most" resumed "${short[@]}" --training.dtype=float64 --training.steps=30
train 1 resumed_on_one --resume="$work/resumed/checkpoints/last" --training.steps=60

for batch in 8 64; do
  for gpus in $(seq "$most"); do
    demo "$gpus" "speed-$gpus-$batch" --training.batch_size="$batch" --training.batch_size_mode=per_gpu --training.steps=400 \
      --training.log_freq=200 --training.save_freq=0 --dataset.val_episodes=0
  done
done

for precision in fp32 tf32 bf16-mixed fp16-mixed bf16-true; do
  demo 1 "precision-$precision" --training.batch_size=64 --training.steps=400 --training.log_freq=200 --training.save_freq=0 \
    --dataset.val_episodes=0 --training.precision="$precision"
done
# Ten checkpoints among 100 steps, against none.
demo 1 saving --training.batch_size=64 --training.steps=300 --training.log_freq=100 --training.save_freq=10 --training.keep_checkpoints=2 \
  --dataset.val_episodes=0

python3 - "$work" "$most" <<'PYTHON'
import json, sys
from pathlib import Path

work, most = Path(sys.argv[1]), int(sys.argv[2])
read = lambda name: [json.loads(line) for line in (work / name / "metrics.jsonl").read_text().splitlines()]
assert [m["step"] for m in read("resumed")] == list(range(1, 61)), "a resumed run must log every step once"
failed = False


def compare(what, left, right, steps, tolerance):
    global failed
    pairs = list(zip(read(left), read(right)))[:steps]
    assert len(pairs) == steps
    largest = max(abs(a["loss"] - b["loss"]) / abs(a["loss"]) for a, b in pairs)
    failed |= not largest <= tolerance
    print(f"{what}: largest relative difference of the loss in {steps} steps {largest:.1e} (allowed {tolerance:.0e}): {'equal' if largest <= tolerance else 'DIFFERENT'}")


compare(f"float64, 1 GPU against {most}", "exact_one", "exact_two", 60, 1e-8)
compare(f"float64, 1 GPU against {most} continued on 1 after step 30", "exact_one", "resumed", 60, 1e-8)
# In float32 training amplifies the rounding of 8 rows against 4.
compare(f"float32, 1 GPU against {most}", "one", "two", 10, 1e-3)
print(f"loss of step 1 {read('one')[0]['loss']:.4f}, of step 60 {read('one')[-1]['loss']:.4f} (1 GPU) and {read('two')[-1]['loss']:.4f} ({most})")
print(f"\n{'GPUs':>4} {'batch per GPU':>14} {'samples/s':>10} {'ms a step':>10} {'data':>6} {'fwd+bwd':>8} {'exposed all-reduce':>19} {'optimizer':>10} {'data wait':>10}")
for batch in (8, 64):
    for gpus in range(1, most + 1):
        last = read(f"speed-{gpus}-{batch}")[-1]
        parts = [1000 * last[key] for key in ("data_s", "forward_backward_s", "all_reduce_s", "optimizer_s")]
        print(f"{gpus:>4} {batch:>14} {last['samples_per_s']:>10.0f} {1000 * gpus * batch / last['samples_per_s']:>10.1f} {parts[0]:>6.2f} "
              f"{parts[1]:>8.2f} {parts[2]:>19.2f} {parts[3]:>10.2f} {last['data_wait']:>10.1%}")
print(f"\n{'precision':>11} {'samples/s':>10} {'MFU':>7} {'loss, steps 201-400':>20}")
for precision in ("fp32", "tf32", "bf16-mixed", "fp16-mixed", "bf16-true"):
    last = read(f"precision-{precision}")[-1]
    print(f"{precision:>11} {last['samples_per_s']:>10.0f} {last.get('mfu', float('nan')):>7.2%} {last['loss']:>20.4f}")
plain, saving = read("speed-1-64")[-1], read("saving")[-1]
stall = 1000 * 64 * (1 / saving["samples_per_s"] - 1 / plain["samples_per_s"]) * 10
print(f"\na checkpoint every 10 steps costs {stall:.1f} ms of training each; a step takes {64000 / plain['samples_per_s']:.1f} ms")
sys.exit(failed)
PYTHON
