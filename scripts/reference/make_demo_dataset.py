#!/usr/bin/env python
"""Make the small Meta-World demonstration datasets in LeRobot format (see tests/data/README.md).

Stage 1 "record": roll out Meta-World's own scripted expert policies inside LeRobot's own Meta-World
environment (lerobot.envs.metaworld.MetaworldEnv: camera corner2, both image axes flipped, state = first
4 numbers of the simulator's observation, 80 Hz) and keep the frames in one .npz file per episode.

Stage 2 "write": hand the very same frames to LeRobot's own dataset writer, several times:
    metaworld_demo       v3.0, video, LeRobot's default encoder (AV1: libsvtav1, g=2, crf=30, preset 12)
    metaworld_demo_h264  v3.0, video, H.264 (g=2 as by default; crf=23, x264's own default: LeRobot's 30 looks poor)
    metaworld_demo_png   v3.0, images embedded in parquet, two cameras, first task, 3 episodes

    pip install 'lerobot[metaworld]==0.6.1' mujoco==3.3.2   # into the environment of make_env.sh; and Debian's libosmesa6
    export MUJOCO_GL=osmesa PYTHONHASHSEED=0   # the hash seed fixes the key order of meta/stats.json
    python make_demo_dataset.py record write --raw RAW_DIR --out OUT_DIR

Images: the environment always renders 480x480. A frame is shrunk to SIZE x SIZE exactly as LeRobot's
processor step "image_crop_resize_processor" does it at evaluation time (torchvision F.resize, bilinear,
antialiased, then clamp to [0, 1]) and rounded to uint8. So a policy trained on this data is evaluated
with plain `lerobot-eval --env.type=metaworld --env.task=reach-v3` as long as its policy_preprocessor.json
holds that step with resize_size [SIZE, SIZE].

Everything follows from (task, seed): episode i of a task uses seed i. lerobot-eval's default seeds start
at 1000, so the evaluation episodes are never among the demonstrations.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np

TASKS = ["reach-v3", "push-v3", "button-press-topdown-v3"]  # all solved on every seed, 36 to 75 steps
EPISODES_PER_TASK = 12
EXTRA_STEPS = 4  # steps kept after the step that first reports success
MAX_STEPS = 150
FPS = 80  # MetaworldEnv.metadata["render_fps"] and the env config's fps
SIZE = 128  # observation.image in the video datasets
PNG_TASK, PNG_EPISODES = "reach-v3", 3
PNG_SIZE = 64  # both cameras of the image dataset (ACT and Diffusion Policy want equal sizes)
ROBOT_TYPE = "sawyer"


def shrink(img_hwc_uint8: np.ndarray, size: int) -> np.ndarray:
    """What image_crop_resize_processor does to a rendered frame, back in uint8."""
    import torch
    import torchvision.transforms.functional as F

    x = torch.from_numpy(np.ascontiguousarray(img_hwc_uint8)).permute(2, 0, 1)[None].float() / 255
    x = F.resize(x, [size, size]).clamp(0.0, 1.0)
    return (x[0] * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy()


def record(raw: Path) -> None:
    from lerobot.envs.metaworld import TASK_DESCRIPTIONS, MetaworldEnv

    raw.mkdir(parents=True, exist_ok=True)
    summary = {}
    for task in TASKS:
        env = MetaworldEnv(task, camera_name="corner2", obs_type="pixels_agent_pos")
        env._ensure_env()
        sim = env._env  # the Meta-World env itself; MetaworldEnv.step() would reset it at success
        # A second environment with the wrist camera, driven through the same actions.
        wrist = None
        if task == PNG_TASK:
            wrist = MetaworldEnv(task, camera_name="gripperPOV", obs_type="pixels_agent_pos")
            wrist._ensure_env()
        lengths, seed, kept = [], 0, 0
        tried = 0
        while kept < EPISODES_PER_TASK:
            tried += 1
            expert = type(env.expert_policy)()
            sim.seed(seed)  # the same two calls as MetaworldEnv.reset(seed=...)
            obs, _ = sim.reset(seed=seed)
            with_wrist = wrist is not None and kept < PNG_EPISODES
            if with_wrist:
                wrist._env.seed(seed)
                wrist._env.reset(seed=seed)
            ep = {k: [] for k in ("image", "image_png", "wrist", "state", "action", "reward", "success")}
            first_success = None
            for t in range(MAX_STEPS):
                full = env._format_raw_obs(obs)  # LeRobot's own rendering, flips and state slice
                action = np.clip(expert.get_action(obs), -1, 1).astype(np.float32)
                ep["image"].append(shrink(full["pixels"], SIZE))
                ep["state"].append(full["agent_pos"].astype(np.float32))
                ep["action"].append(action)
                if with_wrist:
                    ep["image_png"].append(shrink(full["pixels"], PNG_SIZE))
                    ep["wrist"].append(shrink(wrist.render(), PNG_SIZE))
                    wrist._env.step(action)
                obs, reward, _, _, info = sim.step(action)
                ep["reward"].append(np.float32(reward))
                ep["success"].append(bool(info["success"]))
                if first_success is None and info["success"]:
                    first_success = t
                if first_success is not None and t >= first_success + EXTRA_STEPS:
                    break
            if first_success is None:  # never happened for these tasks and seeds
                print(f"{task} seed {seed}: no success, left out", flush=True)
                seed += 1
                continue
            n = len(ep["image"])
            np.savez_compressed(
                raw / f"{task}_{kept:02d}.npz",
                **{k: np.stack(v) for k, v in ep.items() if v},
                seed=seed,
                task=TASK_DESCRIPTIONS[task],
            )
            lengths.append(n)
            print(f"{task} episode {kept} seed {seed}: {n} frames, success at step {first_success}", flush=True)
            kept += 1
            seed += 1
        summary[task] = {"kept": kept, "tried": tried, "lengths": lengths, "text": TASK_DESCRIPTIONS[task]}
    (raw / "summary.json").write_text(json.dumps(summary, indent=1))


def features(image_dtype: str, cameras: dict[str, int]) -> dict:
    f = {
        key: {"dtype": image_dtype, "shape": (size, size, 3), "names": ["height", "width", "channels"]}
        for key, size in cameras.items()
    }
    f["observation.state"] = {
        "dtype": "float32",
        "shape": (4,),
        "names": ["hand_x", "hand_y", "hand_z", "gripper_open"],
    }
    f["action"] = {"dtype": "float32", "shape": (4,), "names": ["dx", "dy", "dz", "gripper"]}
    f["next.reward"] = {"dtype": "float32", "shape": (1,), "names": None}
    f["next.success"] = {"dtype": "bool", "shape": (1,), "names": None}
    return f


def episodes(raw: Path, per_task: int, tasks=TASKS):
    for task in tasks:
        for i in range(per_task):
            yield np.load(raw / f"{task}_{i:02d}.npz")


def frames(ep, keymap: dict[str, str]):
    for t in range(len(ep["action"])):
        yield {key: ep[src][t] for key, src in keymap.items()} | {
            "observation.state": ep["state"][t],
            "action": ep["action"][t],
            "next.reward": ep["reward"][t : t + 1],
            "next.success": ep["success"][t : t + 1],
        }


def write(raw: Path, out: Path) -> None:
    from lerobot.configs import RGBEncoderConfig
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    jobs = {
        "metaworld_demo": dict(dtype="video", encoder=RGBEncoderConfig()),
        "metaworld_demo_h264": dict(dtype="video", encoder=RGBEncoderConfig(vcodec="h264", crf=23)),
        "metaworld_demo_png": dict(dtype="image", encoder=None),
    }
    for name, job in jobs.items():
        root = out / name
        if root.exists():
            shutil.rmtree(root)
        if job["dtype"] == "video":
            cams, keymap = {"observation.image": SIZE}, {"observation.image": "image"}
            eps = episodes(raw, EPISODES_PER_TASK)
        else:
            cams = {"observation.image": PNG_SIZE, "observation.wrist_image": PNG_SIZE}
            keymap = {"observation.image": "image_png", "observation.wrist_image": "wrist"}
            eps = episodes(raw, PNG_EPISODES, [PNG_TASK])
        ds = LeRobotDataset.create(
            repo_id=f"local/{name}",
            root=root,
            fps=FPS,
            robot_type=ROBOT_TYPE,
            features=features(job["dtype"], cams),
            use_videos=job["dtype"] == "video",
            rgb_encoder=job["encoder"],
            encoder_threads=2,
        )
        for ep in eps:
            for frame in frames(ep, keymap):
                ds.add_frame(frame | {"task": str(ep["task"])})
            ds.save_episode()
        ds.finalize()
        shutil.rmtree(root / "images", ignore_errors=True)  # the writer leaves an empty folder behind
        print(f"{name}: {ds.meta.total_episodes} episodes, {ds.meta.total_frames} frames", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stages", nargs="+", choices=["record", "write"])
    p.add_argument("--raw", type=Path, required=True, help="folder of the recorded episodes (.npz)")
    p.add_argument("--out", type=Path, required=True, help="folder that gets the datasets")
    a = p.parse_args()
    for stage in a.stages:
        if stage == "record":
            record(a.raw)
        else:
            write(a.raw, a.out)
