// Run by cxxrun: every test is executed by all ranks together.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "worker/distributed/bucket_shares.hpp"
#include "worker/distributed/ddp.hpp"
#include "worker/distributed/process_group.hpp"

namespace cxxrun {
namespace {

using Reduction = DdpOptions::Reduction;

const World& world() {
  // CXXRUN_TEST_DEVICE=cuda: the same tests with NCCL.
  static const WorkerEnv env = WorkerEnv::read();
  static const World world(env, choose_device(environment_variable("CXXRUN_TEST_DEVICE").value_or("cpu"), env), {.timeout = std::chrono::seconds(30)});
  return world;
}

struct TwoLayers : torch::nn::Module {
  TwoLayers() {
    torch::manual_seed(100 + world().rank());  // ranks start apart on purpose
    first = register_module("first", torch::nn::Linear(4, 8));
    second = register_module("second", torch::nn::Linear(8, 2));
    unused = register_module("unused", torch::nn::Linear(8, 2));
    statistics = register_buffer("statistics", torch::full({3}, static_cast<double>(world().rank())));
    to(world().device(), torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(first(x))); }
  torch::Tensor forward_all(const torch::Tensor& x) { return forward(x) + unused(torch::relu(first(x))); }

  torch::nn::Linear first{nullptr}, second{nullptr}, unused{nullptr};
  torch::Tensor statistics;
};

torch::Tensor inputs_of(int64_t rank, int64_t call = 0) {
  torch::manual_seed(1000 * call + rank);
  return torch::randn({5, 4}, torch::kDouble).to(world().device());
}

// The slow, obviously right engine: gradients of the sum of the losses of ranks [begin, end), computed by one rank.
std::vector<torch::Tensor> gradients_of_ranks(TwoLayers& net, int64_t begin, int64_t end, double scale, int64_t calls = 1, int64_t first_call = 0) {
  auto copy = std::make_shared<TwoLayers>();
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < copy->parameters().size(); ++i) copy->parameters()[i].copy_(net.parameters()[i]);
  torch::AutoGradMode grad(true);
  torch::Tensor loss = torch::zeros({}, torch::kDouble);
  for (int64_t call = first_call; call < first_call + calls; ++call) {
    for (int64_t rank = begin; rank < end; ++rank) loss = loss + copy->forward_all(inputs_of(rank, call)).square().sum();
  }
  (loss * scale).backward();
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : copy->parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

std::vector<torch::Tensor> expected_gradients(TwoLayers& net, double scale, int64_t calls = 1) {
  return gradients_of_ranks(net, 0, world().size(), scale, calls);
}

void expect_gradients(const TwoLayers& net, const std::vector<torch::Tensor>& expected) {
  const auto parameters = net.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(torch::allclose(parameters[i].grad(), expected[i], 1e-12, 1e-12)) << "parameter " << i << " rank " << world().rank();
  }
}

struct DdpTest : testing::Test {
  std::shared_ptr<TwoLayers> net = std::make_shared<TwoLayers>();

  template <class Ddp>
  void step(Ddp& ddp, int64_t call = 0) {
    ddp.forward([&](TwoLayers& module) { return module.forward_all(inputs_of(world().rank(), call)).square().sum(); }).backward();
  }
  void clear_gradients() {
    for (auto& parameter : net->parameters()) {
      if (parameter.grad().defined()) parameter.mutable_grad().zero_();
    }
  }
};

TEST_F(DdpTest, StartsAllRanksFromRankZeroParametersAndBuffers) {
  DistributedDataParallel<TwoLayers> ddp(net, world().group());
  torch::manual_seed(100);
  const torch::nn::Linear reference(4, 8);
  EXPECT_TRUE(torch::equal(net->first->weight.cpu(), reference->weight.to(torch::kDouble)));
  EXPECT_EQ(net->statistics.sum().item<double>(), 0);
}

TEST_F(DdpTest, MeanReductionAveragesGradientsOverRanks) {
  DistributedDataParallel<TwoLayers> ddp(net, world().group());
  step(ddp);
  expect_gradients(*net, expected_gradients(*net, 1.0 / static_cast<double>(world().size())));
}

TEST_F(DdpTest, SumReductionAddsGradientsOfRanksInManySmallBuckets) {
  DistributedDataParallel<TwoLayers> ddp(net, world().group(), {.reduction = Reduction::kSum, .bucket_bytes = 64, .first_bucket_bytes = 64,
                                           .gradient_as_bucket_view = true});
  for (int repeat = 0; repeat < 3; ++repeat) {  // buckets are rebuilt after the first step
    clear_gradients();
    step(ddp);
    expect_gradients(*net, expected_gradients(*net, 1.0));
  }
}

// A weight's gradient is written where it is reduced, by the block that computes it.
struct WrittenInPlace : torch::autograd::Function<WrittenInPlace> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight,
                               const std::function<torch::Tensor(const torch::Tensor&)>& place_of) {
    context->save_for_backward({x, weight});
    find = place_of;
    return at::linear(x, weight);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    torch::Tensor place = find(saved[1]);
    if (!place.defined()) return {{}, at::mm(gradients[0].t(), saved[0]), {}};
    ++written;
    return {{}, at::mm_out(place, gradients[0].t(), saved[0]), {}};
  }
  inline static std::function<torch::Tensor(const torch::Tensor&)> find;
  inline static int written = 0;
};

