#!/usr/bin/env python3
"""How fast cxxrun and torchrun pass on what four ranks write, in one run on this machine.

    output_throughput.py CXXRUN TORCHRUN [MEGABYTES]        of every rank; default 400

The launcher has one core, the ranks have the others; they write lines of 100 bytes to their stdout, 64 KiB at a time, and the
launcher's stdout is /dev/null. The clock runs from a rank's first line to the launcher's end; CPU seconds are the launcher's
own, less those of a job that writes nothing. Log files are in $TMPDIR. Goal: 4 x 200 MB/s.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time

RANKS = 4
WRITER = """
import os, sys, time
folder, megabytes = sys.argv[1], int(sys.argv[2])
os.sched_setaffinity(0, set(range(os.cpu_count())) - {0} or {0})
block = (b"x" * 99 + b"\\n") * 655
start = time.time()
for _ in range(megabytes * 1000000 // len(block)):
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(1, rest):]
with open(folder + "/" + os.environ["RANK"], "w") as file:
    file.write("%f %f" % (start, time.process_time()))
"""


def run(launcher: str, options: list[str], megabytes: int) -> tuple[float, float]:
    """Seconds from the first line to the launcher's end, and the launcher's own CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["taskset", "-c", "0", launcher, "--no-python", f"--nproc_per_node={RANKS}"]
        command += [option.format(folder=folder) for option in options]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with open("/dev/null", "w") as null:
            subprocess.run([*command, sys.executable, "-c", WRITER, folder, str(megabytes)], check=True, stdout=null, stderr=null)
        end = time.time()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        ranks = [tuple(map(float, open(f"{folder}/{rank}").read().split())) for rank in range(RANKS)]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - sum(used for _, used in ranks)
    return end - min(start for start, _ in ranks), cpu


def measure(name: str, launcher: str, options: list[str], megabytes: int) -> None:
    _, idle_cpu = run(launcher, options, 0)
    seconds, cpu = run(launcher, options, megabytes)
    print_row(name, RANKS * megabytes, seconds, cpu - idle_cpu)


def measure_file_system(megabytes: int) -> None:
    """A tee cannot be faster. Writes twice: memory that a virtual machine has never used before is slow."""
    block, total = bytes(1 << 18), RANKS * megabytes
    for _ in range(2):
        with tempfile.TemporaryFile(buffering=0) as file:
            start, cpu = time.time(), time.process_time()
            for _ in range(total * 1000000 // len(block)):
                file.write(block)
            seconds, cpu = time.time() - start, time.process_time() - cpu
    print_row("(writing one such file)", total, seconds, cpu)


def print_row(name: str, total: int, seconds: float, cpu: float) -> None:
    print(f"{name:<24} {total:>6} {seconds:>8.2f} {total / seconds:>6.0f} {cpu:>6.2f} {total / cpu:>14.0f}", flush=True)


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    cxxrun, torchrun = sys.argv[1:3]
    megabytes = int(sys.argv[3]) if len(sys.argv) > 3 else 400
    print(f"{'':<24} {'MB':>6} {'seconds':>8} {'MB/s':>6} {'CPU s':>6} {'MB/CPU second':>14}")
    measure("cxxrun", cxxrun, [], megabytes)
    measure("cxxrun --prefix always", cxxrun, ["--prefix=always"], megabytes)
    measure_file_system(megabytes)
    measure("cxxrun --tee 3", cxxrun, ["--tee=3", "--log-dir={folder}/logs"], megabytes)
    measure("torchrun --tee 3", torchrun, ["--tee=3", "--log-dir={folder}/logs"], megabytes)


if __name__ == "__main__":
    main()
