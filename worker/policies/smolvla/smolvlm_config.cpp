#include "worker/policies/smolvla/smolvlm_config.hpp"

#include "common/error.hpp"
#include "worker/checkpoint/json_file.hpp"

namespace vla {
namespace {

using cxxrun::Error;
using json = nlohmann::ordered_json;

constexpr int64_t kMaxWidth = 1 << 16, kMaxLayers = 1024, kMaxVocabulary = 1 << 24;

// A part of the file, for messages.
struct Part {
  const json& object;
  std::string place;

  int64_t size(const char* key, int64_t absent, int64_t largest) const {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return absent;
    if (!found->is_number_integer() || found->get<double>() < 1 || found->get<double>() > static_cast<double>(largest)) {
      throw Error("{}{} = {} is not a whole number between 1 and {}", place, key, found->dump(), largest);
    }
    return found->get<int64_t>();
  }

  double number(const char* key, double absent) const {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return absent;
    if (!found->is_number()) throw Error("{}{} = {} is not a number", place, key, found->dump());
    return found->get<double>();
  }

  // What the model code supports only one value of.
  void require(const char* key, const json& expected) const {
    const auto found = object.find(key);
    if (found != object.end() && !found->is_null() && *found != expected) {
      throw Error("{}{} = {} is not supported, only {}", place, key, found->dump(), expected.dump());
    }
  }

  at::ScalarType dtype() const {
    for (const char* key : {"dtype", "torch_dtype"}) {
      const std::string name = object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "float32";
      if (name == "bfloat16") return at::kBFloat16;
      if (name != "float32") throw Error("{}{} = {} is not supported, only float32 and bfloat16", place, key, name);
    }
    return at::kFloat;
  }

  Part part(const char* key) const {
    static const json kEmpty = json::object();
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return {kEmpty, place + key + "."};
    if (!found->is_object()) throw Error("{}{} is not an object", place, key);
    return {*found, place + key + "."};
  }
};

void require_multiple(const Part& part, const char* what, int64_t value, int64_t of) {
  if (value % of != 0) throw Error("{}{} = {} is no multiple of {}", part.place, what, value, of);
}

}  // namespace

SmolVlmConfig read_smolvlm_config(const std::string& path) {
  const json object = read_json_object(path);
  const Part file{object, path + ": "};
  file.require("model_type", "smolvlm");
  file.require("tie_word_embeddings", false);
  SmolVlmConfig config;
  config.scale_factor = file.size("scale_factor", 2, 64);

  const Part text = file.part("text_config");
  text.require("model_type", "llama");
  text.require("hidden_act", "silu");
  text.require("attention_bias", false);
  text.require("mlp_bias", false);
  config.text.width = text.size("hidden_size", 4096, kMaxWidth);
  config.text.mlp_width = text.size("intermediate_size", 11008, kMaxWidth);
  config.text.heads = text.size("num_attention_heads", 32, kMaxWidth);
  config.text.kv_heads = text.size("num_key_value_heads", config.text.heads, kMaxWidth);
  config.text.head_dim = text.size("head_dim", std::max<int64_t>(1, config.text.width / config.text.heads), kMaxWidth);
  // Without a text_config at all transformers takes another eps than Llama's own default.
  config.text.norm_eps = text.number("rms_norm_eps", text.object.empty() ? 1e-5 : 1e-6);
  config.text_layers = text.size("num_hidden_layers", 32, kMaxLayers);
  config.vocab_size = text.size("vocab_size", 32000, kMaxVocabulary);
  config.text_dtype = text.dtype();
  require_multiple(text, "num_attention_heads", config.text.heads, config.text.kv_heads);
  require_multiple(text, "head_dim", config.text.head_dim, 2);

  const Part vision = file.part("vision_config");
  vision.require("hidden_act", "gelu_pytorch_tanh");
  vision.require("num_channels", 3);
  config.vision.width = vision.size("hidden_size", 1152, kMaxWidth);
  config.vision.mlp_width = vision.size("intermediate_size", 3072, kMaxWidth);
  config.vision.layers = vision.size("num_hidden_layers", 12, kMaxLayers);
  config.vision.heads = vision.size("num_attention_heads", 16, kMaxWidth);
  config.vision.image_size = vision.size("image_size", 224, 1 << 14);
  config.vision.patch_size = vision.size("patch_size", 32, 1 << 14);
  config.vision.norm_eps = vision.number("layer_norm_eps", 1e-6);
  config.vision_dtype = vision.dtype();
  require_multiple(vision, "hidden_size", config.vision.width, config.vision.heads);
  if (config.vision.image_size < config.vision.patch_size) throw Error("{}image_size is below patch_size", vision.place);
  return config;
}

std::optional<SmolVlmConfig> known_smolvlm(const std::string& name) {
  if (name != "HuggingFaceTB/SmolVLM2-500M-Video-Instruct") return std::nullopt;
  SmolVlmConfig config;
  config.vision = {.width = 768, .mlp_width = 3072, .layers = 12, .heads = 12, .image_size = 512, .patch_size = 16, .norm_eps = 1e-6};
  config.text = {.width = 960, .mlp_width = 2560, .heads = 15, .kv_heads = 5, .head_dim = 64, .norm_eps = 1e-5};
  config.text_layers = 32;
  config.vocab_size = 49280;
  config.scale_factor = 4;
  config.text_dtype = at::kBFloat16;
  return config;
}

}  // namespace vla
