// Options of what training tells and where: the "logging" section. No Torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/option_table.hpp"

namespace vla {

struct WandbOptions {
  bool enable = false;
  std::string project;
  std::string entity;
  std::string name;
  std::string id;
  std::string mode = "auto";
  std::vector<std::string> tags;
  std::string notes;
  std::string resume = "allow";
  std::string python = "python3";

  void describe(cxxrun::OptionTable& table);
};

struct LoggingOptions {
  std::vector<std::string> sinks = {"console", "jsonl"};
  std::string progress = "auto";
  std::string log_file = "train.log";
  std::string jsonl_name = "metrics.jsonl";
  bool sample_ids = false;
  bool gpu_stats = true;
  bool timing = false;
  int64_t profile_steps = 0;
  WandbOptions wandb;

  void describe(cxxrun::OptionTable& table);

  // `sinks`, and wandb if it is enabled on its own; without it where its mode is disabled. No name twice.
  std::vector<std::string> sinks_in_use() const;

  // UsageError unless the option is the plain name of a file.
  std::filesystem::path log_path(const std::filesystem::path& output_dir) const;
  std::filesystem::path jsonl_path(const std::filesystem::path& output_dir) const;
};

}  // namespace vla
