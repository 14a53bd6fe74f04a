"""Golden values of torch.optim.AdamW, Adam and clip_grad_norm_ (torch 2.11.0), in float64.

    python scripts/reference/make_optimizer_golden.py > tests/data/optim/optimizer.json
"""
import json

import torch

SHAPES = {"a": (3, 4), "b": (5,), "c": (2, 3, 2)}  # "c" is in a group with a learning rate of its own


def values(shape, phase):
    n = torch.Size(shape).numel()
    return torch.sin(torch.arange(n, dtype=torch.float64) * 0.7 + phase).reshape(shape)


def run(cls, max_norm):
    parameters = {name: torch.nn.Parameter(values(shape, i)) for i, (name, shape) in enumerate(SHAPES.items())}
    groups = [{"params": [parameters["a"], parameters["b"]]}, {"params": [parameters["c"]], "lr": 0.02}]
    optimizer = cls(groups, lr=0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.03, foreach=False, fused=False)
    norms = []
    for step in range(4):
        for i, parameter in enumerate(parameters.values()):
            parameter.grad = values(parameter.shape, 10 * step + 3 * i) * 2
        norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), max_norm).item())
        for group, lr in zip(optimizer.param_groups, (0.1, 0.02)):
            group["lr"] = lr * (1 - 0.2 * step)
        optimizer.step()
    return {
        "norms": norms,
        "parameters": {name: p.detach().flatten().tolist() for name, p in parameters.items()},
        "exp_avg_sq": {name: optimizer.state[p]["exp_avg_sq"].flatten().tolist() for name, p in parameters.items()},
    }


print(json.dumps({"adamw": run(torch.optim.AdamW, 3.0), "adam": run(torch.optim.Adam, 100.0)}, indent=1))
