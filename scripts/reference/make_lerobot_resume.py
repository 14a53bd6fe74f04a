#!/usr/bin/env python
"""Train a tiny ACT with LeRobot's own lerobot-train, so that tests can continue its checkpoint.

    python make_lerobot_resume.py OUT

writes into OUT (tests/data/lerobot_resume):
    dataset/              LeRobot v3.0, no cameras: state [4], environment state [3], action [2], 2 episodes of 32 frames
    checkpoints/000003/   as lerobot-train saved it after 3 of 5 steps
    after_5_steps.safetensors   the weights that the same uninterrupted run had after 5 steps
    act_optimizer_order.json    the names of ACT's parameters by the optimizer's group and order, with a camera
                                (tests/data/lerobot_checkpoint/config.json)

Dropout and VAE are off: nothing is random but the order of the samples, which is LeRobot's sampler's (seed 1000). rng_state.safetensors
is left out, it describes Python's generators. Made with lerobot 0.6.1 (make_env.sh).
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

FEATURES = {"observation.state": 4, "observation.environment_state": 3, "action": 2}


def write_dataset(root: Path) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    features = {key: {"dtype": "float32", "shape": (size,), "names": None} for key, size in FEATURES.items()}
    dataset = LeRobotDataset.create("local/tiny", fps=10, features=features, root=root, use_videos=False)
    random = np.random.default_rng(7)
    for _ in range(2):
        for _ in range(32):
            frame = {key: random.normal(size=size).astype(np.float32) for key, size in FEATURES.items()}
            dataset.add_frame({**frame, "task": "a task"})
        dataset.save_episode()
    dataset.finalize()


def train(dataset: Path, output: Path) -> None:
    from lerobot.scripts.lerobot_train import main

    sys.argv = ["lerobot-train", "--dataset.repo_id=local/tiny", f"--dataset.root={dataset}", "--policy.type=act", "--policy.device=cpu",
                "--policy.push_to_hub=false", "--policy.chunk_size=4", "--policy.n_action_steps=4", "--policy.dim_model=16",
                "--policy.n_heads=2", "--policy.dim_feedforward=24", "--policy.n_encoder_layers=1", "--policy.use_vae=false",
                "--policy.latent_dim=4", "--policy.dropout=0", "--policy.optimizer_lr=1e-3", "--batch_size=8", "--steps=5",
                "--save_freq=3", "--seed=1000", "--num_workers=0", "--wandb.enable=false", f"--output_dir={output}"]
    main()


def optimizer_order() -> list[list[str]]:
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.act.modeling_act import ACTPolicy

    policy = ACTPolicy(PreTrainedConfig.from_pretrained(Path(__file__).parents[2] / "tests/data/lerobot_checkpoint"))
    names = {id(parameter): name for name, parameter in policy.named_parameters()}
    return [[names[id(parameter)] for parameter in group["params"]] for group in policy.get_optim_params()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    write_dataset(out / "dataset")
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        train(out / "dataset", run)
        shutil.copytree(run / "checkpoints" / "000003", out / "checkpoints" / "000003")
        shutil.copy(run / "checkpoints" / "000005" / "pretrained_model" / "model.safetensors", out / "after_5_steps.safetensors")
    checkpoint = out / "checkpoints" / "000003"
    (checkpoint / "training_state" / "rng_state.safetensors").unlink()
    config_file = checkpoint / "pretrained_model" / "train_config.json"
    config = json.loads(config_file.read_text())
    config["dataset"]["root"] = "dataset"  # not this machine's folders
    config["output_dir"] = "run"
    config_file.write_text(json.dumps(config, indent=4))
    (out / "act_optimizer_order.json").write_text(json.dumps(optimizer_order(), indent=0))


if __name__ == "__main__":
    main()
