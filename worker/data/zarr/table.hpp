// A replay buffer's arrays as features, one row a frame. Decides names and types, checks that every chunk file is there and as long as it
// says, and holds states, actions and other small rows in memory. What is too large for that RowSource reads. Immutable once built.
// Throws DataError naming array, file and remedy; `skip_broken`: notes rows that cannot be read instead.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "worker/data/dataset.hpp"
#include "worker/data/zarr/replay_buffer.hpp"

namespace vla::data {

struct ZarrTable {
  ZarrTable(const std::string& root, bool skip_broken);
  ZarrTable(const ZarrTable&) = delete;  // columns point into buffer

  struct Column {
    const ZarrArray* array = nullptr;
    std::vector<std::byte> values = {};  // as samples have them; empty: not in memory
  };
  struct BrokenRows {
    int64_t begin = 0, end = 0;
    std::string reason = {};
  };

  const ReplayBuffer buffer;
  std::vector<Feature> features;
  std::vector<Column> columns;  // by feature
  std::map<std::string, std::string> unsupported;  // name -> why it cannot be used
  std::vector<BrokenRows> broken;

  int64_t first_row(int64_t episode) const { return episode == 0 ? 0 : buffer.ends[static_cast<size_t>(episode - 1)]; }
  const BrokenRows* broken_between(int64_t begin, int64_t end) const;  // null: all can be read
  // Position of the first value of a row in memory that is not finite, or -1.
  int64_t first_bad_value(size_t feature, int64_t row) const;

 private:
  void add_features();
  void check_files(const ZarrArray& array, bool skip_broken);
  void load_values(size_t feature, bool skip_broken);
};

}  // namespace vla::data
