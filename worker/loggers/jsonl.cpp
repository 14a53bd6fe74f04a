#include "worker/loggers/jsonl.hpp"

#include <fcntl.h>

#include <string_view>

#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "worker/loggers/metric_values.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;

bool belongs_to_run(std::string_view line, int64_t first_step) {
  const nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
  const auto step = record.is_object() ? record.find("step") : record.end();
  return record.is_object() && step != record.end() && step->is_number_integer() && step->get<int64_t>() <= first_step;
}

void drop_lines_after(const fs::path& path, int64_t first_step) {
  if (!fs::exists(path)) return;
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

JsonlLogger::JsonlLogger(const LoggerContext& context) : path_(context.options.jsonl_path(context.output_dir)) {
  cxxrun::remove_leftovers_of(path_);
  drop_lines_after(path_, context.first_step);
  fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd_) throw cxxrun::errno_error("cannot open " + path_.string());
}

void JsonlLogger::log(const StepMetrics& metrics) {
  nlohmann::ordered_json record = {{"step", metrics.step}};
  for (const auto& [name, value] : metric_values(metrics)) record[name] = value;
  for (const char* name : {"slowest_rank", "skipped_rows"}) {
    if (record.contains(name)) record[name] = record[name].get<int64_t>();
  }
  if (!metrics.sample_ids.empty()) record["sample_ids"] = metrics.sample_ids;
  const std::string line = record.dump() + "\n";
  if (::write(fd_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw cxxrun::errno_error("cannot append to " + path_.string());
  }
}

}  // namespace vla