TEST_F(DdpTest, GradientsThatAreReleasedAfterEachStepAreReducedWhereverTheyAreComputed) {
  DistributedDataParallel<TwoLayers> ddp(net, world().group(), {.reduction = Reduction::kSum, .bucket_bytes = 128, .first_bucket_bytes = 64,
                                           .gradient_as_bucket_view = true});
  const auto place_of = [&](const torch::Tensor& weight) { return ddp.take_gradient_place(weight); };
  const auto written_step = [&](int64_t call) {
    ddp.forward([&](TwoLayers& module) {
      // `first` takes part twice, and its weight is seen through another view of it: only one of the two may write.
      const torch::Tensor x = inputs_of(world().rank(), call);
      const auto hidden = torch::relu(WrittenInPlace::apply(x, module.first->weight.flatten().view({8, 4}), place_of) + module.first->bias);
      return (module.second(hidden) + module.unused(torch::relu(module.first(x)))).square().sum();
    }).backward();
  };
  const auto release = [&] {
    for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::Tensor();
  };
  WrittenInPlace::written = 0;
  for (int64_t call = 0; call < 5; ++call) {
    written_step(call);
    expect_gradients(*net, gradients_of_ranks(*net, 0, world().size(), 1.0, 1, call));
    release();
  }
  EXPECT_GE(WrittenInPlace::written, 3) << "places are known when the buckets have been settled";
  EXPECT_FALSE(ddp.take_gradient_place(net->first->weight).defined()) << "no backward runs";

  // Not where there is something to add to: without a reduction, and in the step after that.
  const int written = WrittenInPlace::written;
  ddp.set_sync(false);
  written_step(0);
  ddp.set_sync(true);
  written_step(1);
  expect_gradients(*net, expected_gradients(*net, 1.0, 2));
  EXPECT_EQ(WrittenInPlace::written, written);
}

TEST_F(DdpTest, StepsWithoutSyncAccumulateAndTheNextOneSendsTheSum) {
  DistributedDataParallel<TwoLayers> ddp(net, world().group(), {.reduction = Reduction::kSum});
  ddp.set_sync(false);
  step(ddp, 0);
  step(ddp, 1);
  ddp.set_sync(true);
  step(ddp, 2);
  expect_gradients(*net, expected_gradients(*net, 1.0, 3));
}

// What each rank sends is rounded, and so is every sum on the way: there is one for two ranks.
TEST_F(DdpTest, GradientsTravelInBfloat16AndKeepTheirOwnType) {
  const auto rounded = [](const torch::Tensor& gradient) { return gradient.to(torch::kBFloat16).to(torch::kDouble); };
  for (const auto& [reduction, view] : {std::pair(Reduction::kSum, true), std::pair(Reduction::kMean, true), std::pair(Reduction::kMean, false)}) {
    net = std::make_shared<TwoLayers>();
    DistributedDataParallel<TwoLayers> ddp(net, world().group(), {.reduction = reduction, .bucket_bytes = 64, .first_bucket_bytes = 64,
                                             .gradient_as_bucket_view = view, .communication_dtype = torch::kBFloat16});
    const double scale = reduction == Reduction::kSum ? 1 : 1.0 / static_cast<double>(world().size());
    std::vector<torch::Tensor> sums, magnitudes;
    for (const auto& parameter : net->parameters()) {
      sums.push_back(torch::zeros_like(parameter));
      magnitudes.push_back(torch::zeros_like(parameter));
    }
    for (int64_t rank = 0; rank < world().size(); ++rank) {
      const auto gradients = gradients_of_ranks(*net, rank, rank + 1, scale);
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i] += rounded(gradients[i]);
        magnitudes[i] += rounded(gradients[i]).abs();
      }
    }
    for (int repeat = 0; repeat < 3; ++repeat) {
      clear_gradients();
      step(ddp);
      for (size_t i = 0; i < sums.size(); ++i) {
        const torch::Tensor gradient = net->parameters()[i].grad();
        EXPECT_TRUE(gradient.equal(rounded(gradient))) << "parameter " << i << " was not rounded";
        const bool exact = world().size() <= 2;
        const torch::Tensor allowed = magnitudes[i] * (exact ? 0 : static_cast<double>(world().size()) / 256);
        EXPECT_TRUE(((gradient - (exact ? rounded(sums[i]) : sums[i])).abs() <= allowed).all().item<bool>()) << "parameter " << i;
      }
    }
  }
}

