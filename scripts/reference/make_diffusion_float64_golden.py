#!/usr/bin/env python
"""Losses and gradient norms of LeRobot 0.6.1's diffusion policy in float64: tests/data/goldens/diffusion/float64.json.

    python scripts/reference/make_diffusion_float64_golden.py tests/data/goldens/diffusion

Reads config.json and golden.safetensors in the folder; weights are the formula that tests/worker/policies/golden.cpp has too. Five
optimizer steps on the same batch with the same noise and a learning rate of 1e-3; each loss before its step. Of each variant the loss
and the norm of all gradients. LeRobot embeds timesteps in
float32, which is cast here. Made with torch 2.11.0.
"""

import json
import sys
import zlib
from pathlib import Path
from unittest import mock

import lerobot.policies.diffusion.modeling_diffusion as modeling
import numpy as np
import torch
from lerobot.configs import FeatureType, NormalizationMode, PolicyFeature
from lerobot.policies.factory import get_policy_class, make_policy_config
from safetensors.torch import load_file


def formula(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    x = np.uint32(zlib.crc32(name.encode())) ^ np.arange(int(np.prod(shape)), dtype=np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    v = ((x >> np.uint32(8)).astype(np.int64) - 2**23).astype(np.float32) / np.float32(2**23)
    if len(shape) >= 2:
        v = v * np.float32(np.sqrt(3.0 / np.prod(shape[1:])))
    else:
        v = np.float32(0.1) * v + np.float32(name.endswith((".weight", "running_var")))
    return torch.from_numpy(v.astype(np.float32).reshape(shape))


def make_policy(config: dict) -> torch.nn.Module:
    policy = get_policy_class("diffusion")(make_policy_config("diffusion", **config))
    with torch.no_grad():
        for name, tensor in policy.state_dict().items():
            if not name.endswith(("num_batches_tracked", "pool.pos_grid")):
                tensor.copy_(formula(name, tuple(tensor.shape)))
    return policy.double().train()


def make_loss(policy: torch.nn.Module, golden: dict) -> torch.Tensor:
    image = (golden["raw/observation.image"].float() / 255 - golden["stats/observation.image/mean"]) / (golden["stats/observation.image/std"] + 1e-8)
    batch = {"observation.image": image, "observation.state": golden["norm/observation.state"], "action": golden["norm/action"]}
    batch = {key: value.double() for key, value in batch.items()} | {"action_is_pad": golden["raw/action_is_pad"].bool()}
    with mock.patch("torch.randn", lambda *_a, **_k: golden["rand/noise"].double()), mock.patch("torch.randint", lambda *_a, **_k: golden["rand/timesteps"]):
        return policy(batch)[0]


def losses(config: dict, golden: dict, lr: float) -> list[float]:
    policy = make_policy(config)
    optimizer = policy.config.get_optimizer_preset().build(policy.get_optim_params())
    optimizer.param_groups[0]["lr"] = lr
    curve = []
    for _ in range(5):
        loss = make_loss(policy, golden)
        curve.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        optimizer.step()
    return curve


def loss_and_norm(config: dict, golden: dict) -> list[float]:
    policy = make_policy(config)
    loss = make_loss(policy, golden)
    loss.backward()
    return [loss.item(), torch.nn.utils.get_total_norm([parameter.grad for parameter in policy.parameters()]).item()]


folder = Path(sys.argv[1])
settings = json.loads((folder / "config.json").read_text())
del settings["type"]
for key in ("input_features", "output_features"):
    settings[key] = {k: PolicyFeature(FeatureType[v["type"]], tuple(v["shape"])) for k, v in settings[key].items()}
settings["normalization_mapping"] = {k: NormalizationMode[v] for k, v in settings["normalization_mapping"].items()}
embed = modeling.DiffusionSinusoidalPosEmb.forward
modeling.DiffusionSinusoidalPosEmb.forward = lambda self, x: embed(self, x).double()
tensors = load_file(folder / "golden.safetensors")
values = {"losses/lr1e-3": losses(settings, tensors, 1e-3)}
variants = {
    "group_norm": {"use_group_norm": True, "pretrained_backbone_weights": None},
    "masked": {"do_mask_loss_for_padding": True},
    "predict_sample": {"prediction_type": "sample"},
}
for name, changed in variants.items():
    values[f"variant/{name}"] = loss_and_norm(settings | changed, tensors)
(folder / "float64.json").write_text(json.dumps(values, indent=1) + "\n")
