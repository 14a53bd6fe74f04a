#!/usr/bin/env python3
"""Success rate of a checkpoint in a simulator, with `vla_worker serve` in the loop.

    export MUJOCO_GL=egl        # or osmesa, without a GPU
    scripts/eval_sim.py --checkpoint outputs/20250115_123456/checkpoints/last --env metaworld --task button-press-topdown-v3 \\
        --episodes 10 --video videos

Needs NumPy and the simulator (pip install metaworld==3.0.0 mujoco==3.3.2), and imageio[ffmpeg] for --video. Episodes, seeds and
the way success is counted are those of LeRobot 0.6.1's `lerobot-eval` with --eval.batch_size=1: episode i is reset with seed
1000 + i and succeeds if a step says so before 500 steps are over.

--env MODULE:FACTORY takes any environment with Gymnasium's reset(seed=...) and step(action): FACTORY(task=TASK, **ENV_ARGS). Its
observations are a dict with the policy's own keys, or Gymnasium's "pixels" (an image, or a dict of them), "agent_pos" and
"environment_state", which are renamed as LeRobot does; --rename OLD=NEW does the rest. info["is_success"] or info["success"] tells success.
"""
import argparse
import contextlib
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

from policy_client import PolicyClient

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIRST_SEED = 1000
STRIP_FRAMES = 8


class Metaworld:
    """A Meta-World task seen and reset as by LeRobot's environment: camera corner2, both axes flipped, 480x480."""

    metadata = {"render_fps": 80}
    max_episode_steps = 500

    def __init__(self, task, camera="corner2"):
        import metaworld

        self._camera = camera
        tasks = metaworld.MT1(task, seed=42)
        self._env = tasks.train_classes[task](render_mode="rgb_array", camera_name=camera)
        self._env.set_task(tasks.train_tasks[0])
        if camera == "corner2":
            self._env.model.cam_pos[2] = [0.75, 0.075, 0.7]
        self._env.reset()
        self._env._freeze_rand_vec = False  # else every episode is the same
        self._env.seeded_rand_vec = True  # and it follows from the seed

        self.task_description = lerobot_text(task)

    def _observation(self, state):
        image = self._env.render()
        if self._camera == "corner2":
            image = image[::-1, ::-1]
        return {"pixels": np.ascontiguousarray(image), "agent_pos": state[:4]}

    def reset(self, seed):
        self._env.seed(seed)
        return self._observation(self._env.reset(seed=seed)[0]), {}

    def step(self, action):
        state, reward, done, truncated, info = self._env.step(action)
        success = bool(info.get("success", 0))
        return self._observation(state), reward, bool(done) or success, truncated, {"is_success": success}


def lerobot_text(task):
    """What LeRobot calls the task to the policy, where it is installed; it is not imported."""
    found = importlib.util.find_spec("lerobot")
    table = pathlib.Path(found.submodule_search_locations[0]) / "envs/metaworld_config.json" if found else None
    return json.loads(table.read_text())["TASK_DESCRIPTIONS"].get(task) if table and table.exists() else None


def make_env(name, task, arguments):
    if name == "metaworld":
        return Metaworld(task, **arguments)
    module, colon, factory = name.partition(":")
    if not colon:
        sys.exit(f"--env is '{name}': expected metaworld or MODULE:FACTORY")
    return getattr(importlib.import_module(module), factory)(task=task, **arguments)


def policy_observation(observation, inputs, rename):
    """The policy's inputs by its own names."""
    named = {}
    for key, value in observation.items():
        if key == "pixels" and isinstance(value, dict):
            named.update({f"observation.images.{camera}": image for camera, image in value.items()})
        else:
            named[{"pixels": "observation.image", "agent_pos": "observation.state"}.get(key, key if "." in key else f"observation.{key}")] = value
    named = {rename.get(key, key): value for key, value in named.items()}
    missing = [key for key in inputs if key not in named]
    if missing:
        sys.exit(f"the policy needs {', '.join(missing)}, the environment has {', '.join(named)}: see --rename")
    return {key: named[key] for key in inputs}


def run_episode(env, policy, info, seed, options, text, max_steps, frames):
    """The episode's result, and the latencies of its predictions."""
    inputs = [feature["key"] for feature in info["inputs"]]
    images = [feature["key"] for feature in info["inputs"] if feature["dtype"] == "uint8"]
    steps_of_chunk = options.action_steps or info["n_action_steps"]
    raw, _ = env.reset(seed=seed)
    actions, latencies, success, reward_sum = [], [], False, 0.0
    for step in range(max_steps):
        observation = policy_observation(raw, inputs, options.rename)
        if frames is not None and images:
            frames.append(observation[images[0]])
        if not actions:
            chunk, latency = policy.predict(observation, task=text, reset=step == 0)
            actions = list(chunk[:steps_of_chunk])
            latencies.append(latency)
        elif info["n_obs_steps"] > 1:
            policy.observe(observation, task=text)
        raw, reward, terminated, truncated, step_info = env.step(actions.pop(0))
        reward_sum += float(reward)
        success = success or bool(step_info.get("is_success", step_info.get("success", False)))
        if terminated or truncated:
            break
    if frames is not None and images:
        frames.append(policy_observation(raw, inputs, options.rename)[images[0]])
    return {"seed": seed, "success": success, "steps": step + 1, "reward": reward_sum}, latencies


