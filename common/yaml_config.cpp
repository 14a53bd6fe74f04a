#include "common/yaml_config.hpp"

#include <set>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "common/atomic_file.hpp"
#include "common/error.hpp"

namespace cxxrun {
namespace {

constexpr size_t kMaxBytes = 1 << 18;
constexpr int kMaxDepth = 16;
constexpr size_t kMaxValues = 10000;

// Counts documents and does nothing else.
struct DocumentCounter : YAML::EventHandler {
  size_t documents = 0;
  void OnDocumentStart(const YAML::Mark&) override { ++documents; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// Of ",null" yaml-cpp sees one document after the other without end: YAML::LoadAll() would not come back.
void require_one_document(const std::string& text, std::string_view name) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentCounter counter;
  while (counter.documents < 2 && parser.HandleNextDocument(counter)) {
  }
  if (counter.documents > 1) throw UsageError("{}: more than one YAML document; a configuration is one", name);
}

class Flattener {
 public:
  Flattener(std::string_view name, const std::filesystem::path& directory) : name_(name), directory_(directory) {}

  void add(const YAML::Node& node, const std::string& key, int line, int depth) {
    // Checked before descending, so that an alias to its own parent or a tower of aliases ends here.
    if (depth > kMaxDepth)
      throw UsageError("{}:{}: '{}' is nested more than {} levels deep", name_, line, key, kMaxDepth);
    if (++values_ > kMaxValues)
      throw UsageError("{}:{}: more than {} values, aliases included", name_, line, kMaxValues);
    Setting setting{.name = key, .source = fmt::format("{}:{}", name_, line), .directory = directory_};
    switch (node.Type()) {
      case YAML::NodeType::Map:
        if (node.size() > 0) return add_map(node, key, depth);
        setting.kind = Setting::Kind::kNull;
        break;
      case YAML::NodeType::Sequence:
        setting.kind = Setting::Kind::kList;
        setting.items = scalars(node, setting.source, key);
        break;
      case YAML::NodeType::Scalar:
        setting.items = {node.Scalar()};
        break;
      default:
        setting.kind = Setting::Kind::kNull;
    }
    settings.push_back(std::move(setting));
  }

  void add_map(const YAML::Node& map, const std::string& prefix, int depth) {
    std::set<std::string> seen;
    for (const auto& entry : map) {
      const int line = entry.first.Mark().line + 1;
      if (!entry.first.IsScalar()) throw UsageError("{}:{}: a key under '{}' is not a plain word", name_, line, prefix);
      const std::string key = (prefix.empty() ? "" : prefix + ".") + entry.first.Scalar();
      if (entry.first.Scalar() == "<<")
        throw UsageError("{}:{}: merge keys ('<<') are not supported; write the keys out", name_, line);
      if (!seen.insert(canonical_name(key)).second)
        throw UsageError("{}:{}: key '{}' is given twice", name_, line, key);
      add(entry.second, key, line, depth + 1);
    }
  }

  std::vector<std::string> scalars(const YAML::Node& list, const std::string& source, std::string_view key) {
    std::vector<std::string> items;
    for (const YAML::Node& item : list) {
      if (++values_ > kMaxValues) throw UsageError("{}: more than {} values, aliases included", source, kMaxValues);
      items.push_back(item.IsMap() ? fields(item, source, key) : scalar(item, source, key));
    }
    return items;
  }

  static const std::string& scalar(const YAML::Node& node, const std::string& source, std::string_view key) {
    if (!node.IsScalar()) throw UsageError("{}: '{}' must be a list of plain values", source, key);
    return node.Scalar();
  }

  // An item {path: a, episodes: [0, 2]} as the text "path=a;episodes=0+2".
  std::string fields(const YAML::Node& map, const std::string& source, std::string_view key) {
    std::string text;
    for (const auto& field : map) {
      if (!text.empty()) text += ';';
      text += scalar(field.first, source, key) + '=';
      if (field.second.IsSequence()) {
        std::string list;
        for (const YAML::Node& item : field.second) {
          if (++values_ > kMaxValues) throw UsageError("{}: more than {} values, aliases included", source, kMaxValues);
          list += (list.empty() ? "" : "+") + scalar(item, source, key);
        }
        text += list;
      } else {
        text += scalar(field.second, source, key);
      }
    }
    return text;
  }

  std::vector<Setting> settings;

 private:
  std::string name_;
  std::filesystem::path directory_;
  size_t values_ = 0;
};

}  // namespace

std::vector<Setting> parse_yaml_settings(const std::string& text, std::string_view name,
                                         const std::filesystem::path& directory) {
  if (text.size() > kMaxBytes)
    throw UsageError("{}: {} bytes; a configuration has at most {}", name, text.size(), kMaxBytes);
  Flattener flattener(name, directory);
  try {
    require_one_document(text, name);
    const YAML::Node document = YAML::Load(text);
    if (!document.IsDefined() || document.IsNull()) return {};
    if (!document.IsMap()) throw UsageError("{}: expected 'key: value' lines at the top level", name);
    flattener.add_map(document, "", 0);
  } catch (const YAML::Exception& error) {
    throw UsageError("{}:{}: not valid YAML: {}", name, error.mark.line + 1, error.msg);
  }
  return std::move(flattener.settings);
}

std::vector<Setting> read_yaml_settings(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    throw UsageError("configuration file '{}' does not exist", path.string());
  if (std::filesystem::is_directory(path, ignored))
    throw UsageError("configuration '{}' is a folder, not a YAML file", path.string());
  return parse_yaml_settings(read_file(path), path.string(), std::filesystem::absolute(path).parent_path());
}

std::vector<std::string> parse_yaml_list(const std::string& text, std::string_view source) {
  const std::vector<Setting> settings = parse_yaml_settings("value: " + text, source);
  if (settings.size() != 1 || settings[0].kind != Setting::Kind::kList)
    throw UsageError("{}: '{}' is not a list like [1, 2]", source, text);
  return settings[0].items;
}

}  // namespace cxxrun
