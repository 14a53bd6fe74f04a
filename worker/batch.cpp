#include "worker/batch.hpp"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "worker/image_ops.hpp"

namespace vla {
namespace {

at::ScalarType scalar_type(data::DType dtype) {
  switch (dtype) {
    case data::DType::kUInt8: return at::kByte;
    case data::DType::kBool: return at::kBool;
    case data::DType::kInt64: return at::kLong;
    case data::DType::kFloat32: return at::kFloat;
  }
  throw cxxrun::Error("unknown dtype in a slot");
}

struct RawFields {
  std::vector<at::Tensor> fields;
  at::Tensor weight, position, sample;
};

RawFields copy_to(const data::Slot& slot, const data::SampleLayout& layout, at::Device device) {
  const int64_t rows = static_cast<int64_t>(slot.batch.rows.size());
  const auto offsets = layout.offsets(rows);
  RawFields raw;
  for (size_t i = 0; i < layout.fields.size(); ++i) {
    const data::Field& field = layout.fields[i];
    std::vector<int64_t> shape{rows};
    shape.insert(shape.end(), field.shape.begin(), field.shape.end());
    const at::Tensor view = at::from_blob(slot.data + offsets[i], shape, at::TensorOptions(scalar_type(field.dtype)));
    raw.fields.push_back(view.to(device, view.scalar_type(), /*non_blocking=*/true, /*copy=*/true));
  }
  at::Tensor weight = at::empty({rows}, at::kFloat), position = at::empty({rows}, at::kLong), sample = at::empty({rows}, at::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    weight.data_ptr<float>()[row] = slot.batch.rows[row].is_padding ? 0 : 1;
    position.data_ptr<int64_t>()[row] = slot.batch.rows[row].position;
    sample.data_ptr<int64_t>()[row] = slot.batch.rows[row].sample;
  }
  raw.weight = weight.to(device);
  raw.position = position.to(device);
  raw.sample = sample.to(device);
  return raw;
}

// Copies on a stream of its own and waits for the copies alone: the slot is free when we return, and the computations queued
// before go on meanwhile. One stream a thread: a process trains on one device.
RawFields copy_on_side_stream(const data::Slot& slot, const data::SampleLayout& layout, at::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream compute = guard.getStream(device);
  static thread_local const c10::Stream copy = guard.getStreamFromGlobalPool(device);
  RawFields raw;
  {
    const c10::StreamGuard on_copy(copy);
    raw = copy_to(slot, layout, device);
    c10::Event copied(device.type());
    copied.record(copy);
    copied.synchronize();
  }
  for (const at::Tensor& field : raw.fields) field.record_stream(compute);
  raw.weight.record_stream(compute);
  raw.position.record_stream(compute);
  raw.sample.record_stream(compute);
  return raw;
}

}  // namespace

const at::Tensor& Batch::at(const std::string& key) const {
  const auto field = fields.find(key);
  if (field == fields.end()) throw cxxrun::Error("the batch has no field '{}'", key);
  return field->second;
}

at::Tensor valid_actions(const Batch& batch) { return batch.at("action_is_pad").logical_not() * batch.weight.unsqueeze(1); }

void convert_features(Batch& batch, at::ScalarType floating) {
  for (auto& [key, field] : batch.fields) {
    if (field.is_floating_point()) field = field.to(floating);
  }
}

Batch make_batch(const data::Slot& slot, const data::SampleLayout& layout, at::Device device, at::ScalarType floating, bool keep_bytes) {
  RawFields raw = device.is_cpu() ? copy_to(slot, layout, device) : copy_on_side_stream(slot, layout, device);
  Batch batch;
  batch.step = slot.batch.step;
  batch.weight = raw.weight;
  batch.position = raw.position;
  batch.sample = raw.sample;
  for (size_t i = 0; i < layout.fields.size(); ++i) {
    at::Tensor field = raw.fields[i];
    if (field.scalar_type() == at::kByte) {
      field = field.movedim(-1, -3);  // [.., H, W, C] -> [.., C, H, W] with channels-last strides
      if (!keep_bytes) field = images_to_float(field);
    }
    batch.fields[layout.fields[i].key] = field.is_floating_point() ? field.to(floating) : field;
  }
  return batch;
}

}  // namespace vla
