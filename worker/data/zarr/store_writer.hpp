// A zarr v2 store with groups data and meta that appears whole or not at all: written under a temporary name beside `output`, which
// commit() syncs and renames. Without commit() nothing remains. Throws UsageError if `output` exists, unless it is a zarr store and
// may be replaced; Error with the path if something cannot be written.
#pragma once

#include <string>

namespace vla::data {

class ZarrStoreWriter {
 public:
  explicit ZarrStoreWriter(std::string output, bool overwrite = false);
  ZarrStoreWriter(const ZarrStoreWriter&) = delete;
  ~ZarrStoreWriter();

  const std::string& folder() const { return temporary_; }  // where the arrays go
  void commit();

 private:
  std::string target_, temporary_;
};

}  // namespace vla::data
