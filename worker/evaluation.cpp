#include "worker/evaluation.hpp"

#include <algorithm>
#include <cmath>

#include <torch/torch.h>

namespace vla {
namespace {

constexpr char kAction[] = "action";

// Where the frames from the current one on stand in a sample's actions: row k of a predicted chunk belongs to the k-th of them.
std::vector<int64_t> future_actions(const Policy& policy) {
  std::vector<int64_t> places;
  for (const data::FieldRequest& field : policy.options().sample_request(policy.features())) {
    if (field.key != kAction) continue;
    for (size_t i = 0; i < field.deltas.size(); ++i) {
      if (field.deltas[i] >= 0) places.push_back(static_cast<int64_t>(i));
    }
  }
  return places;
}

// float64 [2, action_dim]: sums of |error| and of its square over the valid steps. `error` [B, chunk, action_dim], `valid` [B, chunk].
torch::Tensor error_sums(const torch::Tensor& error, const torch::Tensor& valid) {
  const auto counted = error.to(torch::kDouble) * valid.unsqueeze(-1);
  return torch::stack({counted.abs(), counted.square()}).flatten(1, 2).sum(1);
}

// `sums` [2, 2, dimensions] as in evaluate().
ActionErrors errors_of(const torch::Tensor& sums, double steps) {
  const auto means = (sums / std::max(1.0, steps)).mean(2);
  const auto at = [&](int64_t who, int64_t what) { return means[who][what].item<double>(); };
  return {.policy = at(0, 0), .policy_rmse = std::sqrt(at(0, 1)), .mean_action = at(1, 0), .mean_action_rmse = std::sqrt(at(1, 1))};
}

}  // namespace

at::ScalarType input_dtype(const Policy& policy) {
  const auto parameters = policy.parameters();
  at::ScalarType widest = parameters.front().scalar_type();
  for (const at::Tensor& parameter : parameters) widest = at::promoteTypes(widest, parameter.scalar_type());
  return widest;
}

Evaluation evaluate(cxxrun::DistributedDataParallel<Policy>& policy, const Normalizer& normalizer, const at::Tensor& mean_action,
                    data::Loader& loader, int64_t steps, const cxxrun::World& world) {
  const torch::NoGradGuard no_grad;
  policy.train(false);
  const auto floating = input_dtype(policy.module());
  const auto on_device = torch::dtype(torch::kDouble).device(world.device());
  const auto future = torch::tensor(future_actions(policy.module()), torch::dtype(torch::kLong).device(world.device()));
  auto totals = torch::zeros({3}, on_device);  // loss * rows of the global batch, rows, valid steps
  auto errors = torch::zeros({2, 2, mean_action.size(0)}, on_device);  // [policy | mean action, |error| | error^2, action_dim]
  for (int64_t step = 0; step < steps; ++step) {
    Batch batch = make_batch(*loader.next(), loader.layout(), world.device(), mean_action.scalar_type(), /*keep_bytes=*/true);
    const torch::Tensor demonstrated = batch.at(kAction);
    normalizer.normalize(batch, floating, policy.module().takes_image_bytes());
    auto counts = policy.module().loss_counts(batch);
    auto rows = batch.weight.to(torch::kDouble).sum();
    const auto global = torch::cat({counts, rows.reshape({1})});
    world.all_reduce_sum(global);

    const StepRandom random(0, 0, batch.position);
    const auto loss = policy.forward([&](Policy& module) { return module.compute_loss(batch, global.slice(0, 0, -1), random); });
    const auto chunk = policy.forward([&](Policy& module) { return module.predict_chunk(batch); });
    TORCH_CHECK(chunk.size(1) <= future.size(0), "the policy predicts ", chunk.size(1), " actions, samples hold ", future.size(0), " from now on");
    const auto places = future.slice(0, 0, chunk.size(1));
    const auto expected = demonstrated.index_select(1, places);
    const auto valid = valid_actions(batch).index_select(1, places).to(torch::kDouble);
    totals += torch::stack({loss.loss.to(torch::kDouble) * global[-1], rows, valid.sum()});
    errors += torch::stack({error_sums(normalizer.unnormalize(chunk) - expected, valid), error_sums(mean_action - expected, valid)});
  }
  world.all_reduce_sum(totals);
  world.all_reduce_sum(errors);
  totals = totals.cpu();
  errors = errors.cpu();
  const double frames = totals[1].item<double>(), valid_steps = totals[2].item<double>();
  Evaluation result{.loss = totals[0].item<double>() / std::max(1.0, frames),
                    .frames = static_cast<int64_t>(frames),
                    .all = errors_of(errors, valid_steps)};
  for (int64_t i = 0; i < errors.size(2); ++i) result.dimensions.push_back(errors_of(errors.slice(2, i, i + 1), valid_steps));
  return result;
}

}  // namespace vla
