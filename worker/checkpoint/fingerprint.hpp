// Short identities of what a training depends on, the same on every machine and in every run.
#pragma once

#include <string>
#include <string_view>

#include "worker/data/dataset.hpp"

namespace vla {

// 16 hexadecimal digits (FNV-1a).
std::string fingerprint(std::string_view text);

// Of a dataset's description: episodes with their lengths, features, tasks and statistics; not of its place or its pictures. Equal
// fingerprints give every sample number the same meaning.
std::string data_fingerprint(const data::Dataset& dataset);

}  // namespace vla
