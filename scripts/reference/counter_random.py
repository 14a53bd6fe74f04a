"""The random numbers of a vla_worker training, for references that shall see the same ones: Philox4x32-10 counted by (seed, step,
stream, position in the global batch, element), as worker/policies/nn/counter_fill.hpp computes them."""
import numpy as np


def stream_of(name: str) -> int:
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def words(seed: int, step: int, name: str, rows: int, elements: int) -> np.ndarray:
    """uint32 [rows, elements rounded up to 4]; rows stand at positions 0, 1, ... of the global batch."""
    blocks = (elements + 3) // 4
    counter = [np.broadcast_to(np.uint64(value), (rows, blocks)).astype(np.uint64)
               for value in (0, 0, step, stream_of(name))]
    counter[0] = np.broadcast_to(np.arange(blocks, dtype=np.uint64), (rows, blocks))
    counter[1] = np.broadcast_to(np.arange(rows, dtype=np.uint64)[:, None], (rows, blocks))
    key = [seed & 0xFFFFFFFF, seed >> 32]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        product = [np.uint64(0xD2511F53) * counter[0], np.uint64(0xCD9E8D57) * counter[2]]
        counter = [(product[1] >> np.uint64(32)) ^ counter[1] ^ np.uint64(key[0]), product[1] & low,
                   (product[0] >> np.uint64(32)) ^ counter[3] ^ np.uint64(key[1]), product[0] & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(counter, axis=-1).reshape(rows, blocks * 4).astype(np.uint32)


def uniform(seed: int, step: int, name: str, rows: int, shape: tuple[int, ...]) -> np.ndarray:
    elements = int(np.prod(shape))
    bits = words(seed, step, name, rows, elements)[:, :elements]
    return ((bits >> 8).astype(np.float32) * np.float32(2.0**-24)).reshape(rows, *shape)


def normal(seed: int, step: int, name: str, rows: int, shape: tuple[int, ...]) -> np.ndarray:
    elements = int(np.prod(shape))
    bits = words(seed, step, name, rows, elements).astype(np.float64)
    radius = np.sqrt(-2 * np.log((bits[:, 0::2] + 1) * 2.0**-32))
    angle = 2 * np.pi * (bits[:, 1::2] * 2.0**-32)
    values = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).reshape(rows, -1)
    return values[:, :elements].astype(np.float32).reshape(rows, *shape)