@contextlib.contextmanager
def serving(options):
    """The address of a server of the checkpoint, which ends with the block."""
    if options.address:
        yield options.address
        return
    with tempfile.TemporaryDirectory() as folder:
        socket = pathlib.Path(folder) / "policy.sock"
        command = [options.worker, "serve", "--checkpoint", options.checkpoint, "--socket", str(socket), "--image_size", options.image_size,
                   "--device", options.device, "--threads", str(options.threads), "--seed", str(options.seed)] + ["--ema"] * options.ema
        server = subprocess.Popen(command)
        try:
            while not socket.exists():
                if server.poll() is not None:
                    sys.exit(f"{' '.join(command)} ended with exit code {server.returncode}")
                time.sleep(0.05)
            yield str(socket)
        finally:
            server.terminate()
            server.wait()


def save_video(folder, name, frames, fps):
    import imageio.v2 as imageio

    folder.mkdir(parents=True, exist_ok=True)
    with imageio.get_writer(folder / f"{name}.mp4", fps=fps, macro_block_size=2) as writer:
        for frame in frames:
            writer.append_data(frame)


def save_strip(folder, name, frames):
    import imageio.v2 as imageio

    chosen = [frames[i] for i in np.linspace(0, len(frames) - 1, STRIP_FRAMES).round().astype(int)]
    every = max(1, chosen[0].shape[0] // 240)
    imageio.imwrite(folder / f"{name}.png", np.concatenate([frame[::every, ::every] for frame in chosen], axis=1))


def find_worker():
    built = ROOT / "build/release/bin/vla_worker"
    return str(built) if built.exists() else shutil.which("vla_worker") or str(built)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--checkpoint", help="folder of the checkpoint; its server is started here")
    what.add_argument("--address", help="instead: a server that runs already")
    parser.add_argument("--env", default="metaworld", help="metaworld or MODULE:FACTORY")
    parser.add_argument("--env-args", type=json.loads, default={}, metavar="JSON", help="further arguments of the factory")
    parser.add_argument("--task", required=True, help="the environment's name of the task, for example button-press-topdown-v3")
    parser.add_argument("--text", help="the task as the policy reads it; default: the environment's task_description, or the task's name")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--max-steps", type=int, help="default: the environment's own limit, or 500")
    parser.add_argument("--action-steps", type=int, help="actions of a chunk that are executed; default: the checkpoint's n_action_steps")
    parser.add_argument("--rename", nargs="*", default=[], metavar="OLD=NEW", help="names that the policy has for the environment's keys")
    parser.add_argument("--video", type=pathlib.Path, metavar="DIR", help="an mp4 of every episode and a PNG strip of the first")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="the results for programs")
    parser.add_argument("--worker", default=find_worker(), help="vla_worker's path (%(default)s)")
    parser.add_argument("--device", default="auto", help="the server's: auto, cpu, cuda, cuda:N")
    parser.add_argument("--threads", type=int, default=0, help="the server's, on the CPU")
    parser.add_argument("--seed", type=int, default=0, help="the server's, of policies that sample")
    parser.add_argument("--ema", action="store_true", help="the averaged weights")
    parser.add_argument("--image-size", default="resize", choices=["exact", "resize", "any"], help="the server's")
    options = parser.parse_args()
    options.rename = dict(pair.split("=", 1) for pair in options.rename)
    return options


def main():
    options = parse_arguments()
    env = make_env(options.env, options.task, options.env_args)
    text = options.text or getattr(env, "task_description", None) or options.task
    max_steps = options.max_steps or getattr(env, "max_episode_steps", None) or getattr(env, "_max_episode_steps", None) or 500
    episodes, latencies = [], []
    with serving(options) as address, PolicyClient(address) as policy:
        info = policy.info()
        for number in range(options.episodes):
            seed = options.first_seed + number
            frames = [] if options.video else None
            episode, times = run_episode(env, policy, info, seed, options, text, max_steps, frames)
            latencies += times
            episodes.append(episode)
            outcome = "success" if episode["success"] else "failure"
            print(f"episode {number}: seed {seed}, {outcome} after {episode['steps']} steps, reward {episode['reward']:.3f}", flush=True)
            if frames:
                save_video(options.video, f"{options.task}_{seed}", frames, getattr(env, "metadata", {}).get("render_fps", 30))
                if number == 0:
                    save_strip(options.video, options.task, frames)
    successes = sum(episode["success"] for episode in episodes)
    p50, p95 = np.percentile(latencies, [50, 95])
    print(f"{options.task}: {successes} of {len(episodes)} episodes succeeded ({successes / len(episodes):.0%}); "
          f"{len(latencies)} predictions, latency p50 {p50:.1f} ms, p95 {p95:.1f} ms")
    if options.json:
        options.json.write_text(json.dumps({"task": options.task, "success_rate": successes / len(episodes), "episodes": episodes,
                                            "latency_ms": {"p50": p50, "p95": p95}, "policy": info}, indent=2) + "\n")


if __name__ == "__main__":
    main()
