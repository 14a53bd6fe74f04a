"""reencode_videos.py DATASET TARGET CODEC GOP: a copy of a LeRobot v3 dataset whose videos have a key frame every GOP frames.

Codecs: libx264, libx265, libsvtav1. Needs PyAV (the reference environment has it). For benchmarks of long groups of pictures."""
import json
import pathlib
import shutil
import sys

import av


def reencode(source, target, codec, gop):
    with av.open(source) as old, av.open(target, "w") as new:
        stream_in = old.streams.video[0]
        stream = new.add_stream(codec, rate=stream_in.average_rate, options={"crf": "23", "g": str(gop)})
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = stream_in.width, stream_in.height, "yuv420p", gop
        if codec == "libx264":
            stream.options = {"crf": "23", "x264-params": f"keyint={gop}:min-keyint={gop}:scenecut=0"}
        for frame in old.decode(stream_in):
            frame.pict_type = av.video.frame.PictureType.NONE
            new.mux(stream.encode(frame))
        new.mux(stream.encode())


def main():
    source, target, codec, gop = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.mp4"))
    for video in source.rglob("*.mp4"):
        copy = target / video.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        reencode(str(video), str(copy), codec, gop)
    info_path = target / "meta/info.json"
    info = json.loads(info_path.read_text())
    for feature in info["features"].values():
        if feature["dtype"] == "video":
            feature["info"] = {**(feature.get("info") or {}), "video.codec": codec.removeprefix("lib"), "video.g": gop}
    info_path.write_text(json.dumps(info, indent=4))


if __name__ == "__main__":
    main()
