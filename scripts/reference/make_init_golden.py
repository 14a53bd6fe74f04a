#!/usr/bin/env python
"""Initial weights of a LeRobot 0.6.1 policy for seed 1000: tests/data/goldens/{act,diffusion}/init_seed1000.json.

    python scripts/reference/make_init_golden.py tests/data/goldens/act

Reads config.json in the folder. Each tensor: sum, sum of absolute values and first eight values (0-padded), in float64.
Made with torch 2.11.0, torchvision 0.26.0.
"""

import json
import sys
from pathlib import Path

import torch
from lerobot.configs import FeatureType, NormalizationMode, PolicyFeature
from lerobot.policies.factory import get_policy_class, make_policy_config

folder = Path(sys.argv[1])
config = json.loads((folder / "config.json").read_text())
kind = config.pop("type")
for key in ("input_features", "output_features"):
    config[key] = {k: PolicyFeature(FeatureType[v["type"]], tuple(v["shape"])) for k, v in config[key].items()}
config["normalization_mapping"] = {k: NormalizationMode[v] for k, v in config["normalization_mapping"].items()}
torch.manual_seed(1000)
rows = {}
for name, tensor in get_policy_class(kind)(make_policy_config(kind, **config)).state_dict().items():
    flat = tensor.double().flatten()
    rows[name] = [flat.sum().item(), flat.abs().sum().item(), *(flat[:8].tolist() + [0.0] * 8)[:8]]
text = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
(folder / "init_seed1000.json").write_text("{\n" + text + "\n}\n")
