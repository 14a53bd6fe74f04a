// What a resumed run does differently from the one that saved the checkpoint. Anything that would give later steps other samples is a
// conflict, which only resume_changed=true accepts; every other changed option is named in a line. A pure comparison.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/option_table.hpp"
#include "worker/checkpoint/training_state.hpp"

namespace vla {

struct ResumeCheck {
  std::vector<std::string> conflicts = {};  // "training.seed: 1000 -> 7"
  std::vector<std::string> changes = {};  // "optimizer.lr: 0.0001 -> 0.0002 (command line)"

  // Logs the changes. UsageError naming the conflicts and what to do, unless `resume_changed`: then they are a warning.
  void require(const std::filesystem::path& checkpoint, bool resume_changed) const;
};

// `now` is what the run would store as it starts (its step does not matter); `table` describes its configuration.
ResumeCheck check_resume(const std::filesystem::path& checkpoint, const TrainingState& stored, const TrainingState& now,
                         const cxxrun::OptionTable& table);

}  // namespace vla
