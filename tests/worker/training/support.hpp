// Runs vla_worker, alone or with ranks, on a small ACT with dropout and VAE, and reads what it left.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "tests/support/launched.hpp"
#include "worker/checkpoint/safetensors.hpp"

namespace vla {

using Words = std::vector<std::string>;

inline Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

inline std::string worker_path() { return cxxrun::testing::program_path("vla_worker"); }

// `ranks` = 0: vla_worker itself, without a launcher.
inline Words worker(int ranks, const Words& options) {
  if (ranks == 0) return Words{worker_path()} + options;
  return Words{cxxrun::testing::cxxrun_path(), fmt::format("--nproc_per_node={}", ranks), "--shutdown-timeout=10", worker_path()} + options;
}

// 61 frames in batches of 8: an epoch ends with a short batch of 5, and 20 steps see three epochs. In reference mode, whose dropout does not
// depend on the ranks, on GPUs too.
inline Words small_act(const std::filesystem::path& output_dir, const Words& options = {}) {
  return Words{"--policy.type=act", "--dataset.root=synthetic:frames=61,state=4,action=3,episodes=4,image=32x32", "--policy.chunk_size=4",
               "--policy.n_action_steps=4", "--policy.dim_model=32", "--policy.n_heads=2", "--policy.dim_feedforward=48",
               "--policy.n_encoder_layers=1", "--policy.n_vae_encoder_layers=1", "--policy.latent_dim=4", "--policy.dropout=0.1",
               "--policy.optimizer_lr_backbone=1e-3", "--optimizer.lr=1e-3", "--training.batch_size=8", "--training.steps=20",
               "--training.log_freq=1", "--training.save_freq=0", "--training.num_workers=1", "--speed.mode=reference", cxxrun::testing::device_option(),
               "--output_dir=" + output_dir.string()} + options;
}

// Runs to the end; the test fails if the exit code is another.
inline cxxrun::testing::Launched& run(std::vector<std::unique_ptr<cxxrun::testing::Launched>>& keep, const Words& command, int exit_code = 0) {
  keep.push_back(std::make_unique<cxxrun::testing::Launched>(
      command, cxxrun::testing::Launched::Options{.environment = {"OMP_NUM_THREADS=1", "TORCHELASTIC_ERROR_FILE", "RANK", "WORLD_SIZE"},
                                                  .patience = std::chrono::seconds(120)}));
  EXPECT_EQ(keep.back()->wait(), exit_code) << keep.back()->err() << keep.back()->out();
  return *keep.back();
}

inline TensorMap weights(const std::filesystem::path& output_dir, const std::string& checkpoint = "last") {
  return load_safetensors(output_dir / "checkpoints" / checkpoint / "pretrained_model" / "model.safetensors");
}

inline TensorMap averaged_weights(const std::filesystem::path& output_dir) {
  return load_safetensors(output_dir / "checkpoints" / "last" / "pretrained_model_ema" / "model.safetensors");
}

inline double largest_difference(const TensorMap& left, const TensorMap& right) {
  EXPECT_EQ(left.size(), right.size());
  double largest = 0;
  for (const auto& [name, tensor] : left) largest = std::max(largest, (tensor - right.at(name)).abs().max().item<double>());
  return largest;
}

inline std::vector<nlohmann::json> metrics(const std::filesystem::path& output_dir) {
  std::ifstream file(output_dir / "metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

struct TrainingTest : testing::Test {
  cxxrun::TempDir folder;
  std::vector<std::unique_ptr<cxxrun::testing::Launched>> keep;

  std::filesystem::path out(const std::string& name) const { return folder.path() / name; }
  cxxrun::testing::Launched& run(int ranks, const Words& options, int exit_code = 0) { return vla::run(keep, worker(ranks, options), exit_code); }
};

}  // namespace vla