// Gradient descent by shares, from the second step on, is gradient descent. Buckets of one parameter each: those of 2 elements are not divided.
TEST_F(DdpTest, RanksThatUpdateTheirSharesHaveAllParameters) {
  DistributedDataParallel<TwoLayers> ddp(net, world().group(), {.reduction = Reduction::kSum, .bucket_bytes = 0, .first_bucket_bytes = 0,
                                           .gradient_as_bucket_view = true, .shares_updates = true});
  BucketShares* shares = nullptr;
  for (int64_t call = 0; call < 4; ++call) {
    clear_gradients();
    const auto gradients = gradients_of_ranks(*net, 0, world().size(), 1.0, 1, call);
    std::vector<torch::Tensor> expected;
    for (size_t i = 0; i < gradients.size(); ++i) expected.push_back(net->parameters()[i].detach() - 0.01 * gradients[i]);
    step(ddp, call);
    BucketShares* begun = ddp.begin_sharing();
    ASSERT_EQ(begun != nullptr, call == 1) << "call " << call;
    if (begun != nullptr) shares = begun;

    const torch::NoGradGuard no_grad;
    if (shares == nullptr) {
      for (auto& parameter : net->parameters()) parameter.sub_(0.01 * parameter.grad());
    } else {
      ASSERT_EQ(shares->buckets().size(), 6);
      for (size_t i = 0; i < shares->buckets().size(); ++i) {
        const BucketShares::Bucket& bucket = shares->buckets()[i];
        EXPECT_EQ(bucket.is_divided(), world().size() > 1 && bucket.numel % (2 * world().size()) == 0) << bucket.numel;
        torch::Tensor parameter = bucket.parameters.at(0);
        parameter.view(-1).slice(0, bucket.begin, bucket.end).sub_(0.01 * parameter.grad().view(-1).slice(0, bucket.begin, bucket.end));
        shares->gather_parameters(i);
      }
      shares->wait();
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(net->parameters()[i].allclose(expected[i], 1e-12, 1e-12)) << "parameter " << i << " after call " << call;
    }
  }
}

TEST_F(DdpTest, UnusedParametersGetZeroGradientsWhenSearchedFor) {
  DistributedDataParallel<TwoLayers> ddp(net, world().group(), {.find_unused_parameters = true});
  for (int repeat = 0; repeat < 2; ++repeat) {
    ddp.forward([&](TwoLayers& module) { return module.forward(inputs_of(world().rank())).square().sum(); }).backward();
  }
  EXPECT_TRUE(!net->unused->weight.grad().defined() || net->unused->weight.grad().abs().sum().item<double>() == 0);
  EXPECT_GT(net->first->weight.grad().abs().sum().item<double>(), 0);
}

TEST_F(DdpTest, UnusedParametersAreAnErrorThatNamesTheRemedyByDefault) {
  DistributedDataParallel<TwoLayers> ddp(net, world().group());
  const auto without_unused = [&] {
    ddp.forward([&](TwoLayers& module) { return module.forward(inputs_of(world().rank())).square().sum(); }).backward();
  };
  without_unused();
  try {
    without_unused();
    FAIL() << "the second step should have been refused";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("find_unused_parameters"));
  }
}

