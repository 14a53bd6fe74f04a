"""Golden values of LeRobot's SmolVLA where tests/data/goldens/smolvla/golden.safetensors does not reach.

    python scripts/reference/make_smolvla_golden.py        (lerobot 0.6.1, CPU)

Writes tests/data/goldens/smolvla/variants.safetensors. Weights are the formula of tests/worker/policies/golden.cpp, the SmolVLM is
tests/data/goldens/smolvla/vlm. Cases, each with out/loss, grad/* or gradsum/*, and out/actions where LeRobot can sample:
  cameras   two cameras of odd sizes, one of them masked in a row, a third missing, one empty; prefix_length above the prefix
  frames    images between special tokens (tests/data/tiny_smolvlm, whose tokenizer has them)
  expert    an action expert with half the layers, in a policy that is trained whole but for what LeRobot freezes
  mixed     the layout of load_vlm_weights: bfloat16 but for the heads and the keys and values of cross-attention. bfloat16 makes the
            loss of two rows uncertain by 1e-3 (by 4e-3 with the formula's weights): so it has sixteen, and the transformers' matrices are
            half the formula's. The formula makes its images too.
"""
import json
import tempfile
import types
import zlib
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.smolvla import smolvlm_with_expert
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
from safetensors.torch import save_file
from transformers import AutoConfig, SmolVLMForConditionalGeneration

DATA = Path(__file__).resolve().parents[2] / "tests/data/goldens/smolvla"
FRAMES = DATA.parents[1] / "tiny_smolvlm"
CAMERAS = ("observation.images.front", "observation.images.wrist", "observation.images.side")
ROWS, MANY, CHUNK, STATE, ACTION, PADDED = 2, 16, 8, 5, 3, 8


