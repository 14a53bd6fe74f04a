#include "worker/checkpoint/lerobot_state.hpp"

#include <fmt/ranges.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "worker/checkpoint/json_file.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using cxxrun::Error;
using cxxrun::Setting;
using json = nlohmann::ordered_json;

constexpr char kStepFile[] = "training_state/training_step.json";
constexpr char kTensorsFile[] = "training_state/optimizer_state.safetensors";
constexpr char kGroupsFile[] = "training_state/optimizer_param_groups.json";
constexpr char kTrainConfigFile[] = "pretrained_model/train_config.json";

// `key` as an integer in [least, 2^53], or `otherwise` where it is absent or null.
int64_t integer(const json& object, const char* key, int64_t least, int64_t otherwise, const fs::path& path) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  if (!found->is_number_integer() || found->get<int64_t>() < least || found->get<int64_t>() > int64_t{1} << 53) {
    throw Error("{}: '{}' is {}, not an integer from {} on", path.string(), key, found->dump(), least);
  }
  return found->get<int64_t>();
}

struct SavedStep {
  int64_t step = 0, ranks = 1, batch = 0;  // batch of each rank; 0 = older than LeRobot 0.6
};

SavedStep read_step(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kStepFile;
  const json object = read_json_object(path);
  const int64_t ranks = integer(object, "num_processes", 1, integer(object, "dp_world_size", 1, 1, path), path);
  const int64_t batch = integer(object, "batch_size", 1, 0, path) * integer(object, "grad_accum_steps", 1, 1, path);
  const SavedStep saved{integer(object, "step", 0, -1, path), ranks, batch};
  if (saved.step < 0) throw Error("{}: 'step' is missing", path.string());
  return saved;
}

// The name of each of LeRobot's parameter numbers.
std::vector<std::pair<std::string, torch::Tensor>> parameters_in_order(Policy& policy, const json& groups, const fs::path& path) {
  size_t count = 0;
  for (const json& group : groups) count += group.at("params").size();
  std::vector<std::pair<std::string, torch::Tensor>> trainable, all;
  for (const ParameterGroup& group : policy.parameter_groups())
    trainable.insert(trainable.end(), group.parameters.begin(), group.parameters.end());
  for (const auto& item : policy.named_parameters()) all.emplace_back(item.key(), item.value());
  if (count == trainable.size()) return trainable;
  if (count == all.size()) return all;
  throw Error("{} numbers {} parameters, but the policy has {}, {} of them trainable", path.string(), count, all.size(), trainable.size());
}

template <class Add>
void add_scalars(const json& object, const char* section, std::initializer_list<const char*> keys, const Add& add) {
  if (!object.contains(section) || !object[section].is_object()) return;
  for (const char* key : keys) add(object[section], key, fmt::format("{}.{}", section, key));
}

}  // namespace

bool is_lerobot_state(const fs::path& checkpoint) { return fs::exists(checkpoint / kStepFile); }

TrainingState read_lerobot_state(const fs::path& checkpoint) {
  const SavedStep saved = read_step(checkpoint);
  TrainingState state{.step = saved.step, .global_batch = saved.ranks * saved.batch, .world_size = saved.ranks, .by_lerobot = true};
  state.consumed_samples = state.step * state.global_batch;
  const fs::path path = checkpoint / kTrainConfigFile;
  if (fs::exists(path)) {
    const json config = read_json_object(path);
    state.seed = integer(config, "seed", 0, 0, path);
    state.schedule_steps = integer(config, "steps", 0, 0, path);
  }
  return state;
}

TensorMap read_lerobot_optimizer(const fs::path& checkpoint, Policy& policy) {
  const fs::path path = checkpoint / kTensorsFile;
  TensorMap stored = load_safetensors(path);
  TensorMap state;
  try {
    const auto parameters = parameters_in_order(policy, read_json_list(checkpoint / kGroupsFile), checkpoint / kGroupsFile);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& [name, parameter] = parameters[i];
      if (!parameter.requires_grad()) continue;
      for (const char* what : {"exp_avg", "exp_avg_sq", "step"}) {
        const bool is_step = std::string_view(what) == "step";
        auto tensor = stored.extract(fmt::format("state/{}/{}", i, what));
        at::Tensor& own = state[fmt::format("{}.{}", name, what)];
        own = tensor ? tensor.mapped() : torch::zeros(is_step ? at::IntArrayRef{} : parameter.sizes());
        if (!is_step && own.sizes() != parameter.sizes()) {
          throw Error("{}: state/{}/{} has shape [{}], but parameter {}, {}, has [{}]", path.string(), i, what, fmt::join(own.sizes(), ", "), i,
                      name, fmt::join(parameter.sizes(), ", "));
        }
      }
    }
  } catch (const json::exception& e) {
    throw Error("{} is no list of groups with params: {}", (checkpoint / kGroupsFile).string(), e.what());
  }
  if (!stored.empty()) throw Error("{}: '{}' belongs to no trainable parameter of the policy", path.string(), stored.begin()->first);
  return state;
}

std::vector<Setting> read_lerobot_settings(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kTrainConfigFile;
  const json config = read_json_object(path);
  std::vector<Setting> settings;
  const auto add = [&](const std::string& name, const json& value) {
    if (value.is_null() || value.is_object()) return;
    const auto text = [](const json& scalar) { return scalar.is_string() ? scalar.get<std::string>() : scalar.dump(); };
    Setting setting{.name = name, .source = path.string()};
    if (value.is_array()) {
      setting.kind = Setting::Kind::kList;
      for (const json& item : value) setting.items.push_back(text(item));
    } else {
      setting.items = {text(value)};
    }
    settings.push_back(std::move(setting));
  };
  const auto add_key = [&](const json& object, const char* key, const std::string& name) {
    if (object.contains(key)) add(name, object[key]);
  };
  for (const char* key : {"seed", "steps", "log_freq", "save_freq", "tolerance_s"}) add_key(config, key, key);
  const SavedStep saved = read_step(checkpoint);
  const int64_t batch = saved.batch > 0 ? saved.batch : integer(config, "batch_size", 1, 8, path);
  add("batch_size", batch * saved.ranks);
  add_scalars(config, "dataset", {"root", "repo_id", "episodes", "use_imagenet_stats", "eval_split"}, add_key);
  add_scalars(config, "optimizer", {"type", "lr", "eps", "weight_decay", "grad_clip_norm"}, add_key);
  if (config.contains("optimizer") && config["optimizer"].is_object() && config["optimizer"].value("betas", json()).size() == 2) {
    add("optimizer.beta1", config["optimizer"]["betas"][0]);
    add("optimizer.beta2", config["optimizer"]["betas"][1]);
  }
  add_scalars(config, "scheduler", {"num_warmup_steps", "num_decay_steps", "decay_lr"}, add_key);
  if (config.contains("scheduler") && config["scheduler"].is_object()) {
    const json type = config["scheduler"].value("type", json());
    add("scheduler.type", type == "diffuser" ? config["scheduler"].value("name", json()) : type);
  }
  return settings;
}

}  // namespace vla
