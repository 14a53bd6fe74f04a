"""Draws samples/s and efficiency against the number of GPUs: scaling_plot.py RESULT.json... -o scaling.png

Results are what `vla_worker bench --json` and lerobot_peer.py print; `speed.sh --parts scaling --out DIR` leaves them in DIR. Of several for
one number of GPUs the fastest counts. Efficiency is samples/s per GPU over those of the smallest number of GPUs.
"""

import argparse
import json
import sys
from pathlib import Path


def series(files):
    """{label: {GPUs: samples/s in all}}"""
    found = {}
    for file in files:
        lines = [line for line in Path(file).read_text().splitlines() if line.startswith("{")]
        if not lines:
            sys.exit(f"{file} has no JSON object on a line of its own")
        case = json.loads(lines[-1])
        ours = "ranks" in case
        gpus, batch = (case["ranks"], case["batch"]["per_gpu"]) if ours else (case["gpus"], case["batch"])
        rate = case["samples_per_s"] if ours else case["samples_s_gpu"] * gpus
        points = found.setdefault(f"{case['policy']}, batch {batch}{'' if ours else ', LeRobot'}", {})
        points[gpus] = max(rate, points.get(gpus, 0))
    return {label: dict(sorted(points.items())) for label, points in sorted(found.items())}


def draw(lines, output):
    try:
        import matplotlib
    except ImportError:
        sys.exit("scaling_plot.py needs matplotlib: pip install matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (rates, shares) = pyplot.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    for label, points in lines.items():
        gpus, per_gpu = list(points), [rate / count for count, rate in points.items()]
        style = dict(marker="o", linestyle="--" if label.endswith("LeRobot") else "-", label=label)
        color = rates.plot(gpus, list(points.values()), **style)[0].get_color()
        rates.plot(gpus, [count * per_gpu[0] for count in gpus], color=color, linewidth=0.7, linestyle=":")
        shares.plot(gpus, [100 * rate / per_gpu[0] for rate in per_gpu], color=color, **style)
    ticks = sorted({count for points in lines.values() for count in points})
    rates.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="samples/s", title="Speed (dotted: that of the fewest GPUs, times GPUs)")
    shares.set(xscale="log", ylim=(0, None), xlabel="GPUs", ylabel="%", title="Samples/s per GPU, of those of the fewest GPUs")
    for axes in (rates, shares):
        axes.set_xticks(ticks, [str(count) for count in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    rates.legend(fontsize="small")
    figure.savefig(output, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", metavar="RESULT.json")
    parser.add_argument("-o", "--output", default="scaling.png")
    options = parser.parse_args()
    draw(series(options.results), options.output)


if __name__ == "__main__":
    main()
