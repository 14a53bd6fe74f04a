"""Stands in for wandb: appends what it is told to the file that FAKE_WANDB_FILE names. FAKE_WANDB is how it behaves: "missing",
"hangs", "crashes" (at step 20), "offline" (cannot connect); else it works. A run is at step FAKE_WANDB_STEP."""
import json
import os
import signal

behaviour = os.environ.get("FAKE_WANDB", "")
if behaviour == "missing":
    raise ImportError("No module named 'wandb'")


def tell(what, **values):
    with open(os.environ["FAKE_WANDB_FILE"], "a") as file:
        file.write(json.dumps({"call": what, **values}) + "\n")


def Settings(**settings):
    return settings


class Run:
    sync_dir = "folder"
    step = int(os.environ.get("FAKE_WANDB_STEP", 0))

    def __init__(self, mode):
        self.offline = mode == "offline"

    def log(self, values, step):
        if behaviour == "crashes" and step == 20:
            os._exit(7)
        tell("log", values={name: "nan" if value != value else value for name, value in values.items()}, step=step)

    def finish(self, exit_code):
        tell("finish", exit_code=exit_code)


def teardown():
    tell("teardown")


def init(**arguments):
    if behaviour == "hangs":
        tell("init")
        while True:
            signal.pause()
    if behaviour == "offline" and arguments["mode"] == "online":
        raise ConnectionError("no route")
    tell("init", **arguments)
    print("wandb: \033[1;34mwandb\033[0m: Tracking run\nwandb: ")
    return Run(arguments["mode"])
