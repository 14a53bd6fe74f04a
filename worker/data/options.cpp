#include "worker/data/options.hpp"

namespace vla::data {

void DataOptions::describe(cxxrun::OptionTable& table) {
  table
      .add("cache", cache,
           "keep decoded camera frames for later epochs: ram = in memory of each rank, disk = in cache_dir, shared by the ranks "
           "of a node and by later runs, auto = where they fit")
      .one_of({"auto", "none", "ram", "disk"});
  table
      .add("cache_gb", cache_gb,
           "memory of a node that ram and auto may use for frames; 0 = half of what is free when training starts")
      .in("GB")
      .at_least(0);
  table.add("cache_dir", cache_dir, "folder of cached frames on disk; empty = cxxrun/frames in the user's cache folder").path();
  table
      .add("on_error", on_error,
           "a sample that cannot be read: fail = stop with its file and frame, skip = train without it and report how many")
      .one_of({"fail", "skip"});
  table
      .add("prefetch", prefetch,
           "micro-batches in memory, the one in use included: decoding runs this far ahead, raised to two steps' worth where "
           "gradients are accumulated")
      .in("micro-batches")
      .at_least(2)
      .at_most(1024);
}

}  // namespace vla::data
