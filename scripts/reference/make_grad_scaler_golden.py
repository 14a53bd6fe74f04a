"""Golden values of torch.amp.GradScaler (2.11.0) around clip_grad_norm_ and AdamW, on the CPU.

    python scripts/reference/make_grad_scaler_golden.py > tests/data/optim/grad_scaler.json

The loss of step k is sum(w * g_k) with g_k = sin(0.7 i + k) in float32, times infinity or NaN in the steps of BAD.
"""
import json

import torch

STEPS = 16
BAD = {2: float("inf"), 3: float("nan"), 9: float("-inf")}
OPTIONS = {"init_scale": 1024.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 4}

w = torch.nn.Parameter(torch.sin(torch.arange(6, dtype=torch.float64) * 0.7).float())
optimizer = torch.optim.AdamW([w], lr=0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.03, foreach=False)
scaler = torch.amp.GradScaler("cpu", **OPTIONS)
steps = []
for k in range(STEPS):
    factor = torch.sin(torch.arange(6, dtype=torch.float64) * 0.7 + k).float()
    if k in BAD:
        factor[3] = BAD[k]
    optimizer.zero_grad()
    scaler.scale((w * factor).sum()).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_([w], 1.0).item()
    scaler.step(optimizer)
    scaler.update()
    steps.append({
        "norm": norm if torch.isfinite(torch.tensor(norm)) else None,
        "scale": scaler.get_scale(),
        "growth_tracker": scaler._get_growth_tracker(),
        "w": w.tolist(),
        "optimizer_steps": int(optimizer.state[w]["step"].item()) if w in optimizer.state else 0,
    })
print(json.dumps({"options": OPTIONS, "bad": {str(k): str(v) for k, v in BAD.items()}, "steps": steps}))
