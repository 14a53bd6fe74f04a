// A dataset that decodes each camera frame once and keeps it for later epochs (data.cache). Everything but camera frames comes from
// the wrapped dataset. Samples are the same bytes with and without. Readers share the cache; each belongs to one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/data/dataset.hpp"
#include "worker/data/options.hpp"

namespace vla::data {

// What the choice of a cache rests on.
struct CacheFacts {
  uint64_t needed = 0;  // bytes of all frames
  uint64_t memory = 0;  // bytes this process may take
  uint64_t disk = 0;  // bytes that the file could grow to
};
enum class CacheKind : uint8_t { kNone, kMemory, kPartialMemory, kDisk };
// `mode` as data.cache. auto: memory if everything fits, else the disk if half of its free space is enough, else part in memory.
CacheKind choose_cache(const std::string& mode, const CacheFacts& facts);

// Bytes of frames that each of `local_ranks` processes of this node may keep in memory.
uint64_t frame_memory(const DataOptions& options, int64_t local_ranks);

// `dataset` itself if there is nothing to keep or no place for it. Keeps the cameras of `request`, which later requests need not equal.
// `roots`: the folders or files that the dataset was opened from; an edited file means new frames. What the cache may take of
// `memory` is subtracted from it. Says in one line what it chose.
std::shared_ptr<const Dataset> cached_dataset(std::shared_ptr<const Dataset> dataset, const SampleRequest& request,
                                              const DataOptions& options, const std::vector<std::string>& roots, uint64_t& memory);

}  // namespace vla::data
