"""What LeRobot's aggregate_stats makes of the statistics of a v2.1 dataset's episodes, for tests/worker/data.

    python scripts/reference/make_merged_stats.py tests/data/lerobot_v21 tests/data/lerobot_v21_stats.json    # lerobot 0.6.1
"""
import json
import sys

import numpy as np
from lerobot.datasets.compute_stats import aggregate_stats

root, output = sys.argv[1:]
episodes = []
with open(f"{root}/meta/episodes_stats.jsonl") as file:
    for line in file:
        stats = json.loads(line)["stats"]
        episodes.append({key: {name: np.array(value) for name, value in of.items()} for key, of in stats.items()})
# lerobot 0.3.3 wrote no quantiles; the test adds the same ones.
for number, episode in enumerate(episodes):
    for name, part in (("q01", 0.25), ("q99", 0.75)):
        episode["observation.state"][name] = episode["observation.state"]["min"] + part * number
merged = aggregate_stats(episodes)
with open(output, "w") as file:
    json.dump({key: {name: np.asarray(value, dtype=np.float64).tolist() for name, value in of.items()}
               for key, of in sorted(merged.items())}, file, indent=1)
