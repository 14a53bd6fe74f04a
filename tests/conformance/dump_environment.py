"""Writes the environment and the arguments that it was started with to $DUMP_FOLDER/$RANK.env and .args."""

import os
import sys

path = os.path.join(os.environ["DUMP_FOLDER"], os.environ["RANK"])
with open(path + ".env", "wb") as file:
    file.write(b"".join(name + b"=" + value + b"\0" for name, value in os.environb.items()))
with open(path + ".args", "wb") as file:
    file.write(b"".join(os.fsencode(argument) + b"\0" for argument in sys.argv[1:]))
