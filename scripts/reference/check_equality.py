"""Compares our policies with LeRobot's: same weights, batch and random numbers, in float32 on the CPU.

    python check_equality.py POLICY_PROBE [--policy act|diffusion|smolvla] [--size reduced|full] [--vlm FOLDER]

POLICY_PROBE is built by `cmake --build build/release --target policy_probe`. The reduced models are randomly initialised by LeRobot;
compared are the loss, the gradient of every parameter, the parameters after one optimizer step of LeRobot's preset, and sampled
actions. The full-size models (LeRobot's default options) only run forward: loss and sampled actions. Prints a table; exit status 1
if an error is above 1e-5: of loss and actions relative to their largest value, of a gradient relative to the largest of its tensor;
of a step, 1e-3 of its length, elements left out whose gradient is rounding (Adam makes whole steps of it).
"""
import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.factory import get_policy_class, make_policy_config
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE, STEP_TOLERANCE = 1e-5, 1e-3
ROWS, STATE, ACTION = 2, 6, 5

# With batch norm over a few rows LeRobot's own float32 gradients are 3 % off its float64 ones: group norm instead.
REDUCED = {
    "act": dict(chunk_size=12, n_action_steps=12, dim_model=64, n_heads=4, dim_feedforward=96, n_encoder_layers=2, latent_dim=8,
                n_vae_encoder_layers=1, dropout=0.0),
    "diffusion": dict(horizon=16, n_action_steps=8, down_dims=(32, 64), kernel_size=3, diffusion_step_embed_dim=32,
                      spatial_softmax_num_keypoints=8, num_inference_steps=10, use_group_norm=True),
    "smolvla": dict(chunk_size=12, n_action_steps=12, resize_imgs_with_padding=(64, 64), num_vlm_layers=4, num_steps=5),
}
FULL = {"act": dict(dropout=0.0), "diffusion": dict(num_inference_steps=4), "smolvla": {}}
ALWAYS = {"act": dict(pretrained_backbone_weights=None), "diffusion": dict(pretrained_backbone_weights=None), "smolvla": dict(load_vlm_weights=False)}


@dataclass
class Case:
    name: str
    policy: torch.nn.Module
    batch: dict[str, torch.Tensor]
    drawn: dict[str, torch.Tensor] = field(default_factory=dict)  # by the loss, by our stream
    sampled: dict[str, torch.Tensor] = field(default_factory=dict)  # by sampling


def make_case(name: str, size: str, vlm: Path) -> Case:
    image = 96 if size == "reduced" else 224
    cameras = ("observation.images.left", "observation.images.wrist")
    inputs = {camera: PolicyFeature(FeatureType.VISUAL, (3, image, image)) for camera in cameras}
    inputs["observation.state"] = PolicyFeature(FeatureType.STATE, (STATE,))
    options = {**ALWAYS[name], **(REDUCED if size == "reduced" else FULL)[name]}
    if name == "smolvla":
        options["vlm_model_name"] = str(vlm)
    config = make_policy_config(name, device="cpu", push_to_hub=False, input_features=inputs,
                                output_features={"action": PolicyFeature(FeatureType.ACTION, (ACTION,))}, **options)
    torch.manual_seed(3)
    policy = get_policy_class(name)(config).float()
    steps = getattr(config, "horizon", getattr(config, "chunk_size", 0))
    history = (config.n_obs_steps,) if name == "diffusion" else ()
    batch = {camera: torch.rand(ROWS, *history, 3, image, image) for camera in cameras}
    batch["observation.state"] = torch.randn(ROWS, *history, STATE)
    batch["action"] = torch.randn(ROWS, steps, ACTION).clamp(-1, 1)
    batch["action_is_pad"] = torch.arange(steps)[None] >= torch.tensor([[steps], [steps - 3]])
    case = Case(name, policy, batch)
    if name == "act":
        case.drawn["vae_noise"] = torch.randn(ROWS, config.latent_dim)
    elif name == "diffusion":
        case.drawn["diffusion_noise"] = torch.randn(ROWS, steps, ACTION)
        case.drawn["diffusion_timestep"] = torch.tensor([[0.37], [0.912]])
        case.sampled["sample_start"] = torch.randn(ROWS, steps, ACTION)
        for i in range(config.num_inference_steps):
            case.sampled[f"step_noise_{i}"] = torch.randn(ROWS, steps, ACTION)
    else:
        batch["observation.language.tokens"] = torch.randint(3, 40, (ROWS, 9))
        batch["observation.language.attention_mask"] = torch.arange(9)[None] < torch.tensor([[9], [6]])
        case.drawn["flow_noise"] = torch.randn(ROWS, steps, config.max_action_dim)
        case.drawn["flow_time"] = torch.tensor([[0.4], [0.83]])
        case.sampled["sample_noise"] = torch.randn(ROWS, steps, config.max_action_dim)
    return case


def reference_loss(case: Case) -> torch.Tensor:
    policy, drawn, batch = case.policy, case.drawn, dict(case.batch)
    if case.name == "act":
        with mock.patch("torch.randn_like", lambda t, **_: drawn["vae_noise"].to(t)):
            return policy(batch)[0]
    if case.name == "diffusion":
        timesteps = torch.floor(drawn["diffusion_timestep"].double() * policy.config.num_train_timesteps).long().squeeze(1)
        with mock.patch("torch.randn", lambda *_a, **_k: drawn["diffusion_noise"].clone()), mock.patch("torch.randint", lambda *_a, **_k: timesteps):
            return policy(batch)[0]
    time = (drawn["flow_time"].double().pow(1 / 1.5) * 0.999 + 0.001).float().squeeze(1)
    return policy(batch, noise=drawn["flow_noise"].clone(), time=time)[0]


