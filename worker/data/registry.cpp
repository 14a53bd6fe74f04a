#include "common/registry.hpp"
#include "common/error.hpp"
#include "worker/data/lerobot/lerobot_dataset.hpp"
#include "worker/data/synthetic.hpp"
#include "worker/data/zarr/zarr_dataset.hpp"

namespace vla::data {
namespace {

struct Format {
  std::string_view name;
  std::string_view help;
  bool (*detect)(const std::string& root);
  std::shared_ptr<const Dataset> (*open)(const DatasetSpec& spec);
};

constexpr Format kFormats[] = {
    {"synthetic", "synthetic:frames=64,state=4,…", &is_synthetic, &open_synthetic},
    {"lerobot", "a folder with meta/info.json", &is_lerobot, &open_lerobot},
    {"zarr", "a folder with .zgroup, data/ and meta/episode_ends", &is_zarr, &open_zarr},
};

}  // namespace

std::shared_ptr<const Dataset> open_dataset(const DatasetSpec& spec) {
  std::vector<std::string> known;
  for (const Format& format : kFormats) {
    if (format.detect(spec.root)) return format.open(spec);
    known.push_back(fmt::format("{} ({})", format.name, format.help));
  }
  throw cxxrun::DataError("dataset.root '{}' is not a dataset of a known format: {}", spec.root,
                          fmt::join(known, "; "));
}

}  // namespace vla::data
