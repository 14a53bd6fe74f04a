#include "worker/policies/nn/activation_checkpoint.hpp"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

namespace vla {
namespace {

constexpr at::DeviceType kAutocastDevices[] = {at::kCPU, at::kCUDA};

struct AutocastState {
  struct Device {
    bool enabled;
    at::ScalarType dtype;
  };
  Device devices[std::size(kAutocastDevices)];
  bool cache;

  static AutocastState current() {
    AutocastState state{.devices = {}, .cache = at::autocast::is_autocast_cache_enabled()};
    for (size_t i = 0; i < std::size(kAutocastDevices); ++i) {
      state.devices[i] = {at::autocast::is_autocast_enabled(kAutocastDevices[i]), at::autocast::get_autocast_dtype(kAutocastDevices[i])};
    }
    return state;
  }

  void set() const {
    for (size_t i = 0; i < std::size(kAutocastDevices); ++i) {
      at::autocast::set_autocast_enabled(kAutocastDevices[i], devices[i].enabled);
      at::autocast::set_autocast_dtype(kAutocastDevices[i], devices[i].dtype);
    }
    at::autocast::set_autocast_cache_enabled(cache);
  }
};

class AutocastScope {
 public:
  // Casts of weights are not cached inside: those of a forward without gradients would cut other uses of the weight off.
  explicit AutocastScope(AutocastState state) {
    state.cache = false;
    state.set();
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;
  ~AutocastScope() { outer_.set(); }

 private:
  AutocastState outer_ = AutocastState::current();
};

struct SavedSegment : torch::CustomClassHolder {
  SavedSegment(Segment segment, size_t inputs) : function(std::move(segment)), input_count(inputs) {}

  Segment function;
  size_t input_count;  // the other tensors are parameters
  AutocastState autocast = AutocastState::current();
};

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const c10::intrusive_ptr<SavedSegment>& segment,
                            at::TensorList tensors) {
    context->save_for_backward(tensors.vec());
    context->saved_data["segment"] = at::IValue::make_capsule(segment);
    const AutocastScope autocast(segment->autocast);
    return segment->function(tensors.slice(0, segment->input_count).vec());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradient) {
    const auto segment = c10::static_intrusive_pointer_cast<SavedSegment>(context->saved_data["segment"].toCapsule());
    std::vector<at::Tensor> tensors = context->get_saved_variables(), wanted;
    std::vector<size_t> places;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const bool requires_grad = tensors[i].requires_grad();
      // Inputs are cut from the graph before them; the segment itself refers to the parameters.
      if (i < segment->input_count) tensors[i] = tensors[i].detach().set_requires_grad(requires_grad);
      if (!requires_grad || !context->needs_input_grad(i)) continue;
      wanted.push_back(tensors[i]);
      places.push_back(i);
    }
    at::Tensor output;
    {
      const at::AutoGradMode with_gradient(true);
      const AutocastScope autocast(segment->autocast);
      output = segment->function({tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(segment->input_count)});
    }
    torch::autograd::variable_list gradients(1 + tensors.size());
    const auto found = torch::autograd::grad({output}, wanted, gradient, /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < places.size(); ++i) gradients[1 + places[i]] = found[i];
    return gradients;
  }
};

}  // namespace

at::Tensor checkpoint(Segment segment, std::vector<at::Tensor> inputs, const std::vector<at::Tensor>& parameters) {
  if (!at::GradMode::is_enabled()) return segment(inputs);
  const auto saved = c10::make_intrusive<SavedSegment>(std::move(segment), inputs.size());
  std::vector<at::Tensor> tensors = std::move(inputs);
  for (const at::Tensor& parameter : parameters) {
    if (parameter.requires_grad()) tensors.push_back(parameter);
  }
  return Checkpoint::apply(saved, at::TensorList(tensors));  // a std::vector would not count as tensors
}

at::Tensor checkpoint_if(bool enabled, const torch::nn::Module& layer, Segment segment, std::vector<at::Tensor> inputs) {
  return enabled ? checkpoint(std::move(segment), std::move(inputs), layer.parameters()) : segment(inputs);
}

}  // namespace vla
