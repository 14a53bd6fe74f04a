#include "worker/loggers/options.hpp"

#include <algorithm>

#include "common/error.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;

fs::path file_in(const fs::path& output_dir, const char* option, const fs::path& name) {
  if (name.empty() || name != name.filename() || name == "." || name == "..") {
    throw cxxrun::UsageError("{}='{}' is not the name of a file in the output folder", option, name.string());
  }
  return output_dir / name;
}

}  // namespace

void WandbOptions::describe(cxxrun::OptionTable& table) {
  table.add("enable", enable, "send metrics to Weights & Biases: the same as the sink wandb");
  table.add("project", project, "project of the run; empty = WANDB_PROJECT, or vla_worker");
  table.add("entity", entity, "user or team; empty = WANDB_ENTITY, or the account's own");
  table.add("name", name, "name of the run; empty = WANDB_NAME, or the output folder's name");
  table.add("id", id, "id of the run; empty = WANDB_RUN_ID, or a new one, which wandb_id.txt in the output folder keeps");
  table
      .add("mode", mode,
           "auto = WANDB_MODE, or online where there is a key (WANDB_API_KEY or ~/.netrc) and offline elsewhere; what is "
           "kept offline is sent later by `wandb sync`")
      .one_of({"auto", "online", "offline", "disabled"});
  table.add("tags", tags, "tags of the run");
  table.add("notes", notes, "a description of the run");
  table.add("resume", resume, "what a continued training does with the run of its id: go on, insist on it, or refuse")
      .one_of({"allow", "must", "never"});
  table.add("python", python, "Python program that has the wandb package: a name in PATH, or a path");
}

void LoggingOptions::describe(cxxrun::OptionTable& table) {
  table.add("sinks", sinks, "where metrics go: a line on the terminal and in the log file, metrics.jsonl, event files for TensorBoard, W&B")
      .one_of({"console", "jsonl", "tensorboard", "wandb"});
  table
      .add("progress", progress,
           "a bar that is drawn again in place, or plain lines; auto = a bar on a terminal")
      .one_of({"auto", "bar", "lines"});
  table.add("log_file", log_file, "name of the text log in the output folder");
  table.add("jsonl_name", jsonl_name, "name of the sink jsonl's file in the output folder");
  table.add("sample_ids", sample_ids, "put the ids of the samples of every logged step into the sink jsonl");
  table.add("gpu_stats", gpu_stats, "ask the driver for the GPU's utilisation, memory and power at every logged step");
  table.add("timing", timing, "after the first step, a table of what the start took").transient();
  table
      .add("profile_steps", profile_steps,
           "record so many steps in a Chrome trace, output_dir/profile/rankN.json of every rank, once graphs are captured")
      .at_least(0)
      .at_most(1000)
      .in("steps")
      .transient();
  table.section("wandb", wandb);
}

std::vector<std::string> LoggingOptions::sinks_in_use() const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (name == "wandb" && wandb.mode == "disabled") return;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const std::string& name : sinks) add(name);
  if (wandb.enable) add("wandb");
  return names;
}

fs::path LoggingOptions::log_path(const fs::path& output_dir) const { return file_in(output_dir, "logging.log_file", log_file); }
fs::path LoggingOptions::jsonl_path(const fs::path& output_dir) const { return file_in(output_dir, "logging.jsonl_name", jsonl_name); }

}  // namespace vla
