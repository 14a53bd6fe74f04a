#!/usr/bin/env python
"""Convert a PyTorch checkpoint (.pth, .pt, .bin, .ckpt) to .safetensors, which vla_worker reads.

    python scripts/convert_checkpoint.py INPUT OUTPUT.safetensors [--key model] [--strip-prefix module.]

The state dict is looked for under the usual keys (state_dict, model, module, ema, ...); --key names another one, dots lead into nested
dicts. Names keep their prefixes unless --strip-prefix removes one; vla_worker itself removes those that all names have ("module.").
Only tensors and plain containers are loaded (weights_only): a file that needs anything else, which could run code, is refused.
Needs PyTorch only.
"""

import argparse
import ctypes
import json
import os
import pickle
import re
import struct
import sys
from pathlib import Path

import torch

DTYPES = {  # in the order in which the safetensors library stores them
    torch.int64: "I64", torch.float64: "F64", torch.float32: "F32", torch.int32: "I32", torch.bfloat16: "BF16", torch.float16: "F16",
    torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}
USUAL_KEYS = ["state_dict", "model_state_dict", "model", "module", "policy", "net", "ema_state_dict", "ema_model", "ema", "state_dicts.model",
              "state_dicts.ema_model"]


def load(path: Path):
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"(?:GLOBAL|Unsupported class)\s+([\w.]+\.[\w.]+)", str(error))
        if not found:
            sys.exit(f"{path} was not loaded: it is no PyTorch checkpoint, or damaged")
        sys.exit(f"{path} was not loaded: it needs the Python object {found.group(1)}, and unpickling that could run code. Where the "
                 "model was trained, save its weights alone: torch.save(model.state_dict(), 'weights.pth'), and convert that file")
    except (OSError, RuntimeError, EOFError) as error:
        sys.exit(f"{path} was not loaded: {str(error).splitlines()[0] if str(error) else 'it is empty'}")


def is_state_dict(value) -> bool:
    return isinstance(value, dict) and any(isinstance(item, torch.Tensor) for item in value.values())


def at_key(content, key: str):
    for part in key.split("."):
        content = content.get(part) if isinstance(content, dict) else None
    return content


def find_state_dict(content, key: str | None, path: Path) -> dict:
    if key:
        found = at_key(content, key)
        if not is_state_dict(found):
            sys.exit(f"{path}: '{key}' is no dict of tensors; it has the keys {sorted(map(str, content)) if isinstance(content, dict) else 'none'}")
        return found
    candidates = [name for name in USUAL_KEYS if is_state_dict(at_key(content, name))]
    if not candidates and is_state_dict(content):
        return content
    if not candidates:
        keys = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
        sys.exit(f"{path}: no dict of tensors under {', '.join(USUAL_KEYS)}; it has {keys}: choose one with --key")
    others = f" (also there: {', '.join(candidates[1:])}; choose with --key)" if candidates[1:] else ""
    print(f"weights are under '{candidates[0]}'{others}")
    return at_key(content, candidates[0])


def tensors_of(state_dict: dict, prefix: str) -> dict[str, torch.Tensor]:
    tensors, storages, skipped, shared, stripped, no_weights = {}, set(), [], [], 0, []
    for name, value in state_dict.items():
        if not isinstance(value, torch.Tensor):
            skipped.append(str(name))
            continue
        if name.startswith("normalizer.params_dict.") or name.endswith("_dummy_variable"):  # of diffusion_policy
            no_weights.append(name)
            continue
        if value.layout != torch.strided or value.dtype not in DTYPES:
            sys.exit(f"tensor '{name}' is {value.layout}, {value.dtype}, which cannot be stored")
        storage = value.untyped_storage().data_ptr()
        if value.numel() and storage in storages:
            shared.append(name)
        storages.add(storage)
        if prefix and name.startswith(prefix):
            name = name[len(prefix):]
            stripped += 1
        if name in tensors:
            sys.exit(f"without '{prefix}' two tensors are named '{name}'")
        tensors[name] = value.detach().contiguous()
    if prefix:
        print(f"'{prefix}' removed from {stripped} of {len(tensors)} names")
    if shared:
        print(f"{len(shared)} tensors share memory with others and are stored on their own: {', '.join(shared[:5])}")
    if no_weights:
        print(f"left out, no weights: {len(no_weights)} tensors ({no_weights[0]}, ...); statistics come from the dataset")
    if skipped:
        print(f"left out, no tensors: {', '.join(skipped)}")
    return tensors


def save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    order = list(DTYPES)
    names = sorted(tensors, key=lambda name: (order.index(tensors[name].dtype), name))
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in names:
        tensor = tensors[name]
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            tensor = tensors[name]
            size = tensor.numel() * tensor.element_size()
            if size:
                file.write((ctypes.c_char * size).from_address(tensor.data_ptr()))
    os.replace(temporary, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--key", help="where the state dict is in the file; dots lead into nested dicts")
    parser.add_argument("--strip-prefix", default="", help="remove this from the front of names that have it")
    arguments = parser.parse_args()
    tensors = tensors_of(find_state_dict(load(arguments.input), arguments.key, arguments.input), arguments.strip_prefix)
    if not tensors:
        sys.exit(f"{arguments.input} holds no tensors")
    save(tensors, arguments.output)
    numbers = sum(tensor.numel() for tensor in tensors.values())
    print(f"{arguments.output}: {len(tensors)} tensors with {numbers} numbers")


if __name__ == "__main__":
    main()
