"""Makes Markdown tables of what speed.sh measured: speed_table.py DIR [COMMAND]."""

import itertools
import json
import statistics
import sys
from pathlib import Path

POLICIES = {"smolvla": "SmolVLA, 2 cameras 256², expert only", "smolvla_vision": "SmolVLA, vision tower's output cached",
            "smolvla_prefix": "SmolVLA, keys and values of the prefix cached", "act": "ACT, 2 cameras 480×640", "diffusion": "diffusion, 1 camera 96²",
            "whole_first": "whole path, ACT on the demo, first epoch", "whole_later": "whole path, ACT on the demo, later epochs"}
GOALS = {("smolvla", 8): 8, ("smolvla", 64): 3, ("smolvla_vision", 8): 15, ("smolvla_prefix", 8): 15, ("smolvla_vision", 64): 8,
         ("smolvla_prefix", 64): 8, ("act", 8): 5, ("act", 64): 3, ("diffusion", 8): 6, ("diffusion", 64): 4, ("whole_first", 8): 8,
         ("whole_later", 8): 8, ("whole_first", 64): 20, ("whole_later", 64): 20}
SCALING_GOALS = {8: 93, 64: 97}
START_GOAL_S = 5


class Results:
    """A case is a dict, None when it was not run, or "failed"."""

    def __init__(self, folder):
        self.folder = folder

    def lines(self, name):
        file = self.folder / f"{name}.json"
        found = [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{")] if file.exists() else []
        return found or ("failed" if (self.folder / f"{name}.log").exists() else None)

    def measured(self, pattern):
        return {file.stem: self.lines(file.stem)[-1] for file in sorted(self.folder.glob(pattern)) if isinstance(self.lines(file.stem), list)}

    def ours(self, name, batch, gpus=1, variant=""):
        lines = self.lines(f"ours-{name}-{batch}-{gpus}{variant}" if not name.startswith("whole") else f"ours-{name}-{batch}")
        return lines if not isinstance(lines, list) else lines[-1] | {"rate": lines[-1]["samples_per_s_per_gpu"], "ms": lines[-1]["step_ms"]}

    def peer(self, name, batch, gpus=1, precisions=("default", "bf16-mixed")):
        cases = [f"peer-whole-{batch}"] if name.startswith("whole") else [f"peer-{name.split('_')[0]}-{batch}-{gpus}-{p}" for p in precisions]
        found = [self.lines(case) for case in cases]
        measured = [lines[-1] | {"rate": lines[-1]["samples_s_gpu"]} for lines in found if isinstance(lines, list)]
        return max(measured, key=lambda case: case["rate"]) if measured else next((lines for lines in found if lines), None)

    def numbers(self, pattern, place):
        return sorted({int(file.stem.split("-")[place]) for file in self.folder.glob(pattern)})


def show(case, text):
    return text(case) if isinstance(case, dict) else case or "–"


def rate(case):
    wait = case.get("data_wait", 0) if not case.get("resident", "precision" in case) else 0
    precision = f", {case['precision']}" if "samples_s_gpu" in case and "precision" in case else ""
    return f"{case['rate']:,.0f} ({case['ms']:.1f} ms{precision}{f', waits {wait:.1%} for data' if wait else ''})"


def table(header, rows):
    if not rows:
        return
    print("\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def ratio(ours, peer, key="rate"):
    return f"{ours[key] / peer[key]:.1f} ×" if isinstance(ours, dict) and isinstance(peer, dict) else "–"


def work_rows(results, batches):
    for policy, batch in itertools.product(POLICIES, batches):
        ours, peer = results.ours(policy, batch), results.peer(policy, batch)
        if ours is None and ("_" in policy or peer is None):
            continue
        goal = f"{GOALS[policy, batch]} ×" if (policy, batch) in GOALS else "–"
        yield f"{POLICIES[policy]}, batch {batch}", show(peer, rate), show(ours, rate), ratio(ours, peer), goal


def start_rows(results, batches):
    for batch in batches:
        ours, peer = results.ours("whole_first", batch), results.peer("whole", batch)
        if ours is None and peer is None:
            continue
        yield (f"process start → first optimizer step, ACT on the demo, batch {batch}", show(peer, lambda case: f"{case['start_s']:.1f} s"),
               show(ours, lambda case: f"{case['start']['seconds']:.1f} s"), "–", f"≤ {START_GOAL_S} s")


def checkpoint_rows(results, batches):
    """A checkpoint is written after every 20th window: what the ten windows after it took more than the ten before the next one."""
    for batch in batches:
        lines = results.lines(f"checkpoint-{batch}")
        if lines is None:
            continue
        text = lines
        if isinstance(lines, list):
            window, seconds = lines[0]["step"], [line["step_s"] for line in lines]
            stalls = [window * (sum(seconds[i:i + 10]) - 10 * statistics.median(seconds[i + 10:i + 20])) for i in range(20, len(seconds), 20)]
            stall, before, after = statistics.median(stalls), statistics.median(seconds[10:20]), statistics.median(seconds[20:])
            text = f"{stall * 1e3:.1f} ms = {stall / after:.2f} steps of {after * 1e3:.1f} ms (before the first: {before * 1e3:.1f} ms)"
        yield f"training stalled by a checkpoint, ACT on the demo, batch {batch}", "–", text, "–", "≤ 1 step"


def share(case, one):
    return f"{case['rate'] / one['rate']:.0%}" if isinstance(case, dict) and isinstance(one, dict) else case if case == "failed" else "–"


def total(case):
    return show(case, lambda case: f"{case['samples_per_s']:,.0f} ({case['ms']:.2f} ms)")


def exposed(case):
    return show(case, lambda case: f"{case['phases_ms']['exposed_communication']:.2f} ms")


def scaling_rows(results, batches):
    for policy, batch in itertools.product(POLICIES, batches):
        for gpus in results.numbers(f"*-{policy}-{batch}-*.log", 3):
            if gpus == 1:
                continue
            (ours, one), (peer, peer_one) = (
                [results.ours(policy, batch, count) for count in (gpus, 1)], [results.peer(policy, batch, count, ["default"]) for count in (gpus, 1)])
            goal = f"≥ {SCALING_GOALS[batch]}%" if gpus == 4 and batch in SCALING_GOALS else "–"
            yield f"{POLICIES[policy]}, batch {batch}", str(gpus), share(peer, peer_one), total(ours), share(ours, one), exposed(ours), goal


def variant_rows(results, batches):
    for policy, batch in itertools.product(POLICIES, batches):
        for file in sorted(results.folder.glob(f"ours-{policy}-{batch}-*-*.log")):
            gpus, variant = file.stem.split("-", 4)[3:]
            case = results.ours(policy, batch, gpus, f"-{variant}")
            yield f"{POLICIES[policy]}, batch {batch}", gpus, variant, total(case), share(case, results.ours(policy, batch)), exposed(case)


def notes(results):
    for name, case in results.measured("ours-*.json").items():
        if case["why_no_graph"]:
            yield f"{name}: steps are no CUDA graph: {case['why_no_graph']}"
    for file in sorted(results.folder.glob("*.log")):
        if results.lines(file.stem) == "failed":
            yield f"{file.stem} failed: {(file.read_text(errors='replace').strip().splitlines() or ['no output'])[-1]}"


def main():
    results = Results(Path(sys.argv[1]))
    logs = results.folder.glob("*.log")
    batches = sorted({int(part) for log in logs for part in log.stem.split("-")[1:] if part.isdigit() and log.stem.split("-").index(part) < 3})
    for case in list(results.measured("ours-*.json").values())[:1]:
        print(", ".join(f"{name} {version}" for name, version in case["versions"].items()), f"with {case['precision']} on {case['device']}")
    if len(sys.argv) > 2:
        print(f"Command: {sys.argv[2]}")
    table(["work, per GPU", "LeRobot, samples/s", "vla_worker, samples/s", "ratio", "goal"],
          [*work_rows(results, batches), *start_rows(results, batches), *checkpoint_rows(results, batches)])
    table(["work", "GPUs", "LeRobot, per GPU of 1 GPU's", "vla_worker, samples/s in all", "per GPU of 1 GPU's", "exposed communication", "goal"],
          list(scaling_rows(results, batches)))
    table(["work", "GPUs", "first:other buckets in MiB and type, or variable", "vla_worker, samples/s in all", "per GPU of 1 GPU's", "exposed"],
          list(variant_rows(results, batches)))
    for note in notes(results):
        print(f"\n{note}")


if __name__ == "__main__":
    main()