def formula(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    x = np.uint32(zlib.crc32(name.encode())) ^ np.arange(int(np.prod(shape)), dtype=np.uint32)
    x = (x ^ x >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    x = (x ^ x >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    x ^= x >> np.uint32(16)
    v = ((x >> np.uint32(8)).astype(np.int64) - 2**23).astype(np.float32) / np.float32(2**23)
    if len(shape) >= 2:
        v = v * np.float32(np.sqrt(3.0 / np.prod(shape[1:])))
    elif name.endswith(".weight"):
        v = np.float32(1) + np.float32(0.1) * v
    else:
        v = np.float32(0.1) * v
    return torch.from_numpy(v.astype(np.float32).reshape(shape))


def fingerprint(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().double().flatten()
    head = torch.zeros(8, dtype=torch.float64)
    head[: min(8, len(flat))] = flat[:8]
    return torch.cat([flat.sum()[None], flat.abs().sum()[None], head])


def build(folder: Path, cameras: int, scale: float = 1.0, **options) -> SmolVLAPolicy:
    inputs = {key: PolicyFeature(FeatureType.VISUAL, (3, 50, 90)) for key in CAMERAS[:cameras]}
    inputs["observation.state"] = PolicyFeature(FeatureType.STATE, (STATE,))
    config = SmolVLAConfig(input_features=inputs, output_features={"action": PolicyFeature(FeatureType.ACTION, (ACTION,))}, device="cpu",
                           push_to_hub=False, vlm_model_name=str(folder), chunk_size=CHUNK, n_action_steps=CHUNK, max_state_dim=PADDED,
                           max_action_dim=PADDED, resize_imgs_with_padding=(64, 64), num_steps=4, num_vlm_layers=4, **options)
    # LeRobot asks the SmolVLM's processor, which needs another package, for these two numbers alone.
    tokenizer = json.loads((FRAMES / "tokenizer.json").read_text())
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    tokens = types.SimpleNamespace(fake_image_token_id=ids["<fake_token_around_image>"], global_image_token_id=ids["<global-img>"])
    with mock.patch.object(smolvlm_with_expert.AutoProcessor, "from_pretrained", lambda *_a, **_k: types.SimpleNamespace(tokenizer=tokens)):
        policy = SmolVLAPolicy(config)
    with torch.no_grad():
        for name, tensor in policy.state_dict().items():
            tensor.copy_(formula(name, tuple(tensor.shape)))
            if "vlm_with_expert" in name and tensor.ndim > 1:
                tensor.mul_(scale)
    return policy


def images(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    return formula(name, shape) * (0.5 * np.sqrt(np.prod(shape[1:]) / 3)) + 0.5


def vectors(rows: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    batch = {
        "observation.state": torch.randn(rows, STATE),
        "observation.language.tokens": torch.randint(3, 250, (rows, 7)),
        "observation.language.attention_mask": torch.arange(7)[None] < 7 - 3 * (torch.arange(rows)[:, None] % 2),
        f"{CAMERAS[1]}_padding_mask": torch.arange(rows) % 2 == 0,
        "action": torch.randn(rows, CHUNK, ACTION),
        "action_is_pad": torch.arange(CHUNK)[None] >= CHUNK - 3 * (torch.arange(rows)[:, None] % 2),
    }
    return batch, {"noise": torch.randn(rows, CHUNK, PADDED), "time": 0.05 + 0.9 * torch.rand(rows), "start": torch.randn(rows, CHUNK, PADDED)}


def to_store(batch: dict[str, torch.Tensor], random: dict[str, torch.Tensor], place: str) -> dict[str, torch.Tensor]:
    stored = {f"{place}batch/{key}": value.to(torch.uint8) if value.dtype == torch.bool else value for key, value in batch.items()}
    return stored | {f"{place}rand/{key}": value for key, value in random.items()}


def main() -> None:
    torch.manual_seed(11)
    batch, random = vectors(ROWS)
    batch[CAMERAS[0]] = torch.randint(0, 256, (ROWS, 3, 50, 90), dtype=torch.uint8)
    batch[CAMERAS[1]] = torch.randint(0, 256, (ROWS, 3, 41, 33), dtype=torch.uint8)
    stored = to_store(batch, random, "")
    for key in CAMERAS[:2]:
        batch[key] = batch[key].float() / 255
    many, many_random = vectors(MANY)
    stored |= to_store(many, many_random, "many/")
    many[CAMERAS[0]] = images("front", (MANY, 3, 50, 90))
    many[CAMERAS[1]] = images("wrist", (MANY, 3, 41, 33))

    def run(case: str, policy: SmolVLAPolicy, samples: bool, keep_gradients: bool, batch=batch, random=random) -> None:
        policy.train()
        loss, _ = policy(dict(batch), noise=random["noise"].clone(), time=random["time"].clone())
        loss.backward()
        stored[f"{case}/out/loss"] = loss.detach().double().reshape(1)
        for name, parameter in policy.named_parameters():
            if parameter.grad is not None:
                kind, value = ("grad", parameter.grad.bfloat16()) if keep_gradients else ("gradsum", fingerprint(parameter.grad))
                stored[f"{case}/{kind}/{name}"] = value
        if samples:
            observation = {key: value for key, value in batch.items() if key.startswith("observation.")}
            stored[f"{case}/out/actions"] = policy.predict_action_chunk(observation, noise=random["start"].clone())
        print(case, loss.item(), {str(p.dtype) for p in policy.parameters()})

    run("cameras", build(DATA / "vlm", 3, empty_cameras=1, prefix_length=70), samples=True, keep_gradients=False)
    run("frames", build(FRAMES, 3, empty_cameras=1, add_image_special_tokens=True), samples=True, keep_gradients=False)
    run("expert", build(DATA / "vlm", 2, num_expert_layers=2, self_attn_every_n_layers=3, train_expert_only=False), samples=False, keep_gradients=False)
    with tempfile.TemporaryDirectory() as folder:
        SmolVLMForConditionalGeneration(AutoConfig.from_pretrained(DATA / "vlm")).save_pretrained(folder)
        run("mixed", build(Path(folder), 2, scale=0.5, load_vlm_weights=True), samples=True, keep_gradients=True, batch=many, random=many_random)
    save_file({name: tensor.contiguous() for name, tensor in stored.items()}, DATA / "variants.safetensors")
    (DATA / "variants.safetensors").chmod(0o644)


if __name__ == "__main__":
    main()
