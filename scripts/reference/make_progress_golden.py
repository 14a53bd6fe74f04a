"""Writes tests/data/loggers/progress_bars.json: what tqdm 4.70 draws for some states of a training.

    python scripts/reference/make_progress_golden.py > tests/data/loggers/progress_bars.json
"""
import json
import sys

from tqdm import tqdm

STATES = [
    # step, total, elapsed, steps per second, postfix, columns
    (0, 20000, 0.0, None, "", 80),
    (0, 20000, 0.0, None, "", 47),
    (2400, 20000, 83.6, 28.7, "loss=0.83, lr=0.0001", 82),
    (2400, 20000, 83.6, 28.7, "loss=0.83, lr=0.0001", 200),
    (7777, 20000, 3723.0, 0.37, "", 100),
    (19999, 20000, 36000.0, 1.0, "loss=12", 120),
    (20000, 20000, 36000.4, 123.456, "", 79),
    (5, 8, 1.0, 5.0, "", 60),
    (2400, 20000, 83.6, 28.7, "loss=0.83, lr=0.0001", 40),
]


def draw(state, ascii_only):
    step, total, elapsed, rate, postfix, columns = state
    return tqdm.format_meter(step, total, elapsed, ncols=columns, prefix="Steps", ascii=ascii_only, rate=rate, postfix=postfix or None)


def main():
    rows = [
        dict(zip(("step", "total", "elapsed_s", "steps_per_s", "postfix", "columns"), state), unicode=draw(state, False), ascii=draw(state, True))
        for state in STATES
    ]
    json.dump(rows, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
