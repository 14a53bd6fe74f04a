"""decode_peers.py DECODE_BENCH DATASET...: frames per second of one core's time: this project, torchcodec and PyAV on the same videos.

Datasets are LeRobot v3 folders with one video file. Run it with a Python that has torchcodec and PyAV. Every reader decodes with one
thread and gives RGB bytes; time is processor time, so a busy machine changes it little."""
import json
import pathlib
import random
import subprocess
import sys
import time

import av
import torchcodec
from torchcodec.decoders import VideoDecoder

SAMPLES = 1000


class TorchCodec:
    def __init__(self, path):
        self.decoder = VideoDecoder(path, dimension_order="NHWC", num_ffmpeg_threads=1)
        self.count = self.decoder.metadata.num_frames

    def read(self, frame):
        return self.decoder.get_frame_at(frame).data


class PyAv:
    """Decodes on while the wanted frame is the next one, seeks to the key frame before it otherwise."""

    def __init__(self, path):
        self.container = av.open(path)
        self.stream = self.container.streams.video[0]
        self.stream.codec_context.thread_count = 1
        self.count = self.stream.frames
        self.ticks = sorted(p.pts for p in self.container.demux(self.stream) if p.pts is not None)
        self.next_frame, self.frames = -1, None

    def read(self, frame):
        if frame != self.next_frame:
            self.container.seek(self.ticks[frame], stream=self.stream)
            self.frames = self.container.decode(self.stream)
        for picture in self.frames:
            if picture.pts == self.ticks[frame]:
                self.next_frame = frame + 1
                return picture.to_ndarray(format="rgb24")
        raise RuntimeError(f"frame {frame} not found")


def frames_per_second(reader, order):
    start = time.process_time()
    for frame in order:
        reader.read(frame)
    return len(order) / (time.process_time() - start)


def main():
    bench, datasets = sys.argv[1], sys.argv[2:]
    print(f"torchcodec {torchcodec.__version__}, PyAV {av.__version__} (FFmpeg {av.ffmpeg_version_info})")
    print(f"{'frames/s of one core':40} {'order':10} {'ours':>8} {'torchcodec':>11} {'PyAV':>8}")
    for dataset in map(pathlib.Path, datasets):
        lines = subprocess.run([bench, dataset, str(SAMPLES)], check=True, capture_output=True, text=True).stdout.splitlines()
        ours = {line["order"]: line["frames_per_second"] for line in map(json.loads, lines)}
        path = str(next(dataset.rglob("*.mp4")))
        for order in ours:
            peers = []
            for peer in (TorchCodec, PyAv):
                reader = peer(path)
                generator = random.Random(1)
                frames = [generator.randrange(reader.count) if order == "shuffled" else i % reader.count for i in range(SAMPLES)]
                peers.append(frames_per_second(reader, frames))
            print(f"{dataset.name:40} {order:10} {ours[order]:8.0f} {peers[0]:11.0f} {peers[1]:8.0f}")


if __name__ == "__main__":
    main()
