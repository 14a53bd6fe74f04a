#!/usr/bin/env python3
"""How long a training stands still when a rank dies: restart_time.py BIN_DIR [ATTEMPTS]

Trains the embedded demo on two ranks of this machine's CPU under `cxxrun --max-restarts`, kills one rank (SIGKILL) after step 6 and
measures the time until the restarted training has written its next line of metrics, and of what that time consists. Prints the
median of ATTEMPTS (default 5) and fails when it is above 5 seconds.
"""
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_S = 5.0
root = Path(__file__).resolve().parents[2]


def wait_for(condition, limit_s=120):
    end = time.monotonic() + limit_s
    while not (value := condition()):
        if time.monotonic() > end:
            sys.exit("restart_time.py: waited in vain")
        time.sleep(0.002)
    return value


def ranks_of(output_dir):
    """pids of the vla_worker processes of the training in `output_dir`"""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if command[0].endswith(b"/vla_worker") and f"--output_dir={output_dir}".encode() in command:
            found.add(int(process.name))
    return found


def last_step(metrics):
    try:
        return json.loads(metrics.read_bytes().rstrip(b"\n").splitlines()[-1])["step"]
    except (OSError, IndexError, ValueError):
        return 0


def measure(bin_dir, folder):
    output_dir = folder / "out"
    metrics = output_dir / "metrics.jsonl"
    command = [bin_dir / "cxxrun", "--nproc_per_node=2", "--max-restarts=1", bin_dir / "vla_worker", "--config", root / "configs/act_demo.yaml",
               "--device=cpu", "--training.steps=12", "--training.log_freq=1", "--training.save_freq=3", "--training.batch_size=4",
               "--dataset.val_episodes=0", f"--output_dir={output_dir}"]
    with open(folder / "log", "wb") as log:
        job = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(lambda: last_step(metrics) >= 6 and (output_dir / "checkpoints/000006").exists())
        first = ranks_of(output_dir)
        os.kill(min(first), signal.SIGKILL)
        killed = time.monotonic()
        wait_for(lambda: not first & ranks_of(output_dir))
        gone = time.monotonic()
        wait_for(lambda: len(ranks_of(output_dir)) == 2)
        started = time.monotonic()
        log_lines = lambda: (folder / "log").read_text(errors="replace")
        wait_for(lambda: "continuing from" in log_lines() or job.poll() is not None)
        resumed, before = time.monotonic(), metrics.read_bytes()
        # Lines past the checkpoint are dropped first.
        wait_for(lambda: (metrics.read_bytes() != before and last_step(metrics) > 6) or job.poll() is not None)
        stepped = time.monotonic()
        if job.wait() != 0:
            sys.exit((folder / "log").read_text())
    return {"survivors gone": gone - killed, "ranks started": started - killed, "checkpoint loaded": resumed - killed, "next step": stepped - killed}


def main():
    bin_dir = Path(sys.argv[1]).resolve()
    attempts = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    results = []
    for _ in range(attempts):
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(bin_dir, Path(folder)))
    print("seconds after the kill, median (lowest to highest) of", attempts)
    for what in results[0]:
        values = [result[what] for result in results]
        print(f"  {what:<18} {statistics.median(values):6.2f} ({min(values):.2f} to {max(values):.2f})")
    sys.exit(statistics.median(result["next step"] for result in results) > LIMIT_S)


main()
