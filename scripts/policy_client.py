#!/usr/bin/env python3
"""A client of `vla_worker serve`: sends observations, gets chunks of actions. Needs NumPy only.

    from policy_client import PolicyClient
    with PolicyClient("/tmp/policy.sock") as policy:          # or "127.0.0.1:5555"
        actions, latency_ms = policy.predict({"observation.image": image, "observation.state": state}, task="push", reset=True)

As a program it prints what a running server serves: scripts/policy_client.py ADDRESS
"""
import json
import socket
import struct
import sys

import numpy as np

MAGIC = b"VLA1"


class PolicyError(RuntimeError):
    """The server refused a request, and says why."""


class PolicyClient:
    """One connection, which is one session: the server keeps the history that the policy looks back on."""

    def __init__(self, address, timeout=60.0):
        host, colon, port = address.rpartition(":")
        is_tcp = colon and "/" not in address
        self._socket = socket.socket(socket.AF_INET if is_tcp else socket.AF_UNIX)
        self._socket.settimeout(timeout)
        self._socket.connect((host, int(port)) if is_tcp else address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._socket.close()

    def info(self):
        """What the policy is and needs: policy, inputs, n_obs_steps, n_action_steps, needs_task."""
        return self._request({"op": "info"})[0]

    def predict(self, observation, task=None, reset=False):
        """Actions float32 [chunk, action_dim], the first of which belongs to this observation, and the server's latency in ms."""
        header, payload = self._observation("predict", observation, task, reset)
        shape = header["tensors"][0]["shape"]
        return np.frombuffer(payload, "<f4").reshape(shape).copy(), header["latency_ms"]

    def observe(self, observation, task=None, reset=False):
        """The observation of a time step at which no action is predicted, for policies with n_obs_steps > 1."""
        self._observation("observe", observation, task, reset)

    def _observation(self, op, observation, task, reset):
        header, payload = {"op": op, "reset": reset, "tensors": []}, []
        if task is not None:
            header["task"] = task
        for key, value in observation.items():
            value = np.asarray(value)
            dtype = "uint8" if value.dtype == np.uint8 else "float32"
            header["tensors"].append({"key": key, "dtype": dtype, "shape": value.shape})
            payload.append(np.ascontiguousarray(value, "<f4" if dtype == "float32" else "u1").tobytes())
        return self._request(header, b"".join(payload))

    def _request(self, header, payload=b""):
        text = json.dumps(header).encode()
        self._socket.sendall(struct.pack("<4sIQ", MAGIC, len(text), len(payload)) + text + payload)
        magic, header_size, payload_size = struct.unpack("<4sIQ", self._receive(16))
        if magic != MAGIC:
            raise PolicyError("the reply is none of this protocol")
        header, payload = json.loads(self._receive(header_size)), self._receive(payload_size)
        if not header["ok"]:
            raise PolicyError(header["error"])
        return header, payload

    def _receive(self, size):
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionError("the server closed the connection")
            data += part
        return bytes(data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with PolicyClient(sys.argv[1]) as client:
        print(json.dumps(client.info(), indent=2))
