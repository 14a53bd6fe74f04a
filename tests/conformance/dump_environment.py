"""Writes its environment, arguments and command line to $DUMP_FOLDER/$RANK.env, .args and .command."""

import os
import pathlib
import sys


def write(suffix: str, texts: list[bytes]) -> None:
    path = pathlib.Path(os.environ["DUMP_FOLDER"], os.environ["RANK"] + suffix)
    path.write_bytes(b"".join(text + b"\0" for text in texts))


write(".env", [name + b"=" + value for name, value in os.environb.items()])
write(".args", [os.fsencode(argument) for argument in sys.argv[1:]])
write(".command", pathlib.Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1])
