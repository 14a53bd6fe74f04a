"""Shows that a checkpoint saved by LeRobot is evaluated and fine-tuned by vla_worker, and goes back.

    python check_round_trip.py VLA_WORKER [--case CASE] [--steps 3] [--vlm FOLDER]

Of each case (a policy of LeRobot's, small, randomly initialised for tests/data/metaworld_demo, saved with its processors):

    there    `vla_worker eval` predicts the actions that LeRobot predicts with the same checkpoint
    trained  `vla_worker train --policy.path=` changes every parameter that LeRobot would train, and no other; names, shapes and
             dtypes stay
    back     LeRobot loads the result, strictly, and predicts what `vla_worker eval` does
    config   config.json has the keys that LeRobot wrote, with their values, and no others (but for CHANGED); both processors have the
             same steps, options and statistics
    on       lerobot-train goes on from the result

Differences of actions are relative to the largest value of a dimension, at most 1e-5. With bfloat16 weights (`smolvla-bf16`, the layout
that LeRobot makes when it starts from a SmolVLM's weights) they are rounded along the way: 1e-3 there. Prints a table; exit status 1
if a check fails.
"""
import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from lerobot.configs import FeatureType
from lerobot.datasets.lerobot_dataset import LeRobotDatasetMetadata
from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors
from lerobot.utils.feature_utils import dataset_to_policy_features
from safetensors.torch import load_file

import check_lerobot_loads
from check_equality import ALWAYS, REDUCED, ROOT

DEMO = ROOT / "tests/data/metaworld_demo"
SMOLVLA = dict(**REDUCED["smolvla"], scheduler_warmup_steps=1)
CASES = {
    "act": ("act", REDUCED["act"] | ALWAYS["act"] | dict(temporal_ensemble_coeff=0.01, n_action_steps=1)),
    # LeRobot's default: batch norms, whose statistics are tensors too.
    "diffusion": ("diffusion", REDUCED["diffusion"] | ALWAYS["diffusion"] | dict(use_group_norm=False, crop_shape=(112, 112), scheduler_warmup_steps=1)),
    "smolvla": ("smolvla", SMOLVLA | dict(empty_cameras=1)),
    "smolvla-all": ("smolvla", SMOLVLA | dict(freeze_vision_encoder=False, train_expert_only=False)),
    "smolvla-bf16": ("smolvla", SMOLVLA | dict(load_vlm_weights=True)),
}
# What a user may have set, and we have no use for.
LABELS = dict(repo_id="somebody/a_policy", tags=["robotics", "demo"], license="mit", private=True, use_amp=False)
CHANGED = {"pretrained_backbone_weights"}  # null: LeRobot would download these weights before it reads ours
TOLERANCE, BFLOAT16_TOLERANCE = 1e-5, 1e-3


def save_with_lerobot(case: str, folder: Path, vlm: Path) -> dict[str, bool]:
    """Saves the policy as LeRobot's trainer does; says by parameter whether it would train it."""
    name, options = CASES[case]
    meta = LeRobotDatasetMetadata("local/demo", root=DEMO)
    features = dataset_to_policy_features(meta.features)
    config = make_policy_config(name, device="cpu", push_to_hub=False, **LABELS, **options, **({"vlm_model_name": str(vlm)} if name == "smolvla" else {}),
                                input_features={key: value for key, value in features.items() if value.type is not FeatureType.ACTION},
                                output_features={key: value for key, value in features.items() if value.type is FeatureType.ACTION})
    config.validate_features()
    torch.manual_seed(5)
    policy = get_policy_class(name)(config)
    policy.save_pretrained(folder)
    for processor in make_pre_post_processors(config, dataset_stats=meta.stats):
        processor.save_pretrained(folder)
    return {key: parameter.requires_grad for key, parameter in policy.named_parameters()}


def vlm_with_weights(source: Path, folder: Path) -> Path:
    """`source`, which has none, with random weights: what LeRobot needs for load_vlm_weights."""
    from transformers import AutoConfig, SmolVLMForConditionalGeneration

    shutil.copytree(source, folder)
    torch.manual_seed(6)
    SmolVLMForConditionalGeneration(AutoConfig.from_pretrained(source)).to(torch.bfloat16).save_pretrained(folder)
    return folder


