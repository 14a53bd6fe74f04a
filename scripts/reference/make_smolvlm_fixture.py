"""A tiny SmolVLM without weights that LeRobot accepts as `vlm_model_name`, offline and unpatched: tests/data/tiny_smolvlm.

    HF_HUB_OFFLINE=1 python scripts/reference/make_smolvlm_fixture.py tests/data/tiny_smolvlm    # lerobot 0.6.1, num2words

Writes config.json, processor and tokenizer (trained here, byte-level, of SmolLM2's shape), then builds a SmolVLAPolicy and its processors
from them and runs one loss on a made-up batch.
"""
import json
import os
import sys

import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.factory import make_pre_post_processors
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoProcessor, AutoTokenizer, PreTrainedTokenizerFast, SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor
from transformers.models.smolvlm.video_processing_smolvlm import SmolVLMVideoProcessor

TEXT = """Reach a goal position
Push the puck to a goal
Press a button from the top
Pick up the red cube and place it in the blue bowl
Put the pink lego brick into the transparent box
Open the drawer, then close the left door of the cabinet
Stack the blocks, pour the water and fold the shirt with both arms
Insert the peg into the hole on the right side of the table
""".splitlines(keepends=True)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ADDED = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"] + [f"<row_{i}_col_{j}>" for i in (1, 2) for j in (1, 2)]


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=384 - len(ADDED), special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens(ADDED)
    tokens = {"bos_token": "<|im_start|>", "eos_token": "<end_of_utterance>", "pad_token": "<|im_end|>", "unk_token": "<|endoftext|>"}
    extra = {"image_token": "<image>", "fake_image_token": "<fake_token_around_image>", "global_image_token": "<global-img>", "end_of_utterance_token": "<end_of_utterance>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens, extra_special_tokens=extra, model_max_length=512), tokens | extra


def make_config(tokenizer):
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in (("bos", "<|im_start|>"), ("eos", "<end_of_utterance>"), ("pad", "<|im_end|>"))}
    text = dict(model_type="llama", vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
                num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5, hidden_act="silu", max_position_embeddings=512, tie_word_embeddings=False,
                **{f"{name}_token_id": number for name, number in ids.items()})
    vision = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=64, patch_size=8)
    return SmolVLMConfig(text_config=text, vision_config=vision, scale_factor=2, image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
                         pad_token_id=ids["pad"], tie_word_embeddings=False)


def check(folder):
    assert AutoTokenizer.from_pretrained(folder)("reach\n")["input_ids"] == Tokenizer.from_file(f"{folder}/tokenizer.json").encode("reach\n").ids
    loaded = AutoProcessor.from_pretrained(folder).tokenizer
    assert loaded.fake_image_token_id == loaded.convert_tokens_to_ids("<fake_token_around_image>") != loaded.unk_token_id
    inputs = {"observation.state": PolicyFeature(FeatureType.STATE, (4,)), "observation.image": PolicyFeature(FeatureType.VISUAL, (3, 96, 96))}
    config = SmolVLAConfig(vlm_model_name=folder, load_vlm_weights=False, device="cpu", push_to_hub=False, input_features=inputs,
                           output_features={"action": PolicyFeature(FeatureType.ACTION, (4,))}, chunk_size=8, n_action_steps=8, max_state_dim=8,
                           max_action_dim=8, resize_imgs_with_padding=(64, 64), num_steps=2, num_vlm_layers=4)
    policy = SmolVLAPolicy(config)
    stats = {key: {"mean": torch.zeros(4), "std": torch.ones(4)} for key in ("observation.state", "action")}
    before, _ = make_pre_post_processors(config, dataset_stats=stats)
    batch = before({"observation.state": torch.zeros(2, 4), "observation.image": torch.rand(2, 3, 96, 96), "action": torch.zeros(2, 8, 4),
                    "task": ["Reach a goal position", "Push the puck to a goal"]})
    loss, _ = policy(batch)
    assert torch.isfinite(loss)
    print("tokens", batch["observation.language.tokens"].tolist(), "loss", loss.item())


def main(folder):
    tokenizer, tokens = make_tokenizer()
    processor = SmolVLMProcessor(SmolVLMImageProcessor(size={"longest_edge": 64}, max_image_size={"longest_edge": 64}), tokenizer,
                                 SmolVLMVideoProcessor(), image_seq_len=16)
    make_config(tokenizer).save_pretrained(folder)
    processor.save_pretrained(folder)
    # transformers 5 no longer writes this file; models saved by older versions have it.
    with open(f"{folder}/special_tokens_map.json", "w") as file:
        json.dump(tokens, file, indent=2)
    assert os.environ.get("HF_HUB_OFFLINE") == "1"
    check(folder)


main(*sys.argv[1:])
