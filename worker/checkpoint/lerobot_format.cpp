#include "worker/checkpoint/lerobot_format.hpp"

#include <set>

#include <fmt/ranges.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/option_parse.hpp"
#include "common/registry.hpp"
#include "worker/checkpoint/json_file.hpp"
#include "worker/policies/normalizer.hpp"

namespace vla {
namespace {

using cxxrun::Error;
using json = nlohmann::ordered_json;  // the order of features is the order in which a policy sees them

struct FeatureTypeRow {
  const char* name;
  data::FeatureType type;
};
constexpr FeatureTypeRow kFeatureTypes[] = {{"VISUAL", data::FeatureType::kVisual},
                                            {"STATE", data::FeatureType::kState},
                                            {"ENV", data::FeatureType::kEnvironment},
                                            {"ACTION", data::FeatureType::kAction}};

const char* name_of(data::FeatureType type) {
  for (const FeatureTypeRow& row : kFeatureTypes) {
    if (row.type == type) return row.name;
  }
  throw Error("a feature of this type cannot be stored in config.json");
}

json features_as_json(const std::vector<PolicyFeature>& features) {
  json object = json::object();
  for (const PolicyFeature& feature : features)
    object[feature.key] = {{"type", name_of(feature.type)}, {"shape", feature.shape}};
  return object;
}

// Lists without items and numbers that stand for a word are null: not set.
struct ValueAsJson {
  const cxxrun::OptionRow& row;
  json operator()(const auto* value) const { return *value; }
  json operator()(const int64_t* value) const { return !row.word.empty() && *value == row.word_value ? json() : json(*value); }
  template <class T>
  json operator()(const std::vector<T>* value) const {
    return value->empty() ? json() : json(*value);
  }
};

json as_json(const cxxrun::OptionTable& table) {
  json object = json::object();
  for (const cxxrun::OptionRow& row : table.rows()) {
    if (row.is_path || row.is_transient) continue;
    json* place = &object;
    size_t begin = 0;
    for (size_t dot; (dot = row.name.find('.', begin)) != std::string::npos; begin = dot + 1)
      place = &(*place)[row.name.substr(begin, dot - begin)];
    (*place)[row.name.substr(begin)] = std::visit(ValueAsJson{row}, row.value);
  }
  return object;
}

// Keys that LeRobot's configuration of a policy needs beside the policy's options, because its own default will not do.
json extra_keys(const std::string& type) {
  if (type == "act" || type == "diffusion")
    return {{"pretrained_backbone_weights", nullptr}};  // else LeRobot downloads ImageNet weights first
  return json::object();
}

// Keys that are written anew, whatever was read.
const std::set<std::string_view> kWrittenKeys = {"type", "device", "input_features", "output_features", "pretrained_backbone_weights"};

// Keys of LeRobot's that our training has no use for. The option lerobot_keys carries them into the checkpoints made from this one.
const std::set<std::string_view> kKeptKeys = {"use_amp", "use_peft", "push_to_hub", "repo_id", "private", "tags", "license", "pretrained_path",
                                              "pretrained_revision", "rtc_config", "compile_model", "compile_mode", "temporal_ensemble_coeff"};
constexpr char kKeysOption[] = "lerobot_keys";
constexpr size_t kMostShown = 80;  // bytes of an unknown value in a message

// Options that LeRobot's configurations lack: it refuses files that have them. A resumed training finds them in its own.
constexpr const char* kOwnKeys[] = {"loss_version", "vlm_dtype", kKeysOption};

std::string* kept_keys(cxxrun::OptionTable& table) {
  cxxrun::OptionRow* row = table.find(kKeysOption);
  return row ? std::get<std::string*>(row->value) : nullptr;
}

void add_kept_keys(json& config, const std::string& text) {
  const json kept = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!kept.is_object()) {
    cxxrun::log_warning("policy.{} = {} is left out of config.json: not a JSON object", kKeysOption, text);
    return;
  }
  for (const auto& [key, value] : kept.items()) {
    if (kKeptKeys.contains(key)) config[key] = value;
  }
}

json step(const char* registry_name, json config) {
  return {{"registry_name", registry_name}, {"config", std::move(config)}};
}

// What happens to a task before the policy sees it.
std::vector<json> text_steps(const PolicyOptions& options) {
  const auto text = options.text_processor();
  if (!text) return {};
  return {step(text->new_line_step.c_str(), json::object()),
          step("tokenizer_processor", {{"max_length", text->max_length},
                                       {"task_key", "task"},
                                       {"padding_side", "right"},
                                       {"padding", text->padding},
                                       {"truncation", true},
                                       {"tokenizer_name", text->tokenizer}})};
}

// Adds a pipeline whose step number `index` normalizes with `stats`.
void add_processor(CheckpointFiles& files, const std::string& folder, const std::string& name, std::vector<json> steps,
                   size_t index, const TensorMap& stats) {
  const std::string state_file =
      fmt::format("{}_step_{}_{}.safetensors", name, index, steps[index]["registry_name"].get<std::string>());
  steps[index]["state_file"] = state_file;
  files.tensors[folder + state_file] = stats;
  files.texts[folder + name + ".json"] = json({{"name", name}, {"steps", steps}}).dump(2);
}

std::vector<PolicyFeature> read_features(const json& config, const char* key, const std::string& path) {
  std::vector<PolicyFeature> features;
  try {
    for (const auto& [name, value] : config.at(key).items()) {
      const auto type = value.at("type").get<std::string>();
      const FeatureTypeRow& row = cxxrun::find_in_registry(kFeatureTypes, type, "feature type");
      features.push_back({name, row.type, value.at("shape").get<std::vector<int64_t>>()});
      for (const int64_t size : features.back().shape) {
        if (size < 1) throw Error("'{}' has a size of {}", name, size);
      }
    }
  } catch (const std::exception& e) {
    throw Error("{}: '{}' is not a list of features with type and shape: {}", path, key, e.what());
  }
  return features;
}

cxxrun::Setting as_setting(const std::string& name, const json& value, const std::string& source) {
  using Kind = cxxrun::Setting::Kind;
  const auto text = [](const json& scalar) { return scalar.is_string() ? scalar.get<std::string>() : scalar.dump(); };
  cxxrun::Setting setting{.name = name, .kind = value.is_array() ? Kind::kList : Kind::kScalar, .source = source};
  if (value.is_array()) {
    for (const json& item : value) setting.items.push_back(text(item));
  } else {
    setting.items.push_back(text(value));
  }
  return setting;
}

bool is_vector(const auto*) { return false; }
template <class T>
bool is_vector(const std::vector<T>*) {
  return true;
}

// null is "not set", as ValueAsJson writes it; of other options LeRobot refuses it too.
cxxrun::Setting null_setting(const cxxrun::OptionRow& row, const std::string& source) {
  const bool is_list = std::visit([](auto* value) { return is_vector(value); }, row.value);
  if (is_list) return {.name = row.name, .kind = cxxrun::Setting::Kind::kList, .source = source};
  if (!row.word.empty()) return {.name = row.name, .items = {row.word}, .source = source};
  throw cxxrun::UsageError("{}: {} = null is no value for it: leave the key out for the default", source, row.name);
}

// Sets the options that `object` names, adds LeRobot's other keys to `kept` and collects those that nobody knows.
void apply(cxxrun::OptionTable& table, const json& object, const std::string& prefix, const std::string& source, json& kept,
           std::vector<std::string>& unknown) {
  std::vector<std::string_view> names(kKeptKeys.begin(), kKeptKeys.end());
  for (const cxxrun::OptionRow& row : table.rows()) names.push_back(row.name);
  for (const auto& [key, value] : object.items()) {
    const std::string name = prefix + key;
    const cxxrun::OptionRow* row = table.find(name);
    if (kWrittenKeys.contains(name)) continue;
    if (kKeptKeys.contains(name)) {
      kept[name] = value;
    } else if (row != nullptr && !row->is_transient && name != kKeysOption) {
      cxxrun::apply_setting(table, value.is_null() ? null_setting(*row, source) : as_setting(name, value, source));
    } else if (value.is_object() && std::ranges::any_of(names, [&](std::string_view known) { return known.starts_with(name + "."); })) {
      apply(table, value, name + ".", source, kept, unknown);
    } else {
      unknown.push_back(fmt::format("'{}' = {}{}", name, value.dump().substr(0, kMostShown), cxxrun::did_you_mean(name, names)));
    }
  }
}

void keep(cxxrun::OptionTable& table, const json& kept, const std::string& path) {
  if (kept.value("use_peft", json()) == true) {
    throw cxxrun::UsageError("{}: use_peft = true: the weights are those of an adapter (LoRA), which is not supported: merge it into its policy first", path);
  }
  if (kept.contains("temporal_ensemble_coeff") && !kept["temporal_ensemble_coeff"].is_null()) {
    cxxrun::log_warning("{}: temporal_ensemble_coeff = {} is kept for LeRobot, which averages overlapping chunks by it; eval and serve do not",
                        path, kept["temporal_ensemble_coeff"].dump());
  }
  std::string* text = kept_keys(table);
  if (text != nullptr && !kept.empty()) *text = kept.dump();
}

}  // namespace

