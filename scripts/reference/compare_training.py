"""Trains the same policy with LeRobot's own trainer and with vla_worker, from the same weights, with the same order of samples and the
same random numbers, and compares the losses of every step.

    python compare_training.py VLA_WORKER OUT [--policy act|diffusion|smolvla] [--steps 200] [--vlm FOLDER]

OUT gets losses.json and losses.png of the chosen policies (default: all three). Both run on the CPU in float32 on the embedded demo
(tests/data/metaworld_demo), batch 8, dropout off. vla_worker's numbers are counted (counter_random.py), so LeRobot is given them where
it would draw its own. Exit status 0 if the losses of the first 20 steps agree to 1e-3 and all to 5 %: training amplifies
rounding, in LeRobot against itself on another number of threads too (--threads).
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import torch

import counter_random

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "tests/data/metaworld_demo"
SEED, BATCH = 1000, 8

# LeRobot's options of each policy; vla_worker takes them from the checkpoint both start from.
OPTIONS = {
    "act": dict(chunk_size=16, n_action_steps=16, dim_model=64, n_heads=4, dim_feedforward=128, n_encoder_layers=2, latent_dim=8,
                n_vae_encoder_layers=1, dropout=0.0, pretrained_backbone_weights=None),
    "diffusion": dict(horizon=16, n_action_steps=8, n_obs_steps=2, down_dims=(32, 64), kernel_size=3, diffusion_step_embed_dim=32,
                      spatial_softmax_num_keypoints=16, crop_shape=None, pretrained_backbone_weights=None, use_group_norm=True,
                      optimizer_lr=1e-4, scheduler_warmup_steps=20),
    "smolvla": dict(chunk_size=16, n_action_steps=16, max_state_dim=8, max_action_dim=8, resize_imgs_with_padding=(64, 64),
                    num_vlm_layers=4, load_vlm_weights=False, optimizer_lr=1e-4, scheduler_warmup_steps=20),
}


def make_policy(name: str, folder: Path, vlm: Path):
    """A randomly initialised policy of LeRobot's, saved with its processors."""
    from lerobot.configs import FeatureType
    from lerobot.datasets.lerobot_dataset import LeRobotDatasetMetadata
    from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors
    from lerobot.utils.feature_utils import dataset_to_policy_features

    meta = LeRobotDatasetMetadata("local/demo", root=DEMO)
    features = dataset_to_policy_features(meta.features)
    options = dict(OPTIONS[name])
    if name == "smolvla":
        options["vlm_model_name"] = str(vlm)
    config = make_policy_config(name, device="cpu", push_to_hub=False, **options,
                                input_features={k: v for k, v in features.items() if v.type is not FeatureType.ACTION},
                                output_features={k: v for k, v in features.items() if v.type is FeatureType.ACTION})
    torch.manual_seed(SEED)
    policy = get_policy_class(name)(config).float()
    policy.save_pretrained(folder)
    for processor in make_pre_post_processors(config, dataset_stats=meta.stats):
        processor.save_pretrained(folder)
    return config