TEST_F(DdpTest, ForwardWithoutGradientLeavesTheReducerAlone) {
  DistributedDataParallel<TwoLayers> ddp(net, world().group());
  step(ddp);
  {
    torch::NoGradGuard no_grad;
    ddp.forward([&](TwoLayers& module) { return module.forward(inputs_of(0)); });
  }
  for (auto& parameter : net->parameters()) parameter.mutable_grad().zero_();
  step(ddp);
  expect_gradients(*net, expected_gradients(*net, 1.0 / static_cast<double>(world().size())));
}

struct Weights : torch::nn::Module {
  explicit Weights(at::ScalarType dtype) {
    const int64_t unit = world().device().is_cuda() ? 1 << 20 : 1 << 12;
    for (int64_t i = 0; i < 24; ++i) register_parameter(std::to_string(i), torch::zeros({unit * (1 + i % 5)}, dtype));
    to(world().device());
  }
  // Small whole numbers, other ones for each parameter of one size.
  static torch::Tensor numbers(const torch::Tensor& weight, int64_t i) {
    return torch::arange(weight.numel(), at::TensorOptions(at::kLong).device(weight.device())).add(i).remainder(7).to(weight.scalar_type());
  }
};

// Many buckets, some of one size, whose memory need not lie alike on all ranks.
TEST(Ddp, AddsUpEachBucketWithItselfOnTheOtherRanks) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto weights = std::make_shared<Weights>(dtype);
    DistributedDataParallel<Weights> ddp(weights, world().group(), {.reduction = Reduction::kSum, .bucket_bytes = 1 << 20, .gradient_as_bucket_view = true});
    for (int repeat = 0; repeat < 3; ++repeat) {  // buckets are rebuilt after the first step
      for (auto& weight : weights->parameters()) {
        if (weight.grad().defined()) weight.mutable_grad().zero_();
      }
      ddp.forward([&](Weights& module) {
           torch::Tensor sum = torch::zeros({}, at::TensorOptions(dtype).device(world().device()));
           for (size_t i = 0; i < module.parameters().size(); ++i) {
             const torch::Tensor weight = module.parameters()[i];
             sum = sum + (weight * Weights::numbers(weight, static_cast<int64_t>(i)) * (world().rank() + 1)).sum();
           }
           return sum;
         }).backward();
      const int64_t ranks = world().size() * (world().size() + 1) / 2;
      for (size_t i = 0; i < weights->parameters().size(); ++i) {
        const torch::Tensor weight = weights->parameters()[i];
        const torch::Tensor expected = Weights::numbers(weight.detach(), static_cast<int64_t>(i)).to(at::kFloat) * ranks;
        EXPECT_TRUE(weight.grad().equal(expected.to(dtype))) << "parameter " << i << " step " << repeat;
      }
    }
  }
}

TEST(Ddp, RefusesAModuleWithoutTrainableParameters) {
  auto frozen = std::make_shared<TwoLayers>();
  for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  EXPECT_THROW(DistributedDataParallel<TwoLayers>(frozen, world().group()), Error);
}

TEST(World, AddsUpTensorsOfAllRanks) {
  const auto size = static_cast<double>(world().size());
  for (const auto sum : {&World::all_reduce_sum, &World::all_reduce_sum_apart, &World::all_reduce_sum_apart}) {
    auto value = torch::tensor({1.0, static_cast<double>(world().rank())}, torch::kDouble).to(world().device());
    (world().*sum)(value);
    EXPECT_EQ(value[0].item<double>(), size);
    EXPECT_EQ(value[1].item<double>(), size * (size - 1) / 2);
  }
}

TEST(World, SendsTextFromRankZero) {
  EXPECT_EQ(world().broadcast(world().rank() == 0 ? std::string("hello") : std::string("other text")), "hello");
  EXPECT_EQ(world().broadcast(std::string(world().rank() == 0 ? "" : "x")), "");
}

TEST(ChooseDevice, RefusesAnUnknownDevice) {
  EXPECT_THROW(choose_device("tpu", WorkerEnv{}), UsageError);
  EXPECT_EQ(choose_device("cpu", WorkerEnv{}), at::Device(at::kCPU));
}

TEST(ChooseDevice, NamesBothNumbersWhenThereAreTooFewGpus) {
  WorkerEnv env;
  env.local_rank = 99;
  env.local_world_size = 100;
  try {
    choose_device("cuda", env);
    FAIL() << "no machine has 100 GPUs";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("99"), testing::HasSubstr("100"), testing::HasSubstr("--device cpu")));
  }
}

}  // namespace
}  // namespace cxxrun
