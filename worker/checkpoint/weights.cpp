#include "worker/checkpoint/weights.hpp"

#include "worker/checkpoint/lerobot_format.hpp"

namespace vla {

void load_weights(const std::filesystem::path& path, Policy& policy) {
  const std::filesystem::path file = find_weights(path);
  const TensorMap own = state_dict(policy);
  copy_by_name(with_fitting_prefix(read_weights(file), own, file.string()), own, file.string() + " does not fit the policy that its config.json, the options and the dataset's features describe");
}

}  // namespace vla
