#include "worker/checkpoint/training_state.hpp"

#include <cmath>

#include "common/error.hpp"
#include "worker/checkpoint/json_file.hpp"
#include "worker/checkpoint/lerobot_state.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using cxxrun::Error;
using json = nlohmann::ordered_json;

constexpr int kFormatVersion = 1;
constexpr char kStateFile[] = "training_state/training_state.json";
constexpr char kOptimizer[] = "optimizer";

std::string tensor_file(const std::string& name) { return "training_state/" + name + ".safetensors"; }

// JSON has no infinity, and the best loss of a schedule starts there.
json number_as_json(double value) { return std::isfinite(value) ? json(value) : json(fmt::format("{}", value)); }

double number_from_json(const json& value) {
  if (value == "inf") return INFINITY;
  if (value == "-inf") return -INFINITY;
  if (value == "nan" || value == "-nan") return NAN;
  return value.get<double>();
}

}  // namespace

void add_training_state(CheckpointFiles& files, const TrainingState& state) {
  json object = {{"format_version", kFormatVersion},
                 {"step", state.step},
                 {"consumed_samples", state.consumed_samples},
                 {"seed", state.seed},
                 {"global_batch", state.global_batch},
                 {"world_size", state.world_size},
                 {"schedule_steps", state.schedule_steps},
                 {"config_hash", state.config_hash},
                 {"data_fingerprint", state.data_fingerprint}};
  if (state.best) object["best"] = {{"step", state.best->step}, {"loss", number_as_json(state.best->loss)}};
  for (const auto& [name, value] : state.numbers) object["numbers"][name] = number_as_json(value);
  files.texts[kStateFile] = object.dump(2);
}

void add_optimizer_state(CheckpointFiles& files, const TensorMap& state) { add_tensor_state(files, kOptimizer, state); }

void add_tensor_state(CheckpointFiles& files, const std::string& name, const TensorMap& state) {
  files.tensors[tensor_file(name)] = state;
}

TrainingState read_training_state(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kStateFile;
  if (!fs::exists(path) && is_lerobot_state(checkpoint)) return read_lerobot_state(checkpoint);
  try {
    const json object = read_json_object(path);
    const int version = object.at("format_version");
    if (version > kFormatVersion) {
      throw Error("{} has format {}, this program reads formats up to {}: use a newer vla_worker", path.string(),
                  version, kFormatVersion);
    }
    TrainingState state{.step = object.at("step"),
                        .consumed_samples = object.at("consumed_samples"),
                        .seed = object.at("seed"),
                        .global_batch = object.at("global_batch"),
                        .world_size = object.at("world_size"),
                        .schedule_steps = object.at("schedule_steps"),
                        .config_hash = object.at("config_hash"),
                        .data_fingerprint = object.value("data_fingerprint", "")};
    if (object.contains("best")) {
      state.best = BestCheckpoint{object["best"].at("step"), number_from_json(object["best"].at("loss"))};
    }
    if (object.contains("numbers")) {
      for (const auto& [name, value] : object["numbers"].items()) state.numbers[name] = number_from_json(value);
    }
    if (state.step < 0 || state.global_batch <= 0) {
      throw Error("{}: step {} or global_batch {} is impossible", path.string(), state.step, state.global_batch);
    }
    return state;
  } catch (const json::exception& e) {
    throw Error("{} is not a training state: {}", path.string(), e.what());
  }
}

TensorMap read_optimizer_state(const fs::path& checkpoint, Policy& policy) {
  const fs::path path = checkpoint / tensor_file(kOptimizer);
  if (!fs::exists(path) && is_lerobot_state(checkpoint)) return read_lerobot_optimizer(checkpoint, policy);
  return load_safetensors(path);
}

std::optional<TensorMap> read_tensor_state(const fs::path& checkpoint, const std::string& name) {
  const fs::path path = checkpoint / tensor_file(name);
  if (!fs::exists(path)) return std::nullopt;
  return load_safetensors(path);
}

}  // namespace vla