def reference_actions(case: Case) -> torch.Tensor:
    policy, sampled = case.policy, case.sampled
    policy.eval()
    policy.reset()
    observations = {key: value for key, value in case.batch.items() if key.startswith("observation.")}
    if case.name == "act":
        return policy.predict_action_chunk(observations)
    if case.name == "smolvla":
        return policy.predict_action_chunk(observations, noise=sampled["sample_noise"].clone())
    noises = iter([value for key, value in sampled.items() if key.startswith("step_noise")])
    with mock.patch("diffusers.schedulers.scheduling_ddpm.randn_tensor", lambda *_a, **_k: next(noises).clone()):
        return policy.predict_action_chunk(observations, noise=sampled["sample_start"].clone())


def relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double() - expected.double()).abs().max() / expected.double().abs().max().clamp_min(1e-300))


def compare(case: Case, probe: str, size: str, folder: Path) -> dict[str, float]:
    policy = case.policy
    case.policy.config._save_pretrained(folder)
    preset = policy.config.get_optimizer_preset()
    tensors = {f"weight/{name}": tensor for name, tensor in policy.state_dict().items()}
    tensors |= {f"batch/{key}": value.to(torch.uint8) if value.dtype == torch.bool else value for key, value in case.batch.items()}
    tensors |= {f"rand/{stream}": value for stream, value in case.drawn.items()}
    tensors |= {f"sample/{stream}": value for stream, value in case.sampled.items()}
    tensors["lr"] = torch.tensor(preset.lr, dtype=torch.float64)
    save_file({name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}, folder / "input.safetensors")
    arguments = [probe, folder, folder / "input.safetensors", folder / "output.safetensors"]
    subprocess.run(arguments + (["--forward-only"] if size == "full" else []), check=True)
    ours = load_file(folder / "output.safetensors")

    with torch.no_grad():
        errors = {"actions": relative(ours["actions"], reference_actions(case))}
    policy.train()
    with torch.set_grad_enabled(size == "reduced"):
        loss = reference_loss(case)
    errors["loss"] = relative(ours["loss"], loss.detach())
    if size == "full":
        return errors
    loss.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in policy.named_parameters() if parameter.grad is not None}
    if gradients.keys() != {name[5:] for name in ours if name.startswith("grad/")}:
        sys.exit(f"{case.name}: other parameters have gradients: {gradients.keys() ^ {n[5:] for n in ours if n.startswith('grad/')}}")
    errors["gradient"] = max(relative(ours[f"grad/{name}"], gradients[name]) for name in gradients)
    before = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
    optimizer = preset.build(policy.get_optim_params())
    torch.nn.utils.clip_grad_norm_(policy.parameters(), preset.grad_clip_norm)
    optimizer.step()
    after = dict(policy.named_parameters())
    errors["step"] = 0.0
    for name in gradients:
        moved = gradients[name].abs() > 1e-5 * gradients[name].abs().max()
        update, difference = (after[name].detach() - before[name])[moved], (ours[f"after/{name}"] - after[name].detach())[moved]
        errors["step"] = max(errors["step"], float(difference.norm() / update.norm()))
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probe")
    parser.add_argument("--policy", choices=REDUCED)
    parser.add_argument("--size", choices=("reduced", "full"))
    parser.add_argument("--vlm", type=Path, default=ROOT / "tests/data/tiny_smolvlm", help="SmolVLM of the reduced SmolVLA")
    arguments = parser.parse_args()
    failed = False
    print(f"{'policy':<10} {'size':<8} {'parameters':>12} {'loss':>9} {'actions':>9} {'gradient':>9} {'step':>9}")
    for name in [arguments.policy] if arguments.policy else REDUCED:
        for size in [arguments.size] if arguments.size else ("reduced", "full"):
            with tempfile.TemporaryDirectory() as temporary:
                case = make_case(name, size, full_size_vlm(arguments.vlm, Path(temporary)) if (name, size) == ("smolvla", "full") else arguments.vlm)
                errors = compare(case, arguments.probe, size, Path(temporary))
            failed |= any(error > (STEP_TOLERANCE if kind == "step" else TOLERANCE) for kind, error in errors.items())
            count = sum(parameter.numel() for parameter in case.policy.parameters())
            print(f"{name:<10} {size:<8} {count:>12} " + " ".join(f"{errors[k]:>9.1e}" if k in errors else " " * 9 for k in ("loss", "actions", "gradient", "step")),
                  flush=True)
    return int(failed)


def full_size_vlm(small: Path, folder: Path) -> Path:
    """The tokenizer of `small` with the sizes of SmolVLM2-500M."""
    import json
    import shutil

    target = folder / "vlm"
    shutil.copytree(small, target)
    config = json.loads((target / "config.json").read_text())
    config["scale_factor"] = 4
    config["text_config"] |= dict(hidden_size=960, intermediate_size=2560, num_hidden_layers=32, num_attention_heads=15, num_key_value_heads=5,
                                  head_dim=64, vocab_size=49280, rms_norm_eps=1e-5)
    config["vision_config"] |= dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, image_size=512, patch_size=16)
    (target / "config.json").write_text(json.dumps(config))
    return target


if __name__ == "__main__":
    sys.exit(main())
