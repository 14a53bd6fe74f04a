"""Hands metrics to Weights & Biases: JSON lines on stdin, one run.

    {"init": {arguments of wandb.init, "mode": "auto" | "online" | "offline"}}
    {"log": {name: number or null}, "step": n}
    {"finish": true}

The end of stdin without "finish" means that training failed. Training goes on whatever happens here; what is printed is shown there.
"""
import json
import math
import netrc
import os
import signal
import sys
from urllib.parse import urlparse

# Who ends training with a signal wants what was logged to arrive.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
sys.path = [folder for folder in sys.path if folder]  # not the working directory, where wandb keeps a folder of its name

try:
    import wandb
except Exception as error:
    sys.exit(f"wandb: {sys.executable} cannot import wandb ({error}): pip install wandb, or name another Python in logging.wandb.python")


def has_key():
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def one_line(error):
    return " ".join(str(error).split())


def start(arguments):
    auto = arguments["mode"] == "auto"
    if auto:
        arguments["mode"] = os.environ.get("WANDB_MODE") or ("online" if has_key() else "offline")
    if arguments["mode"] != "online":
        arguments.pop("resume", None)  # means nothing offline
    arguments["settings"] = wandb.Settings(console="off", quiet=True)
    try:
        return wandb.init(**arguments)
    except Exception as error:
        if not auto or arguments["mode"] != "online":
            raise
        print(f"wandb: no connection ({one_line(error)}): the run is kept offline")
        wandb.teardown()  # forgets the run that was not started
        arguments["mode"] = "offline"
        arguments.pop("resume", None)
        return wandb.init(**arguments)


def main():
    run = None
    finished = False
    for line in sys.stdin:
        record = json.loads(line)
        if "init" in record:
            run = start(record["init"])
        elif "log" in record:
            if record["step"] >= run.step:  # a run that is continued from an earlier checkpoint has these already
                run.log({name: math.nan if value is None else value for name, value in record["log"].items()}, step=record["step"])
        elif "finish" in record:
            finished = True
            break
    if not finished:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if run:
        run.finish(exit_code=0 if finished else 1)
        if run.offline:
            print(f"wandb: the run is kept offline; to send it: wandb sync {run.sync_dir}")


try:
    main()
except Exception as error:
    sys.exit(f"wandb: {type(error).__name__}: {one_line(error)}")
