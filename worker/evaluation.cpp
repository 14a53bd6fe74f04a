#include "worker/evaluation.hpp"

#include <torch/torch.h>

namespace vla {
namespace {

constexpr char kAction[] = "action";

// float64 [2]: sum of |predicted - action| over valid elements, and their number.
torch::Tensor error_sums(const torch::Tensor& predicted, const Batch& batch, const torch::Tensor& action) {
  const auto valid = valid_actions(batch).to(torch::kDouble);
  const auto error = (predicted - action).abs().to(torch::kDouble).sum(-1);
  return torch::stack({(error * valid).sum(), valid.sum() * static_cast<double>(action.size(-1))});
}

}  // namespace

Evaluation evaluate(cxxrun::DistributedDataParallel<Policy>& policy, const Normalizer& normalizer, const at::Tensor& mean_action,
                    data::Loader& loader, int64_t steps, const cxxrun::World& world) {
  const torch::NoGradGuard no_grad;
  policy.train(false);
  const auto floating = policy.module().parameters().front().scalar_type();
  // [loss * rows of the global batch, rows, policy error, elements, mean-action error, elements]
  auto sums = torch::zeros({6}, torch::dtype(torch::kDouble).device(world.device()));
  for (int64_t step = 0; step < steps; ++step) {
    Batch batch = make_batch(*loader.next(), loader.layout(), world.device(), mean_action.scalar_type());
    const torch::Tensor demonstrated = batch.at(kAction);
    normalizer.normalize(batch);
    convert_features(batch, floating);
    auto counts = policy.module().loss_counts(batch);
    auto rows = batch.weight.to(torch::kDouble).sum();
    const auto global = torch::cat({counts, rows.reshape({1})});
    world.all_reduce_sum(global);

    const StepRandom random(0, 0, batch.position);
    const auto loss = policy.forward([&](Policy& module) { return module.compute_loss(batch, global.slice(0, 0, -1), random); });
    const auto chunk = policy.forward([&](Policy& module) { return module.predict_chunk(batch); });
    sums += torch::cat({torch::stack({loss.loss.to(torch::kDouble) * global[-1], rows}),
                        error_sums(normalizer.unnormalize(chunk), batch, demonstrated), error_sums(mean_action, batch, demonstrated)});
  }
  world.all_reduce_sum(sums);
  sums = sums.cpu();
  const auto ratio = [&](int64_t i) { return sums[i].item<double>() / std::max(1.0, sums[i + 1].item<double>()); };
  return {ratio(0), ratio(2), ratio(4), static_cast<int64_t>(sums[1].item<double>())};
}

}  // namespace vla
