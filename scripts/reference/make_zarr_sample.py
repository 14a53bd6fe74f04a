"""A small replay buffer in zarr format 2 with an array of each kind that can be read, and statistics, for tests/worker/data.

    python scripts/reference/make_zarr_sample.py tests/data/zarr_sample    # zarr 2.18.7, numcodecs 0.15.2, numpy 2

13 frames in episodes of 5, 0 and 8. Values are formulas of frame t and place, repeated in zarr_test.cpp.
"""
import json
import shutil
import sys

import numcodecs
import numpy as np
import zarr

root = sys.argv[1]
shutil.rmtree(root, ignore_errors=True)
T, H, W = 13, 6, 8
t = np.arange(T)
y, x = np.arange(H), np.arange(W)


def pixels(shift):  # [T, H, W, 3]
    return ((29 * t[:, None, None, None] + 11 * y[None, :, None, None] + 5 * x[None, None, :, None]
             + 83 * np.arange(3) + shift) % 256).astype(np.uint8)


def vector(size):
    return t[:, None] + np.arange(size)[None, :] / 16


def blosc(cname, shuffle, level=5):
    return numcodecs.Blosc(cname=cname, clevel=level, shuffle=shuffle)


store = zarr.group(zarr.DirectoryStore(root), overwrite=True)
store.attrs["fps"] = 20
store.attrs["task"] = "stack the bowls"
data, meta = store.create_group("data"), store.create_group("meta")
meta.array("episode_ends", np.array([5, 5, 13], dtype=np.int64), chunks=(2,), compressor=blosc("zstd", 1, 3))
add = lambda name, values, **how: data.array(name, values, **how)
add("head_camera", pixels(0).transpose(0, 3, 1, 2), chunks=(4, 3, H, W), compressor=blosc("zstd", 1, 3))
add("wrist", pixels(100), chunks=(13, H, W, 3), compressor=blosc("lz4", 2), dimension_separator="/")
add("tiled", pixels(50), chunks=(5, 4, 5, 2), compressor=numcodecs.Zlib(1))
add("levels", pixels(200).astype(np.float32), chunks=(6, H, W, 3), compressor=blosc("blosclz", 1))
add("plain_camera", pixels(7), chunks=(5, H, W, 3), compressor=None)
add("state", vector(5).astype(np.float32), chunks=(4, 5), compressor=blosc("zstd", 1, 3))
add("action", -vector(3), chunks=(100, 2), compressor=numcodecs.Zlib(3))
for name, kind, compressor in (("f2", "<f2", blosc("lz4hc", 0)), ("f8", "<f8", numcodecs.GZip(2)), ("i4", "<i4", numcodecs.Zstd(4)),
                               ("i8", "<i8", blosc("zlib", 2)), ("u1", "|u1", None), ("b1", "|b1", blosc("lz4", 1))):
    add(name, (vector(2) - (0 if kind[1] in "ub" else 3)).astype(kind), chunks=(6, 2), compressor=compressor)
add("one", t.astype(np.int64) * 3, chunks=(4,), compressor=blosc("zstd", 2))
add("wide", vector(100).astype(np.float32), chunks=(5, 100), compressor=blosc("zstd", 1))
add("text_feat", np.ones((1, 4), dtype=np.float32), chunks=(1, 4))

expected = {}
for name, key in (("head_camera", "observation.images.head_camera"), ("state", "observation.state"), ("action", "action"),
                  ("i4", "i4"), ("wide", "wide")):
    values = np.asarray(data[name], dtype=np.float64)
    axes = 0
    if name == "head_camera":
        values, axes = values / 255, (0, 2, 3)
    expected[key] = {stat: np.atleast_1d(getattr(values, stat)(axis=axes)).tolist() for stat in ("mean", "std", "min", "max")}
json.dump(expected, open(root + "_stats.json", "w"), indent=1)