class Drawn:
    """Gives LeRobot the numbers that vla_worker draws in a step, and keeps the losses."""

    def __init__(self, name: str, config):
        self.name, self.config, self.step, self.losses = name, config, 0, []

    def normal(self, stream: str, rows: int, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.from_numpy(counter_random.normal(SEED, self.step, stream, rows, shape))

    def uniform(self, stream: str, rows: int, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.from_numpy(counter_random.uniform(SEED, self.step, stream, rows, shape))

    def patches(self, rows: int):
        c = self.config
        if self.name == "act":
            return [mock.patch("torch.randn_like", lambda t, **_: self.normal("vae_noise", rows, (c.latent_dim,)).to(t))]
        if self.name == "diffusion":
            action = c.action_feature.shape[0]
            u = self.uniform("diffusion_timestep", rows, (1,)).squeeze(1)
            timestep = torch.floor(u.double() * c.num_train_timesteps).long()
            return [mock.patch("torch.randn", lambda *_a, **_k: self.normal("diffusion_noise", rows, (c.horizon, action))),
                    mock.patch("torch.randint", lambda *_a, **_k: timestep)]
        return []

    def forward(self, original):
        def run(policy, batch, *arguments, **named):
            rows = batch["action"].shape[0]
            if self.name == "smolvla":
                c = self.config
                named["noise"] = self.normal("flow_noise", rows, (c.chunk_size, c.max_action_dim))
                u = self.uniform("flow_time", rows, (1,)).squeeze(1)
                named["time"] = (u.double().pow(1 / 1.5) * 0.999 + 0.001).float()
            patches = self.patches(rows)
            for patch in patches:
                patch.start()
            try:
                result = original(policy, batch, *arguments, **named)
            finally:
                for patch in patches:
                    patch.stop()
            if policy.training:
                self.losses.append(float(result[0].detach()))
                self.step += 1
            return result

        return run


def train_lerobot(name: str, config, start: Path, steps: int, out: Path) -> list[float]:
    from lerobot.policies.factory import get_policy_class
    from lerobot.scripts.lerobot_train import main

    drawn = Drawn(name, config)
    policy_class = get_policy_class(name)
    sys.argv = ["lerobot-train", "--dataset.repo_id=local/demo", f"--dataset.root={DEMO}", f"--policy.path={start}", "--policy.device=cpu",
                "--policy.push_to_hub=false", f"--batch_size={BATCH}", f"--steps={steps}", "--save_checkpoint=false", "--log_freq=50",
                f"--seed={SEED}", "--num_workers=0", "--wandb.enable=false", "--env_eval_freq=0", f"--output_dir={out}"]
    with mock.patch.object(policy_class, "forward", drawn.forward(policy_class.forward)):
        main()
    return drawn.losses


def train_ours(worker: str, start: Path, steps: int, out: Path) -> list[float]:
    subprocess.run([worker, "train", f"--policy.path={start}", f"--dataset.root={DEMO}", "--device=cpu", f"--training.batch_size={BATCH}",
                    f"--training.steps={steps}", "--training.log_freq=1", "--training.save_freq=0", f"--training.seed={SEED}",
                    "--dataset.val_episodes=0", "--training.num_workers=1", f"--output_dir={out}"], check=True)
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def plot(curves: dict[str, tuple[list[float], list[float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(curves), figsize=(5 * len(curves), 3.5), squeeze=False)
    for axis, (name, (lerobot, ours)) in zip(axes[0], curves.items()):
        axis.plot(lerobot, linewidth=3, alpha=0.5, label="LeRobot")
        axis.plot(ours, linewidth=1, label="vla_worker")
        axis.set(title=name, xlabel="step", ylabel="loss", yscale="log")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worker")
    parser.add_argument("out", type=Path)
    parser.add_argument("--policy", choices=OPTIONS)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--vlm", type=Path, default=ROOT / "tests/data/tiny_smolvlm")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    curves, failed = {}, False
    for name in [arguments.policy] if arguments.policy else OPTIONS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            config = make_policy(name, folder / "start", arguments.vlm)
            ours = train_ours(arguments.worker, folder / "start", arguments.steps, folder / "ours")
            lerobot = train_lerobot(name, config, folder / "start", arguments.steps, folder / "lerobot")
        difference = np.abs(np.array(ours) - lerobot) / np.abs(lerobot)
        early, all_steps = difference[:20].max(), difference.max()
        failed |= not (early <= 1e-3 and all_steps <= 0.05)
        print(f"{name}: {len(ours)} steps, loss {lerobot[0]:.4f} to {lerobot[-1]:.4f} (LeRobot), {ours[-1]:.4f} (vla_worker); largest relative "
              f"difference in step 1 {difference[0]:.1e}, in 20 steps {early:.1e}, in all {all_steps:.1e}", flush=True)
        curves[name] = (lerobot, ours)
    (arguments.out / "losses.json").write_text(json.dumps({name: dict(zip(("lerobot", "vla_worker"), pair)) for name, pair in curves.items()}))
    plot(curves, arguments.out / "losses.png")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
