// vla_worker's eval and serve as a user runs them, on checkpoints that it trained.
#include <fstream>

#include <gmock/gmock.h>

#include "tests/worker/inference/client.hpp"
#include "tests/worker/training/support.hpp"

namespace vla {
namespace {

using cxxrun::testing::eventually;
using cxxrun::testing::Launched;
using testing::AllOf;
using testing::HasSubstr;

struct Inference : TrainingTest {
  std::string checkpoint(const Words& options = {}) {
    run(0, small_act(out("out"), Words{"--training.steps=2", "--dataset.val_episodes=1"} + options));
    return out("out").string();
  }
  nlohmann::json evaluate(int ranks, const Words& options) {
    run(ranks, Words{"eval"} + options + Words{"--device=cpu", "--json=" + out("errors.json").string()});
    std::ifstream file(out("errors.json"));
    return nlohmann::json::parse(file);
  }
  const std::filesystem::path socket() const { return out("policy.sock"); }
  std::unique_ptr<Launched> serve(const Words& options) {
    return std::make_unique<Launched>(Words{worker_path(), "serve", "--device=cpu"} + options,
                                      Launched::Options{.environment = {"OMP_NUM_THREADS=1", "RANK", "WORLD_SIZE"}});
  }
};

std::string python_with_numpy() {
  const char* home = std::getenv("HOME");
  for (const std::string& python : {std::string("python3"), std::string(home ? home : "") + "/.cache/cxxrun/reference/bin/python"}) {
    if (Launched(Words{"sh", "-c", python + " -c 'import numpy'"}).wait() == 0) return python;
  }
  return "";
}

// Row `row` of what eval stored, as a client would send it: of policies that see several steps, the last one.
Observation stored_observation(const TensorMap& stored, int64_t row, const std::string& task) {
  Observation observation{.values = {}, .task = task};
  for (const auto& [key, values] : stored) {
    if (key == "action" || key == "task") continue;
    const int64_t dimensions = values.scalar_type() == torch::kByte ? 3 : 1;
    at::Tensor value = values[row];
    if (value.dim() > dimensions) value = value[-1];
    observation.values[key] = value.contiguous();
  }
  return observation;
}

TEST_F(Inference, EveryPolicyServesTheActionsOfEval) {
  const std::string dataset = "synthetic:frames=16,state=4,action=3,episodes=2,image=48x64";
  const Words diffusion = {"--policy.horizon=8", "--policy.n_action_steps=4", "--policy.down_dims=[16, 32]", "--policy.n_groups=4",
                           "--policy.num_inference_steps=3"};
  const std::map<std::string, Words> small = {
      {"act", {"--policy.chunk_size=4", "--policy.n_action_steps=4", "--policy.dim_model=32", "--policy.n_heads=2"}},
      {"diffusion", diffusion},
      {"diffusion_policy", diffusion},
      {"smolvla", {"--policy.vlm_model_name=" PROJECT_DIR "/tests/data/tiny_smolvlm", "--policy.resize_imgs_with_padding=[64, 64]",
                   "--policy.num_vlm_layers=2"}},
  };
  const std::string task = data::open_dataset({.root = dataset, .episodes = {}})->tasks().at(0);
  for (const PolicyEntry& entry : policy_registry()) {
    SCOPED_TRACE(entry.name);
    const std::string trained = out(entry.name).string();
    const auto options = small.find(entry.name);
    run(0, Words{std::string("--policy.type=") + entry.name, "--dataset.root=" + dataset, "--device=cpu", "--training.steps=1",
                 "--training.batch_size=2", "--output_dir=" + trained} + (options == small.end() ? Words() : options->second));
    run(0, {"eval", trained, "--device=cpu", "--actions_frames=3", "--actions_file=" + out("actions").string()});
    const TensorMap stored = load_safetensors(out("actions"));
    const auto server = serve({"--checkpoint", trained, "--socket", socket().string()});
    ASSERT_TRUE(server->waits_for("listening on")) << server->err();
    TestClient client(socket());
    for (int64_t row = 0; row < 3; ++row) {
      const Reply reply = client.ask(request("predict", stored_observation(stored, row, task)));
      ASSERT_EQ(reply.error(), "none");
      const double scale = std::max(1.0, stored.at("action").abs().max().item<double>());
      EXPECT_LE((reply.actions() - stored.at("action")[row]).abs().max().item<double>(), 1e-4 * scale) << row;
    }
    server->send(SIGTERM);
    EXPECT_EQ(server->wait(), 0) << server->err();
  }
}

TEST_F(Inference, TwoClientsGetTheSameActionsAndLatenciesAreReported) {
  const std::string trained = checkpoint();
  run(0, {"eval", trained, "--device=cpu", "--actions_file=" + out("actions").string()});
  const TensorMap stored = load_safetensors(out("actions"));
  const auto server = serve({"--checkpoint", trained, "--socket", socket().string(), "--report_every=3"});
  ASSERT_TRUE(server->waits_for("listening on " + socket().string())) << server->err();
  TestClient first(socket()), second(socket());
  for (int64_t row = 0; row < 4; ++row) {
    for (TestClient* client : {&first, &second}) {
      const Reply reply = client->ask(request("predict", stored_observation(stored, row, "")));
      ASSERT_EQ(reply.error(), "none");
      // One row at a time instead of a batch: another order of sums.
      EXPECT_LE((reply.actions() - stored.at("action")[row]).abs().max().item<double>(), 1e-5);
    }
  }
  EXPECT_TRUE(server->waits_for("6 predictions: p50"));
  server->send(SIGTERM);
  EXPECT_EQ(server->wait(), 0) << server->err();
  EXPECT_THAT(server->out(), HasSubstr("asked to stop after 8 predictions: p50"));
  EXPECT_FALSE(std::filesystem::exists(socket()));
}

TEST_F(Inference, ServeOnAPortSurvivesRudeClientsAndEndsOnInterrupt) {
  const auto server = serve({"--checkpoint", checkpoint(), "--port=0"});
  ASSERT_TRUE(server->waits_for("listening on 127.0.0.1:")) << server->err();
  const std::string out = server->out();
  const int port = std::stoi(out.substr(out.find("127.0.0.1:") + 10));
  TestClient(port).send("garbage that is long enough");
  TestClient(port).send(encode_message({{"op", "info"}}));  // and does not wait for the reply
  TestClient open(port);
  EXPECT_EQ(open.ask(encode_message({{"op", "info"}})).header.at("policy"), "act");
  server->send(SIGINT);
  EXPECT_EQ(server->wait(), 0) << server->err();
}

TEST_F(Inference, ServeNamesWhatItNeeds) {
  EXPECT_THAT(run(0, {"serve", "--socket=/tmp/x"}, 2).err(), HasSubstr("--checkpoint"));
  EXPECT_THAT(run(0, {"serve", "--checkpoint=/no/such", "--port=0"}, 2).err(), HasSubstr("/no/such"));
  EXPECT_THAT(run(0, {"serve", "--checkpoint=/no/such"}, 2).err(), HasSubstr("--socket PATH or --port N"));
  EXPECT_THAT(run(0, {"serve", "--help"}).out(), HasSubstr("--image_size"));
  const std::string trained = checkpoint();
  EXPECT_THAT(run(0, {"serve", "--checkpoint=" + trained, "--port=0", "--ema"}, 2).err(), HasSubstr("ema.enable"));
}

TEST_F(Inference, EvalGivesTheErrorOfEveryDimension) {
  const std::string trained = checkpoint();
  const auto json = evaluate(0, {trained});
  ASSERT_EQ(json.at("dimensions").size(), 3u);
  EXPECT_EQ(json.at("policy"), "act");
  EXPECT_GT(json.at("frames"), 0);
  for (const char* key : {"error", "mean_action_error"}) {
    double sum = 0;
    for (const auto& dimension : json.at("dimensions")) sum += dimension.at(key).get<double>();
    EXPECT_NEAR(sum / 3, json.at(key).get<double>(), 1e-9) << key;
  }
  for (const auto& dimension : json.at("dimensions")) EXPECT_GE(dimension.at("rmse"), dimension.at("error"));
  const auto two_ranks = evaluate(2, {"--checkpoint", trained});
  EXPECT_EQ(two_ranks.at("frames"), json.at("frames"));
  EXPECT_NEAR(two_ranks.at("rmse").get<double>(), json.at("rmse").get<double>(), 1e-6);
  const std::string printed = run(0, {"eval", trained, "--device=cpu", "--json=-"}).out();
  EXPECT_THAT(printed, AllOf(HasSubstr("dimension"), HasSubstr("mean action RMSE")));
  EXPECT_EQ(nlohmann::json::parse(printed.substr(printed.rfind('\n', printed.size() - 2) + 1)), json);
}

TEST_F(Inference, EvalTakesAnotherDatasetAndTheAveragedWeights) {
  const std::string trained = checkpoint({"--ema.enable"});
  const std::string other = "synthetic:frames=20,state=4,action=3,episodes=2,image=32x32";
  EXPECT_EQ(evaluate(0, {"--checkpoint", trained, "--dataset", other}).at("frames"), 20);
  const auto model = evaluate(0, {trained, "--dataset", other}), averaged = evaluate(0, {trained, "--dataset", other, "--ema"});
  EXPECT_THAT(averaged.at("checkpoint"), HasSubstr("pretrained_model_ema"));
  EXPECT_NE(model.at("loss"), averaged.at("loss"));
}

TEST_F(Inference, EvalTakesTheDimensionsNamesFromTheDataset) {
  const std::string demo = TEST_DATA_DIR "/lerobot_png";
  run(0, {"--policy.type=linear", "--dataset.root=" + demo, "--training.steps=1", "--training.batch_size=2", "--device=cpu",
          "--output_dir=" + out("out").string()});
  const auto json = evaluate(0, {out("out").string(), "--dataset", demo, "--dataset.episodes=[0]"});
  EXPECT_EQ(json.at("dimensions").at(0).at("name"), "dx");
}

// An environment whose episodes succeed at step 5 for even seeds, and that checks what the policy is given.
constexpr char kToyEnvironment[] = R"(
import numpy as np
class Toy:
    task_description = "push the toy"
    max_episode_steps = 7
    def __init__(self, task, keys):
        assert task == "toy-v1" and keys == 2
    def _observation(self):
        return {"pixels": np.full((64, 48, 3), self.steps, np.uint8), "agent_pos": np.zeros(4), "extra": np.zeros(1)}
    def reset(self, seed):
        self.seed, self.steps = seed, 0
        return self._observation(), {}
    def step(self, action):
        assert action.shape == (3,) and action.dtype == np.float32
        self.steps += 1
        done = self.steps == 5 and self.seed % 2 == 0
        return self._observation(), 0.5, done, False, {"is_success": done}
)";

TEST_F(Inference, SimulatorsEpisodesAreCountedWithTheServerInTheLoop) {
  const std::string python = python_with_numpy();
  if (python.empty()) GTEST_SKIP() << "no Python here has NumPy";
  std::ofstream(out("toy.py")) << kToyEnvironment;
  const std::string trained = checkpoint();
  Launched sim(Words{"/usr/bin/env", "PYTHONPATH=" + folder.path().string(), python, PROJECT_DIR "/scripts/eval_sim.py", "--checkpoint", trained,
                     "--env", "toy:Toy", "--env-args", R"({"keys": 2})", "--task", "toy-v1", "--episodes", "3", "--worker", worker_path(), "--device", "cpu",
                     "--json", out("sim.json").string()});
  ASSERT_EQ(sim.wait(), 0) << sim.err() << sim.out();
  EXPECT_THAT(sim.out(), AllOf(HasSubstr("episode 1: seed 1001, failure after 7 steps, reward 3.500"), HasSubstr("toy-v1: 2 of 3 episodes succeeded")));
  std::ifstream file(out("sim.json"));
  const auto json = nlohmann::json::parse(file);
  EXPECT_EQ(json.at("episodes").at(2), (nlohmann::json{{"seed", 1002}, {"success", true}, {"steps", 5}, {"reward", 2.5}}));
  Launched wrong(Words{"/usr/bin/env", "PYTHONPATH=" + folder.path().string(), python, PROJECT_DIR "/scripts/eval_sim.py", "--checkpoint", trained,
                       "--env", "toy:Toy", "--env-args", R"({"keys": 2})", "--task", "toy-v1", "--worker", worker_path(), "--device", "cpu",
                       "--rename", "observation.state=observation.hand"});
  EXPECT_EQ(wrong.wait(), 1);
  EXPECT_THAT(wrong.err(), HasSubstr("the policy needs observation.state"));
}

TEST_F(Inference, PythonClientSpeaksTheProtocol) {
  const std::string python = python_with_numpy();
  if (python.empty()) GTEST_SKIP() << "no Python here has NumPy";
  const auto server = serve({"--checkpoint", checkpoint(), "--socket", socket().string()});
  ASSERT_TRUE(server->waits_for("listening on")) << server->err();
  const std::string script = R"(
import sys; sys.path.insert(0, sys.argv[1])
import numpy as np
from policy_client import PolicyClient, PolicyError
with PolicyClient(sys.argv[2]) as policy:
    inputs = {f["key"]: np.zeros(f["shape"], f["dtype"]) for f in policy.info()["inputs"]}
    policy.observe(inputs)
    actions, latency = policy.predict(inputs, task="push", reset=True)
    assert actions.shape == (4, 3) and actions.dtype == np.float32 and latency > 0
    try:
        policy.predict({**inputs, "observation.state": np.zeros(7)})
    except PolicyError as error:
        print("refused:", error)
)";
  Launched client(Words{"/usr/bin/env", python, "-c", script, PROJECT_DIR "/scripts", socket().string()});
  EXPECT_EQ(client.wait(), 0) << client.err();
  EXPECT_THAT(client.out(), HasSubstr("refused: 'observation.state' is Float [7] instead of Float [4]"));
}

}  // namespace
}  // namespace vla
