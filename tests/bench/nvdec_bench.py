"""nvdec_bench.py [DATASET = tests/data/metaworld_demo]: frames per second of the GPU's video decoders (NVDEC) beside a CPU core's.

The videos are the dataset's first frames, enlarged, with a key frame every second frame, as LeRobot writes them. All frames are decoded in
order and end in host memory, where the frame cache wants them. CPU: processor time of one thread. NVDEC: wall time of 1 and 8 decoders at
once. Needs PyAV with the cuvid decoders, as its wheels have them, and an NVIDIA driver with libnvcuvid."""
import pathlib
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import av

FRAMES = 400
SIZES = [(640, 480), (1280, 720), (1920, 1080)]
# encoder, CPU decoder, GPU decoder
CODECS = [("libx264", "h264", "h264_cuvid"), ("libsvtav1", "libdav1d", "av1_cuvid")]


def encode(source, target, encoder, width, height):
    with av.open(str(source)) as old, av.open(target, "w") as new:
        stream = new.add_stream(encoder, rate=30, options={"crf": "30", "g": "2"})
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = width, height, "yuv420p", 2
        for index, frame in enumerate(old.decode(video=0)):
            if index == FRAMES:
                break
            larger = frame.reformat(width=width, height=height, format="yuv420p")
            larger.pts, larger.time_base, larger.pict_type = index, Fraction(1, 30), av.video.frame.PictureType.NONE
            new.mux(stream.encode(larger))
        new.mux(stream.encode())


def packets_of(path):
    with av.open(path) as container:
        stream = container.streams.video[0]
        return [bytes(p) for p in container.demux(stream) if p.size], stream.codec_context.extradata


def decode(decoder, packets, extradata):
    context = av.CodecContext.create(decoder, "r")
    context.extradata, context.thread_count = extradata, 1
    count = sum(len(context.decode(av.Packet(data))) for data in packets) + len(context.decode(None))
    if count != len(packets):
        raise RuntimeError(f"{decoder} gave {count} of {len(packets)} frames")


def cpu_speed(decoder, packets, extradata):
    start = time.process_time()
    decode(decoder, packets, extradata)
    return len(packets) / (time.process_time() - start)


def gpu_speed(decoder, packets, extradata, decoders):
    decode(decoder, packets, extradata)  # the first opens the device
    start = time.perf_counter()
    with ThreadPoolExecutor(decoders) as pool:
        list(pool.map(lambda _: decode(decoder, packets, extradata), range(decoders)))
    return decoders * len(packets) / (time.perf_counter() - start)


def main():
    dataset = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1] / "data/metaworld_demo")
    source = next(dataset.rglob("*.mp4"))
    print(f"PyAV {av.__version__} (FFmpeg {av.ffmpeg_version_info}), frames/s\n| | one CPU core | NVDEC, 1 decoder | NVDEC, 8 decoders |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for encoder, cpu_decoder, gpu_decoder in CODECS:
            for width, height in SIZES:
                path = f"{folder}/{encoder}.mp4"
                encode(source, path, encoder, width, height)
                packets, extradata = packets_of(path)
                row = [f"{cpu_speed(cpu_decoder, packets, extradata):.0f}"]
                for decoders in (1, 8):
                    try:
                        row.append(f"{gpu_speed(gpu_decoder, packets, extradata, decoders):.0f}")
                    except (av.FFmpegError, RuntimeError, ValueError) as error:
                        row.append(f"{type(error).__name__}: {error}")
                print(f"| {gpu_decoder.removesuffix('_cuvid')} {width}x{height} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
