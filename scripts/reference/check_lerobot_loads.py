"""Shows that LeRobot loads a checkpoint of ours and computes the same actions.

    python check_lerobot_loads.py CHECKPOINT ACTIONS

CHECKPOINT is a folder like outputs/.../checkpoints/last (or the pretrained_model inside it). ACTIONS is a safetensors file with
what our inference saw and predicted:

    observation.state                float32 [batch, state_dim]      as in the dataset, not normalised
    <each camera of config.json>     uint8   [batch, height, width, 3]  RGB
    task                             uint8   [batch, length]         UTF-8, zeros at the end; of policies that read it
    action                           float32 [batch, chunk, action_dim]  in the dataset's units

Policies that see several frames have a time axis behind the batch. What a policy draws is what vla_worker's predictions draw
(counter_random.py: seed 0, step 0).

LeRobot reads config.json, model.safetensors (strictly: no tensor missing, none left over) and both processor files, predicts
the chunks from the same observations, and the largest difference, relative to the largest value of that action dimension, is
printed. Exit status 0 if it is at most 1e-5, else 1.
"""

import argparse
import contextlib
import sys
from pathlib import Path
from unittest import mock

import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from safetensors.torch import load_file

import counter_random

TOLERANCE = 1e-5


def load(folder: Path):
    """The policy and its processors, as LeRobot's own scripts load them, on the CPU."""
    config = PreTrainedConfig.from_pretrained(folder, local_files_only=True)
    config.device = "cpu"
    if hasattr(config, "pretrained_backbone_weights"):
        config.pretrained_backbone_weights = None  # would be downloaded, then overwritten by the checkpoint
    policy = get_policy_class(config.type).from_pretrained(folder, config=config, local_files_only=True, strict=True)
    # SmolVLA is made in bfloat16, which would round float32 weights.
    policy.float().load_state_dict(load_file(folder / "model.safetensors"))
    preprocessor, postprocessor = make_pre_post_processors(
        config, pretrained_path=str(folder), preprocessor_overrides={"device_processor": {"device": "cpu"}})
    return policy, preprocessor, postprocessor


def draws(policy, rows: int):
    """The arguments and the patches with which LeRobot samples from our random numbers."""
    config = policy.config
    normal = lambda stream, *shape: torch.from_numpy(counter_random.normal(0, 0, stream, rows, shape))
    if config.type == "smolvla":
        return {"noise": normal("sample_noise", config.chunk_size, config.max_action_dim)}, contextlib.nullcontext()
    if config.type == "diffusion":
        shape = (config.horizon, config.action_feature.shape[0])
        steps = iter(range(config.num_train_timesteps))
        patch = mock.patch("diffusers.schedulers.scheduling_ddpm.randn_tensor", lambda *_a, **_k: normal(f"step_noise_{next(steps)}", *shape))
        return {"noise": normal("sample_start", *shape)}, patch
    return {}, contextlib.nullcontext()


def predict(policy, preprocessor, postprocessor, observations: dict[str, torch.Tensor]) -> torch.Tensor:
    batch = {}
    for key, value in observations.items():
        if key == "task":
            batch[key] = [bytes(row.tolist()).rstrip(b"\0").decode() for row in value]
        elif value.dtype == torch.uint8:
            # A LeRobot dataset gives images as float [channels, height, width] in 0..1.
            batch[key] = value.movedim(-1, -3).float() / 255
        else:
            batch[key] = value
    rows = observations["observation.state"].shape[0]
    arguments, patch = draws(policy, rows)
    policy.reset()
    with patch:
        return postprocessor(policy.predict_action_chunk(preprocessor(batch), **arguments))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("actions", type=Path)
    arguments = parser.parse_args()

    folder = arguments.checkpoint
    if (folder / "pretrained_model").is_dir():
        folder = folder / "pretrained_model"
    if not (folder / "config.json").is_file():
        parser.error(f"no config.json in {folder}: not a checkpoint")
    tensors = load_file(arguments.actions)
    loaded = load(folder)
    missing = (set(loaded[0].config.input_features) | {"action"}) - set(tensors)
    if missing:
        parser.error(f"{arguments.actions} lacks {', '.join(sorted(missing))}; it has {', '.join(sorted(tensors))}")

    ours = tensors.pop("action").double()
    theirs = predict(*loaded, tensors).double()
    if ours.shape != theirs.shape:
        print(f"FAIL: our actions have the shape {list(ours.shape)}, LeRobot's {list(theirs.shape)}")
        return 1
    difference = (ours - theirs).abs().amax(dim=(0, 1))
    relative = (difference / theirs.abs().amax(dim=(0, 1)).clamp_min(1e-12)).max().item()
    print(f"{loaded[0].config.type}: {len(ours)} observations, chunks of {ours.shape[1]} actions of {ours.shape[2]} dimensions")
    print(f"largest difference {difference.max().item():.3e}, relative {relative:.3e} (allowed {TOLERANCE:g})")
    passed = relative <= TOLERANCE  # False for NaN
    print("PASS" if passed else "FAIL")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
