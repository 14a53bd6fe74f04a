#include "worker/policies/act/act_policy.hpp"
#include "worker/policies/diffusion/diffusion_policy.hpp"
#include "worker/policies/linear/linear_policy.hpp"
#include "worker/policies/smolvla/smolvla_policy.hpp"

namespace vla {
namespace {

template <class Options>
std::unique_ptr<PolicyOptions> make_options() {
  return std::make_unique<Options>();
}

template <class P, class Options>
std::shared_ptr<Policy> make(const PolicyOptions& options, const PolicyFeatures& features) {
  return std::make_shared<P>(dynamic_cast<const Options&>(options), features);
}

}  // namespace

const std::vector<PolicyEntry>& policy_registry() {
  static const std::vector<PolicyEntry> kPolicies = {
      {"act", "Action Chunking Transformer", &make_options<ActOptions>, &make<ActPolicy, ActOptions>},
      {"diffusion", "diffusion policy as LeRobot has it", &make_options<DiffusionOptions>, &make<DiffusionPolicy, DiffusionOptions>},
      {"diffusion_policy", "diffusion policy as its authors and RoboTwin have it", &make_options<OriginalDiffusionOptions>,
       &make<DiffusionPolicy, OriginalDiffusionOptions>},
      {"linear", "linear map of the robot's state to a chunk of actions, for tests", &make_options<LinearOptions>,
       &make<LinearPolicy, LinearOptions>},
      {"smolvla", "SmolVLA: a small vision-language model with an action expert, reads tasks", &make_options<SmolVlaOptions>,
       &make<SmolVlaPolicy, SmolVlaOptions>},
  };
  return kPolicies;
}

}  // namespace vla
