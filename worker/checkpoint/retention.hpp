// Which checkpoints there are and which of them stay. A checkpoint is a folder whose name is its number of completed
// steps; it exists only complete. What is being written or removed has a leftover_name(): after a kill, the next save
// removes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace vla {

// Steps of the checkpoints in `checkpoints`, ascending; empty if the folder does not exist.
std::vector<int64_t> list_checkpoints(const std::filesystem::path& checkpoints);

std::string checkpoint_name(int64_t step);  // "000123"
std::string leftover_name(const std::string& name);  // ".name.tmp"

struct Retention {
  int64_t keep = 0;  // newest checkpoints to keep; 0 = all
  int64_t keep_every = 0;  // those of multiples of so many steps stay as well; 0 = none
};

// What to remove of `steps` (ascending). Those of `protected_steps` always stay.
std::vector<int64_t> plan_removal(const std::vector<int64_t>& steps, const Retention& retention,
                                  const std::vector<int64_t>& protected_steps);

// Removes a checkpoint so that a kill in between leaves it whole or a leftover, never half.
void remove_checkpoint(const std::filesystem::path& checkpoints, int64_t step);
void remove_leftovers(const std::filesystem::path& checkpoints);

}  // namespace vla
