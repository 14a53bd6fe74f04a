// Which checkpoint --resume means. Torn checkpoints are passed over, with a line that says what is wrong with them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace vla {

// `resume` is "" or "false" (none), "true" (the last complete one in output_dir; UsageError if there is none), "auto" (the last one,
// if any) or a path to a checkpoint, to something in it, to a folder of checkpoints or to an output folder. A torn checkpoint that
// the path itself names is a UsageError.
std::optional<std::filesystem::path> find_checkpoint(const std::string& resume, const std::filesystem::path& output_dir);

}  // namespace vla
