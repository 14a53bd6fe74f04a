"""loader_peers.py LOADER_BENCH DATASET: micro-batches a second of this project's loader and of LeRobot's DataLoader on a local dataset.

Run it with a Python that has lerobot. Both shuffle whole epochs and use WORKERS threads or processes. LeRobot gives float pictures
[B, C, H, W] and decodes in every epoch; ours gives bytes [B, H, W, C], which the training turns into floats on the device. "per core
second" divides by processor time, workers' included: what an idle machine would reach with one worker."""
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from lerobot import __version__ as lerobot_version
from lerobot.datasets.lerobot_dataset import LeRobotDataset

BATCHES, WORKERS = (8, 64), 2


def processor_time():
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage)


def lerobot_epoch(dataset, batch):
    loader = torch.utils.data.DataLoader(dataset, batch_size=batch, shuffle=True, num_workers=WORKERS, prefetch_factor=4)
    batches, start, processor = 0, time.perf_counter(), processor_time()
    for _ in loader:
        batches += 1
    return batches / (time.perf_counter() - start), batches / (processor_time() - processor)


def our_epochs(bench, root, batch, cache, folder):
    command = [bench, root, str(batch), str(WORKERS), cache, "3", folder]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    epochs = [json.loads(line) for line in lines if line.startswith("{")]
    return [(epoch["batches_per_second"], epoch["batches_per_core_second"]) for epoch in epochs]


def main():
    bench, root = sys.argv[1], sys.argv[2]
    print(f"lerobot {lerobot_version}, torch {torch.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'batches/s':12} {'':34} {'wall':>9} {'per core second':>16}")
    for batch in BATCHES:
        rows = []
        for cache in ("none", "ram", "disk"):
            with tempfile.TemporaryDirectory() as folder:
                epochs = our_epochs(bench, root, batch, cache, folder)
            if cache == "none":
                rows.append(("ours, no cache, every epoch", epochs[-1]))
            else:
                rows.append((f"ours, {cache}, first epoch", epochs[0]))
                rows.append((f"ours, {cache}, third epoch", epochs[-1]))
        for backend in ("pyav", "torchcodec"):
            dataset = LeRobotDataset("local/dataset", root=root, video_backend=backend)
            rows.append((f"LeRobot, {backend}, every epoch", lerobot_epoch(dataset, batch)))
        for name, (wall, core) in rows:
            print(f"batch {batch:6} {name:34} {wall:9.1f} {core:16.1f}", flush=True)


if __name__ == "__main__":
    main()
