#include "worker/loggers/jsonl.hpp"

#include <fcntl.h>

#include <string_view>

#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"

namespace vla {
namespace {

bool belongs_to_run(std::string_view line, int64_t first_step) {
  const nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
  const auto step = record.is_object() ? record.find("step") : record.end();
  return record.is_object() && step != record.end() && step->is_number_integer() && step->get<int64_t>() <= first_step;
}

void drop_lines_after(const std::filesystem::path& path, int64_t first_step) {
  if (!std::filesystem::exists(path)) return;
  const std::string text = cxxrun::read_file(path);
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // torn
    const std::string_view line(text.data() + begin, end + 1 - begin);
    if (belongs_to_run(line, first_step)) kept += line;
    begin = end + 1;
  }
  if (kept.size() != text.size()) cxxrun::write_file_atomically(path, kept);
}

}  // namespace

JsonlLogger::JsonlLogger(const LoggerContext& context) : path_(context.output_dir / "metrics.jsonl") {
  drop_lines_after(path_, context.first_step);
  fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd_) throw cxxrun::errno_error("cannot open " + path_.string());
}

void JsonlLogger::log(const StepMetrics& m) {
  nlohmann::ordered_json record = {{"step", m.step},           {"epoch", m.epoch},
                                   {"loss", m.loss},           {"lr", m.lr},
                                   {"grad_norm", m.grad_norm}, {"samples_per_s", m.samples_per_s},
                                   {"data_wait", m.data_wait}};
  for (const auto& [name, value] : m.more) record[name] = value;
  const std::string line = record.dump() + "\n";
  if (::write(fd_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw cxxrun::errno_error("cannot append to " + path_.string());
  }
}

}  // namespace vla
