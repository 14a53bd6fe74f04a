#include "worker/policies/nn/counter_random.hpp"

#include <torch/torch.h>

#include "worker/cuda/counter_random.hpp"
#include "worker/policies/nn/device_kernel.hpp"

namespace vla {
namespace {

// `output` and, for dropout, `input` are contiguous [outer, rows, inner]. `step` may be undefined.
void run(CounterFill fill, const at::Tensor& position, const at::Tensor& step, const at::Tensor& input, at::Tensor& output) {
  TORCH_CHECK(position.device() == output.device() && position.scalar_type() == at::kLong, "position must be int64 on ", output.device());
  fill.position = position.const_data_ptr<int64_t>();
  if (step.defined()) {
    TORCH_CHECK(step.device() == output.device() && step.scalar_type() == at::kLong, "the step must be int64 on ", output.device());
    fill.step_on_device = step.const_data_ptr<int64_t>();
  }
  run_kernel(
      output, [&](cudaStream_t stream) { return counter_fill_cuda(fill, in_ptr(input), out_ptr(output), element_of(output), stream); },
      [&](auto element) {
        using T = decltype(element);
        const int64_t blocks = fill.blocks_per_row();
        for_each(fill.rows * blocks, [&](int64_t i) { counter_fill_block(fill, in_ptr<T>(input), out_ptr<T>(output), i / blocks, i % blocks); }, 1024);
      });
}

// Draws the mask again in backward instead of keeping it: the numbers are cheaper than the memory traffic.
struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& position,
                            const std::optional<at::Tensor>& device_step, const CounterFill& fill) {
    const at::Tensor step = device_step.value_or(at::Tensor());
    context->save_for_backward({position, step});
    context->saved_data["seed"] = static_cast<int64_t>(fill.seed);
    context->saved_data["step"] = static_cast<int64_t>(fill.step);
    context->saved_data["stream"] = static_cast<int64_t>(fill.stream);
    context->saved_data["p"] = fill.drop_probability;
    context->saved_data["shape"] = std::vector<int64_t>{fill.outer, fill.rows, fill.inner};
    return apply_mask(x, position, step, fill);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradient) {
    auto& saved = context->saved_data;
    const std::vector<int64_t> shape = saved["shape"].toIntVector();
    const CounterFill fill{.kind = CounterFill::Kind::kDropout, .drop_probability = saved["p"].toDouble(),
                           .seed = static_cast<uint64_t>(saved["seed"].toInt()), .step = static_cast<uint32_t>(saved["step"].toInt()),
                           .stream = static_cast<uint32_t>(saved["stream"].toInt()), .outer = shape[0], .rows = shape[1],
                           .inner = shape[2]};
    const auto tensors = context->get_saved_variables();
    return {apply_mask(gradient[0], tensors[0], tensors[1], fill), {}, {}, {}};
  }

  static at::Tensor apply_mask(const at::Tensor& x, const at::Tensor& position, const at::Tensor& step, const CounterFill& fill) {
    const at::Tensor input = x.contiguous();
    at::Tensor output = at::empty_like(input);
    run(fill, position, step, input, output);
    return output;
  }
};

}  // namespace

uint32_t random_stream(std::string_view name) {  // FNV-1a
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash;
}

StepRandom StepRandom::for_batch() const {
  StepRandom shared = *this;
  shared.position_ = at::zeros({1}, position_.options());
  return shared;
}

at::Tensor StepRandom::draw(CounterFill fill, at::IntArrayRef shape, at::ScalarType dtype) const {
  std::vector<int64_t> sizes{position_.size(0)};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  if (const auto given = replaced_.find(fill.stream); given != replaced_.end()) {
    TORCH_CHECK(given->second.sizes() == sizes, "given random numbers have shape ", given->second.sizes(), ", needed are ", sizes);
    return given->second.to(position_.device(), dtype);
  }
  at::Tensor output = at::empty(sizes, position_.options().dtype(dtype));
  fill.seed = seed_;
  fill.step = static_cast<uint32_t>(step_);
  fill.rows = position_.size(0);
  fill.inner = c10::multiply_integers(shape);
  run(fill, position_, step_on_device_, {}, output);
  return output;
}

at::Tensor StepRandom::normal(uint32_t stream, at::IntArrayRef shape, at::ScalarType dtype) const {
  return draw({.kind = CounterFill::Kind::kNormal, .stream = stream}, shape, dtype);
}

at::Tensor StepRandom::uniform(uint32_t stream, at::IntArrayRef shape, at::ScalarType dtype) const {
  return draw({.kind = CounterFill::Kind::kUniform, .stream = stream}, shape, dtype);
}

at::Tensor StepRandom::dropout(const at::Tensor& x, double p, uint32_t stream, int64_t batch_dim) const {
  if (p == 0) return x;
  const int64_t rows = position_.size(0);
  TORCH_CHECK(x.size(batch_dim) == rows, "dropout: dimension ", batch_dim, " of ", x.sizes(), " must hold the ", rows, " rows");
  const auto sizes = x.sizes();
  const CounterFill fill{.kind = CounterFill::Kind::kDropout, .drop_probability = p, .seed = seed_, .step = static_cast<uint32_t>(step_),
                         .stream = stream, .outer = c10::multiply_integers(sizes.slice(0, batch_dim)), .rows = rows,
                         .inner = c10::multiply_integers(sizes.slice(batch_dim + 1))};
  return Dropout::apply(x, position_, if_defined(step_on_device_), fill);
}

}  // namespace vla