TensorMap state_dict(const Policy& policy) {
  TensorMap tensors;
  for (const auto& item : policy.named_parameters()) tensors[item.key()] = item.value();
  for (const auto& item : policy.named_buffers()) tensors[item.key()] = item.value();
  return tensors;
}

std::string options_as_json(const cxxrun::OptionTable& table) { return as_json(table).dump(4); }

void add_pretrained_model(CheckpointFiles& files, const std::string& type, const Policy& policy,
                          const data::DatasetStats& stats, const std::string& train_config, const std::string& folder,
                          const TensorMap& weights) {
  const std::string place = folder + "/";
  const PolicyFeatures& features = policy.features();
  const json inputs = features_as_json(features.inputs), outputs = features_as_json(features.outputs);
  const auto parameters = policy.parameters();
  const char* device = !parameters.empty() && parameters.front().is_cuda() ? "cuda" : "cpu";

  json config = {{"type", type}, {"input_features", inputs}, {"output_features", outputs}, {"device", device}};
  cxxrun::OptionTable table;
  const_cast<PolicyOptions&>(policy.options()).describe(table);  // takes addresses to write to; here they are only read
  config.update(as_json(table));
  for (const char* key : kOwnKeys) config.erase(key);
  config.update(extra_keys(type));
  if (const std::string* kept = kept_keys(table); kept != nullptr && !kept->empty()) add_kept_keys(config, *kept);
  files.texts[place + "config.json"] = config.dump(4);
  files.texts[place + "train_config.json"] = train_config;
  TensorMap& stored = files.tensors[place + "model.safetensors"] = state_dict(policy);
  for (const auto& [name, tensor] : weights) {
    TORCH_CHECK(stored.contains(name), "the policy has no tensor ", name);
    stored[name] = tensor;
  }

  json norm_map = json::object();
  for (const auto& [feature_type, mode] : policy.options().normalization())
    norm_map[name_of(feature_type)] = vla::name_of(mode);
  json all_features = inputs;
  all_features.update(outputs);
  const auto normalizer = [&](const json& of) { return json{{"eps", 1e-8}, {"features", of}, {"norm_map", norm_map}}; };
  const auto to_device = [](const char* where) {
    return step("device_processor", {{"device", where}, {"float_dtype", nullptr}});
  };
  TensorMap state = stats_to_tensors(stats);
  for (auto& [name, tensor] : state) {
    if (name.ends_with(".count")) tensor = tensor.flatten();  // those that a preprocessor was read with are broadcast
  }
  std::vector<json> steps = {step("rename_observations_processor", {{"rename_map", json::object()}}),
                             step("to_batch_processor", json::object())};
  std::ranges::move(text_steps(policy.options()), std::back_inserter(steps));
  steps.push_back(to_device(device));
  steps.push_back(step("normalizer_processor", normalizer(all_features)));
  const size_t last = steps.size() - 1;
  // The preprocessor broadcasts the statistics of images, their count as well.
  TensorMap input_state = state;
  for (const PolicyFeature& input : features.inputs) {
    if (input.type != data::FeatureType::kVisual) continue;
    for (auto& [name, tensor] : input_state) {
      const bool is_of_input = name.size() > input.key.size() && name.starts_with(input.key) && name.rfind('.') == input.key.size();
      if (is_of_input && tensor.dim() == 1) tensor = tensor.view({-1, 1, 1});
    }
  }
  add_processor(files, place, "policy_preprocessor", std::move(steps), last, input_state);
  add_processor(files, place, "policy_postprocessor", {step("unnormalizer_processor", normalizer(outputs)), to_device("cpu")},
                0, state);
}