def run(worker: str, *arguments: str) -> None:
    done = subprocess.run([worker, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join([worker, *arguments])} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def actions_difference(worker: str, folder: Path, scratch: Path, mixed: bool) -> float:
    """Of `vla_worker eval` from LeRobot, both with the checkpoint in `folder`."""
    file = scratch / "actions.safetensors"
    run(worker, "eval", f"--checkpoint={folder}", f"--dataset={DEMO}", "--dataset.episodes=[0]", "--device=cpu", f"--actions_file={file}")
    tensors = load_file(file)
    ours = tensors.pop("action").double()
    policy, *processors = check_lerobot_loads.load(folder)
    if mixed:  # not all in float32
        policy = get_policy_class(policy.config.type).from_pretrained(folder, local_files_only=True, strict=True)
    theirs = check_lerobot_loads.predict(policy, *processors, tensors).double()
    return float(((ours - theirs).abs().amax(dim=(0, 1)) / theirs.abs().amax(dim=(0, 1)).clamp_min(1e-12)).max())


def weights_problem(before: Path, after: Path, trains: dict[str, bool]) -> str:
    old, new = load_file(before / "model.safetensors"), load_file(after / "model.safetensors")
    if old.keys() != new.keys():
        return f"other names: {sorted(old.keys() ^ new.keys())[:3]}"
    for name, tensor in old.items():
        if (tensor.dtype, tensor.shape) != (new[name].dtype, new[name].shape):
            return f"{name} was {tensor.dtype} {list(tensor.shape)}, is {new[name].dtype} {list(new[name].shape)}"
        if not new[name].isfinite().all():
            return f"{name} is not finite"
        if name in trains and torch.equal(tensor, new[name]) == trains[name]:
            return f"{name} is {'un' if trains[name] else ''}changed"
    return ""


def config_problem(before: Path, after: Path) -> str:
    old, new = (json.loads((folder / "config.json").read_text()) for folder in (before, after))
    for key in sorted((old.keys() | new.keys()) - CHANGED):
        if old.get(key, "absent") != new.get(key, "absent"):
            return f"config.json: {key} was {old.get(key, 'absent')}, is {new.get(key, 'absent')}"
    for processor in ("policy_preprocessor.json", "policy_postprocessor.json"):
        old, new = (json.loads((folder / processor).read_text()) for folder in (before, after))
        if old != new:
            return f"{processor}: {old} is {new}"
        for step in old["steps"]:
            if "state_file" not in step:
                continue
            stats = [load_file(folder / step["state_file"]) for folder in (before, after)]
            if stats[0].keys() != stats[1].keys():
                return f"{processor}: statistics of {sorted(stats[0].keys() ^ stats[1].keys())[:3]}"
            for name, value in stats[0].items():
                if value.dtype != stats[1][name].dtype or not torch.equal(value, stats[1][name]):
                    return f"{processor}: {name} was {value}, is {stats[1][name]}"
    return ""


def lerobot_goes_on(folder: Path, out: Path) -> None:
    from lerobot.scripts.lerobot_train import main

    sys.argv = ["lerobot-train", "--dataset.repo_id=local/demo", f"--dataset.root={DEMO}", f"--policy.path={folder}", "--policy.device=cpu",
                "--policy.push_to_hub=false", "--batch_size=4", "--steps=2", "--save_checkpoint=false", "--num_workers=0", "--wandb.enable=false",
                "--env_eval_freq=0", f"--output_dir={out}"]
    main()


def check(case: str, worker: str, steps: int, vlm: Path, scratch: Path) -> dict[str, str]:
    """By check: the number measured, or what is wrong."""
    mixed = case == "smolvla-bf16"
    start, out = scratch / "start", scratch / "out"
    trains = save_with_lerobot(case, start, vlm_with_weights(vlm, scratch / "vlm") if mixed else vlm)
    tolerance = BFLOAT16_TOLERANCE if mixed else TOLERANCE

    def compared(folder: Path) -> str:
        difference = actions_difference(worker, folder, scratch, mixed)
        return f"{difference:.1e}" if difference <= tolerance else f"FAIL: actions differ by {difference:.1e}, allowed {tolerance:g}"

    results = {"there": compared(start)}
    run(worker, "train", f"--policy.path={start}", f"--dataset.root={DEMO}", "--dataset.use_imagenet_stats=false", "--device=cpu",
        "--training.batch_size=4", f"--training.steps={steps}", f"--optimizer.lr={1e-2 if mixed else 1e-3}", "--training.num_workers=1", f"--output_dir={out}")
    back = out / "checkpoints/last/pretrained_model"
    for name, problem in (("trained", weights_problem(start, back, trains)), ("config", config_problem(start, back))):
        results[name] = f"FAIL: {problem}" if problem else "ok"
    results["trained"] = results["trained"].replace("ok", f"{sum(trains.values())}/{len(trains)}")
    results["back"] = compared(back)
    lerobot_goes_on(back, scratch / "lerobot")
    results["on"] = "ok"
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worker")
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--vlm", type=Path, default=ROOT / "tests/data/tiny_smolvlm", help="SmolVLM of the small SmolVLA")
    arguments = parser.parse_args()
    columns, rows = ("there", "trained", "back", "config", "on"), {}
    for case in [arguments.case] if arguments.case else CASES:
        with tempfile.TemporaryDirectory() as temporary:
            rows[case] = check(case, arguments.worker, arguments.steps, arguments.vlm, Path(temporary))
    problems = [f"{case}, {name}: {text}" for case, results in rows.items() for name, text in results.items() if text.startswith("FAIL")]
    print(f"{'case':<14}" + "".join(f"{name:>10}" for name in columns))
    for case, results in rows.items():
        print(f"{case:<14}" + "".join(f"{results[name].split(':')[0]:>10}" for name in columns))
    for problem in problems:
        print(problem)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
