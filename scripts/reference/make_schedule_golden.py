"""Golden learning rates of torch.optim.lr_scheduler 2.11.0 and diffusers 0.39.0 (get_scheduler).

    python scripts/reference/make_schedule_golden.py > tests/data/optim/schedules.json

A row has our options, the length of training and the rates of the updates 0, 1, ….
"""
import json

import torch
from diffusers.optimization import get_scheduler
from torch.optim import lr_scheduler as ls

TOTAL = 40
LOSSES = [1, 0.9, 0.9, 0.89999, 0.91, 0.9, 0.8, float("nan"), 0.81, 0.82, 0.83, 0.84, 0.85, 0.7, 0.71, 0.72, 0.73, 0.74, 0.75]
LOSSES += [0.7] * 20
rows = []


def optimizer(lr):
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def record(options, peak, make, losses=None):
    opt = optimizer(peak)
    scheduler = make(opt)
    rates = []
    for step in range(TOTAL):
        rates.append(opt.param_groups[0]["lr"])
        opt.step()
        if losses is None:
            scheduler.step()
        elif step < len(losses):
            scheduler.step(losses[step])
    rows.append({"options": options, "peak": peak, "total": TOTAL, "lr": rates, **({"losses": losses} if losses else {})})


def diffusers(name, peak=2e-4, warmup=0, **more):
    record({"type": name, "warmup_steps": warmup, **more}, peak,
           lambda o: get_scheduler(name, o, num_warmup_steps=warmup, num_training_steps=TOTAL, **more))


for warmup in (0, 1, 7):
    if warmup == 0:
        diffusers("constant")
    diffusers("constant_with_warmup", warmup=warmup)
    diffusers("linear", warmup=warmup)
    diffusers("cosine", warmup=warmup)
    diffusers("cosine_with_restarts", warmup=warmup)
    diffusers("cosine_with_restarts", warmup=warmup, num_cycles=3)
    diffusers("polynomial", warmup=warmup)
    diffusers("polynomial", warmup=warmup, power=2.5)
diffusers("piecewise_constant", step_rules="1:10,0.1:20,0.01:30,0.005")

record({"type": "step", "step_size": 9, "gamma": 0.3}, 1e-3, lambda o: ls.StepLR(o, 9, 0.3))
record({"type": "multi_step", "milestones": [5, 12, 12, 30]}, 1e-3, lambda o: ls.MultiStepLR(o, [5, 12, 12, 30]))
record({"type": "exponential", "gamma": 0.9}, 1e-3, lambda o: ls.ExponentialLR(o, 0.9))
record({"type": "cosine_annealing"}, 1e-3, lambda o: ls.CosineAnnealingLR(o, TOTAL))
record({"type": "cosine_annealing", "decay_steps": 10, "decay_lr": 2e-7}, 2e-5, lambda o: ls.CosineAnnealingLR(o, 10, 2e-7))
record({"type": "linear_ramp", "decay_steps": 5}, 1e-3, lambda o: ls.LinearLR(o, total_iters=5))
record({"type": "linear_ramp", "decay_steps": 8, "start_factor": 1, "end_factor": 0.1}, 1e-3, lambda o: ls.LinearLR(o, 1, 0.1, 8))
record({"type": "one_cycle"}, 1e-3, lambda o: ls.OneCycleLR(o, 1e-3, total_steps=TOTAL))
more = {"pct_start": 0.1, "div_factor": 10, "final_div_factor": 100}
record({"type": "one_cycle", "max_lr": 5e-3, **more}, 1e-3, lambda o: ls.OneCycleLR(o, 5e-3, total_steps=TOTAL, **more))
more["pct_start"] = 0.0
record({"type": "one_cycle", **more}, 1e-3, lambda o: ls.OneCycleLR(o, 1e-3, total_steps=TOTAL, **more))
record({"type": "plateau", "patience": 2}, 1e-3, lambda o: ls.ReduceLROnPlateau(o, patience=2), LOSSES)
more = {"factor": 0.5, "patience": 1, "threshold": 0.02, "cooldown": 2, "min_lr": 1e-4}
record({"type": "plateau", **more}, 1e-3, lambda o: ls.ReduceLROnPlateau(o, **more), LOSSES)

print("[")
print(",\n".join(json.dumps(row).replace("NaN", "null") for row in rows))
print("]")
