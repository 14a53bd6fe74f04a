"""How fast LeRobot 0.6.1 trains on a dataset, loading and decoding included, and how long it takes to start.

Runs lerobot-train on an ACT policy with LeRobot's defaults and reads the line that it logs of every step. Prints one line of JSON;
start_s is the time from the start of the process to the end of its first step.

    python tests/bench/lerobot_whole_path.py --dataset tests/data/metaworld_demo --batch 64 --dataset.video_backend=pyav

What it does not know goes to lerobot-train. Needs LeRobot's extras for training and data sets (accelerate 1.15, datasets 4.8, av 15.1).
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

STEP = re.compile(r"step:\S+ smpl:.*\bupdt_s:([\d.]+) data_s:([\d.]+)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    options, more = parser.parse_known_args()

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "lerobot.scripts.lerobot_train", "--policy.type=act", "--policy.pretrained_backbone_weights=null",
                   "--policy.push_to_hub=false", f"--policy.device={options.device}", "--dataset.repo_id=local/demo",
                   f"--dataset.root={options.dataset}", f"--batch_size={options.batch}", f"--num_workers={options.workers}",
                   f"--steps={options.warmup + options.steps}", "--log_freq=1", "--save_checkpoint=false",
                   f"--output_dir={folder}/run", *more]
        start = time.perf_counter()
        process = subprocess.Popen(command, env=os.environ | {"HF_HUB_OFFLINE": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        steps, start_s = [], None
        for line in process.stdout:
            sys.stderr.write(line)
            if found := STEP.search(line):
                start_s = start_s or time.perf_counter() - start
                steps.append(tuple(float(seconds) for seconds in found.groups()))
        if process.wait() != 0 or len(steps) != options.warmup + options.steps:
            sys.exit(f"lerobot-train logged {len(steps)} of {options.warmup + options.steps} steps and ended with {process.returncode}")

    update, data = (statistics.mean(column) for column in zip(*steps[options.warmup:]))
    print(json.dumps({"batch": options.batch, "workers": options.workers, "ms": round((update + data) * 1e3, 2), "data_ms": round(data * 1e3, 2),
                      "data_wait": round(data / (update + data), 4), "samples_s_gpu": round(options.batch / (update + data), 1),
                      "start_s": round(start_s, 1)}))


if __name__ == "__main__":
    main()
