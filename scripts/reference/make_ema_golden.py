"""Golden values of diffusers' EMAModel (0.39.0) and of diffusion_policy's, which RDT copied (models/ema_model.py).

    python scripts/reference/make_ema_golden.py > tests/data/optim/ema.json

Of a row: our options, the decays of updates 1, 2, …, and the averages after the last update. The weights at update t are
sin(0.7 i + t + phase) of a trained parameter "a", a frozen one "b" and a batch norm's weight "norm.weight", in float32.
"""
import json

import torch
from diffusers.training_utils import EMAModel

UPDATES = 12
SHAPES = {"a": (3, 4), "b": (5,), "norm.weight": (4,)}


def weights(update):
    return {
        name: torch.sin(torch.arange(torch.Size(shape).numel(), dtype=torch.float64) * 0.7 + update + phase).float().reshape(shape)
        for phase, (name, shape) in enumerate(SHAPES.items())
    }


def set_weights(parameters, update):
    for name, value in weights(update).items():
        parameters[name].data.copy_(value)


def trained():
    parameters = {name: torch.nn.Parameter(value) for name, value in weights(0).items()}
    parameters["b"].requires_grad_(False)
    return parameters


def row(options, decays, averages):
    return {"options": options, "decays": decays, "averages": {name: value.flatten().tolist() for name, value in averages.items()}}


def diffusers(**options):
    parameters = trained()
    ema = EMAModel(list(parameters.values()), foreach=True, **options)
    decays = []
    for update in range(1, UPDATES + 1):
        set_weights(parameters, update)
        ema.step(list(parameters.values()))
        decays.append(ema.cur_decay_value)
    return row({"type": "diffusers", **options}, decays, dict(zip(SHAPES, ema.shadow_params)))


def diffusion_policy(update_after_step=0, inv_gamma=1.0, power=2 / 3, min_decay=0.0, decay=0.9999):
    parameters = trained()
    averages = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    decays = []
    for update in range(1, UPDATES + 1):
        set_weights(parameters, update)
        step = max(0, (update - 1) - update_after_step - 1)  # computed before optimization_step is counted up
        now = 0.0 if step <= 0 else max(min_decay, min(1 - (1 + step / inv_gamma) ** -power, decay))
        decays.append(now)
        for name, parameter in parameters.items():
            if name.startswith("norm.") or not parameter.requires_grad:
                averages[name].copy_(parameter.data)
            else:
                averages[name].mul_(now).add_(parameter.data, alpha=1 - now)
    options = dict(update_after_step=update_after_step, inv_gamma=inv_gamma, power=power, min_decay=min_decay, decay=decay)
    return row({"type": "diffusion_policy", **options}, decays, averages)


rows = [
    diffusers(use_ema_warmup=True, power=0.75),
    diffusers(use_ema_warmup=True, power=0.6, inv_gamma=2.0, update_after_step=3, decay=0.6, min_decay=0.3),
    diffusers(use_ema_warmup=False),
    diffusers(use_ema_warmup=False, decay=0.9, min_decay=0.9),
    diffusion_policy(power=0.75),
    diffusion_policy(inv_gamma=3.0, update_after_step=2, decay=0.5),
]
print("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]")
