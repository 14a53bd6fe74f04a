// What the tests of tokenizers share: the golden files, and a tokenizer.json with some keys replaced.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "tests/worker/data/support.hpp"
#include "worker/data/tokenizer/token_batch.hpp"
#include "worker/data/tokenizer/tokenizer.hpp"

namespace vla::data {

using Ids = std::vector<int64_t>;

inline const std::string kTokenizers = kData + "/tokenizer/";

inline nlohmann::json read_golden(const std::string& file) {
  return nlohmann::json::parse(cxxrun::read_file(kTokenizers + file));
}

inline std::string write_tokenizer(const TempDir& folder, const nlohmann::json& content) {
  const std::string path = folder.path() + "/tokenizer.json";
  cxxrun::write_file_atomically(path, content.dump());
  return path;
}

// A small tokenizer of ours with the values of `change` (a merge patch, RFC 7396).
inline Tokenizer changed_tokenizer(const nlohmann::json& change, const std::string& base = "smollm2.json") {
  const TempDir folder;
  nlohmann::json content = read_golden(base);
  content.merge_patch(change);
  return Tokenizer(write_tokenizer(folder, content));
}

}  // namespace vla::data
