// Each rank fits y = 2x on its own points; the ranks end with the same weight.
#include <cmath>
#include <cstdio>

#include <cxxrun/ddp.hpp>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

int main() {
  const auto env = cxxrun::WorkerEnv::read();
  const cxxrun::World world(env, cxxrun::choose_device("cpu", env));
  const auto net = torch::nn::Linear(1, 1);
  cxxrun::DistributedDataParallel<torch::nn::LinearImpl> ddp(net.ptr(), world.group());
  torch::optim::SGD optimizer(ddp.module().parameters(), 0.1);
  const auto x = torch::linspace(0, 1, 8).reshape({8, 1}) + static_cast<double>(world.rank());
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    ddp.forward([&](auto& module) { return (module.forward(x) - 2 * x).square().mean(); }).backward();
    optimizer.step();
  }
  auto spread = net->weight.detach().clone();
  world.all_reduce_sum(spread);
  const double weight = net->weight.item<double>();
  std::printf("rank %ld of %ld: weight %.4f\n", static_cast<long>(world.rank()), static_cast<long>(world.size()), weight);
  const bool equal = std::abs(spread.item<double>() / static_cast<double>(world.size()) - weight) < 1e-6;
  return equal && std::abs(weight - 2) < 0.05 ? 0 : 1;
}
