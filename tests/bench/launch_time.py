#!/usr/bin/env python3
"""How long cxxrun and torchrun take to start ranks that do nothing, in one run on this machine.

    launch_time.py CXXRUN TORCHRUN [RANKS...]        default: 2 and 8 ranks

Prints medians of alternating runs: 15 of cxxrun, 3 of torchrun.
"""

import statistics
import subprocess
import sys
import time


def seconds(launcher: str, ranks: int) -> float:
    start = time.perf_counter()
    subprocess.run([launcher, "--no-python", f"--nproc_per_node={ranks}", "/bin/true"], check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    cxxrun, torchrun, *ranks = sys.argv[1:]
    print(f"{'ranks':>5} {'cxxrun':>10} {'torchrun':>10} {'ratio':>6}")
    for count in map(int, ranks or ("2", "8")):
        ours, theirs = [], []
        for _ in range(3):
            theirs.append(seconds(torchrun, count))
            ours += [seconds(cxxrun, count) for _ in range(5)]
        a, b = statistics.median(ours), statistics.median(theirs)
        print(f"{count:>5} {a * 1e3:>7.1f} ms {b * 1e3:>7.0f} ms {b / a:>6.0f}")


if __name__ == "__main__":
    main()
