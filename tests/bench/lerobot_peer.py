"""How fast LeRobot 0.6.1 trains on this machine, for comparison with `vla_worker bench`.

Times whole optimizer steps (forward, backward, clip, update) on batches that already are on the GPU; the loss is read every step, as
lerobot-train does. Prints one line of JSON.

    python tests/bench/lerobot_peer.py --policy act --batch 8 --height 480 --width 640
    torchrun --nproc-per-node 2 tests/bench/lerobot_peer.py --policy diffusion --cameras 1 --height 96 --width 96
"""

import argparse
import json
import os
import statistics
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
from lerobot.configs.types import FeatureType, PolicyFeature


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", choices=sorted(POLICIES), required=True)
    parser.add_argument("--batch", type=int, default=64, help="per GPU")
    parser.add_argument("--cameras", type=int, default=2)
    parser.add_argument("--height", type=int, default=256)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--action-dim", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--precision", choices=["default", "bf16-mixed"], default="default")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=8)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    return parser.parse_args()


def smolvla(inputs, outputs, options):
    """The published architecture with random weights, in the types of lerobot/smolvla_base; nothing is downloaded."""
    from lerobot.policies.smolvla import smolvlm_with_expert
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
    from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
    from transformers import SmolVLMConfig

    text = dict(model_type="llama", hidden_size=960, intermediate_size=2560, num_hidden_layers=32, num_attention_heads=15,
                num_key_value_heads=5, head_dim=64, rms_norm_eps=1e-5, rope_theta=100000, max_position_embeddings=8192,
                vocab_size=49280, pad_token_id=2, dtype="bfloat16")
    vision = dict(hidden_size=768, image_size=512, patch_size=16, num_attention_heads=12)
    vlm_config = SmolVLMConfig(text_config=text, vision_config=vision, scale_factor=4, image_token_id=49190, tie_word_embeddings=False)
    tokenizer = SimpleNamespace(fake_image_token_id=49189, global_image_token_id=49152)
    smolvlm_with_expert.AutoConfig = SimpleNamespace(from_pretrained=lambda *_, **__: vlm_config)
    smolvlm_with_expert.AutoProcessor = SimpleNamespace(from_pretrained=lambda *_, **__: SimpleNamespace(tokenizer=tokenizer))
    config = SmolVLAConfig(input_features=inputs, output_features=outputs, compile_model=options.compile, device=options.device)
    policy = SmolVLAPolicy(config)
    vlm_with_expert = policy.model.vlm_with_expert
    vlm_with_expert.vlm.to(torch.bfloat16)
    for name, parameter in vlm_with_expert.lm_expert.named_parameters():
        parts = name.split(".")
        is_cross_attention = parts[0] == "layers" and int(parts[1]) % 2 == 1
        keeps_float = is_cross_attention and ("k_proj" in parts or "v_proj" in parts)
        parameter.data = parameter.data.to(torch.float32 if keeps_float else torch.bfloat16)
    return config, policy, config.chunk_size, ()


def act(inputs, outputs, options):
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy

    config = ACTConfig(input_features=inputs, output_features=outputs, pretrained_backbone_weights=None, device=options.device)
    return config, ACTPolicy(config), config.chunk_size, ()


def diffusion(inputs, outputs, options):
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy

    config = DiffusionConfig(input_features=inputs, output_features=outputs, pretrained_backbone_weights=None, device=options.device)
    return config, DiffusionPolicy(config), config.horizon, (config.n_obs_steps,)


POLICIES = {"smolvla": smolvla, "act": act, "diffusion": diffusion}


def random_batch(inputs, options, chunk, time_axis, device):
    batch = {key: torch.rand(options.batch, *time_axis, *feature.shape, device=device) for key, feature in inputs.items()}
    batch["action"] = torch.randn(options.batch, chunk, options.action_dim, device=device)
    batch["action_is_pad"] = torch.zeros(options.batch, chunk, dtype=torch.bool, device=device)
    if options.policy == "smolvla":
        shape = (options.batch, options.tokens)
        batch["observation.language.tokens"] = torch.randint(0, 49000, shape, device=device)
        batch["observation.language.attention_mask"] = torch.ones(shape, dtype=torch.bool, device=device)
    return batch


def main():
    options = arguments()
    rank, world, local = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
    on_gpu = options.device == "cuda"
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1000)

    image = PolicyFeature(FeatureType.VISUAL, (3, options.height, options.width))
    inputs = {f"observation.images.cam{i}": image for i in range(options.cameras)}
    inputs["observation.state"] = PolicyFeature(FeatureType.STATE, (options.action_dim,))
    outputs = {"action": PolicyFeature(FeatureType.ACTION, (options.action_dim,))}
    config, policy, chunk, time_axis = POLICIES[options.policy](inputs, outputs, options)
    policy.to(device).train()
    preset = config.get_optimizer_preset()
    optimizer = preset.build(policy.get_optim_params())
    model = torch.compile(policy) if options.compile and options.policy != "smolvla" else policy
    if world > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local] if on_gpu else None, find_unused_parameters=True)
    batches = [random_batch(inputs, options, chunk, time_axis, device) for _ in range(2)]

    def step(number):
        start = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16-mixed"):
            loss, _ = model(dict(batches[number % 2]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), preset.grad_clip_norm).item()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        return time.perf_counter() - start, value

    first, _ = step(0)
    for number in range(options.warmup):
        step(number)
    measured = [step(number) for number in range(options.steps)]
    median = statistics.median(seconds for seconds, _ in measured)
    if rank == 0:
        parameters = list(policy.parameters())
        print(json.dumps({
            "policy": options.policy, "gpus": world, "batch": options.batch, "cameras": options.cameras,
            "image": f"{options.height}x{options.width}", "precision": options.precision, "compile": options.compile,
            "ms": round(median * 1e3, 2), "samples_s_gpu": round(options.batch / median, 1), "first_step_s": round(first, 1),
            "params_M": round(sum(p.numel() for p in parameters) / 1e6, 1),
            "trainable_M": round(sum(p.numel() for p in parameters if p.requires_grad) / 1e6, 1),
            "mem_GB": round(torch.cuda.max_memory_allocated() / 2**30, 1), "loss": round(measured[-1][1], 4)}), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