std::filesystem::path find_pretrained_model(const std::filesystem::path& path) {
  for (const char* below : {"", "pretrained_model", "last/pretrained_model", "checkpoints/last/pretrained_model"}) {
    if (std::filesystem::exists(path / below / "config.json")) return path / below;
  }
  throw cxxrun::UsageError("{} holds no policy: config.json is neither there nor in its pretrained_model/; weights alone need --policy.type=NAME",
                           path.string());
}

PretrainedConfig read_pretrained_config(const std::filesystem::path& pretrained_model) {
  const std::string path = (pretrained_model / "config.json").string();
  const json config = read_json_object(path);
  if (!config.contains("type") || !config["type"].is_string())
    throw Error("{}: 'type' is missing: which policy is this?", path);
  PretrainedConfig result{.type = config["type"], .options = nullptr, .features = {}};
  result.options = cxxrun::find_in_registry(policy_registry(), result.type, path + ": policy type").make_options();
  result.features = {read_features(config, "input_features", path), read_features(config, "output_features", path)};

  cxxrun::OptionTable table;
  result.options->describe(table);
  if (cxxrun::OptionRow* row = table.find("weights_follow")) *std::get<bool*>(row->value) = true;
  json kept = json::object();
  std::vector<std::string> unknown;
  apply(table, config, "", path, kept, unknown);
  if (!unknown.empty()) {
    throw cxxrun::UsageError("{}: policy {} has no option of this name: {}; correct or remove what is unknown, LeRobot 0.6.1 refuses it as well", path,
                             result.type, fmt::join(unknown, ", "));
  }
  keep(table, kept, path);
  try {
    result.options->validate(result.features);
  } catch (const cxxrun::UsageError& e) {
    throw cxxrun::UsageError("{}: {}", path, e.what());
  }
  return result;
}

}  // namespace vla
