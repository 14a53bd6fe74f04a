#include "worker/optim/update_table.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

#include <ATen/Parallel.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/torch.h>

#include "worker/cuda/fused_adamw.hpp"

namespace vla {
namespace {

auto address_of(const UpdateRow& row) {
  return std::tie(row.parameter, row.gradient, row.master, row.exp_avg, row.exp_avg_sq, row.step, row.lr, row.average, row.numel, row.types);
}

template <class T>
T* pointer(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

// Chunks `first` to `end`.
UpdateTableView view(const torch::Tensor& table, size_t rows, size_t first, size_t end) {
  const auto* bytes = static_cast<const std::byte*>(table.const_data_ptr());
  return {.rows = reinterpret_cast<const UpdateRow*>(bytes),
          .row_count = static_cast<int64_t>(rows),
          .chunks = reinterpret_cast<const UpdateChunk*>(bytes + rows * sizeof(UpdateRow)) + first,
          .chunk_count = static_cast<int64_t>(end - first)};
}

template <class T>
float squares(const UpdateRow& row, int64_t first, int64_t end) {
  double sum = 0;
  for (int64_t i = first; i < end; ++i) {
    const auto x = static_cast<float>(static_cast<const T*>(row.gradient)[i]);
    sum += static_cast<double>(x) * x;
  }
  return static_cast<float>(sum);
}

// Element for element; strides of dimensions of size 1 mean nothing.
bool lie_alike(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  if (a.is_contiguous() && b.is_contiguous()) return true;
  for (int64_t i = 0; i < a.dim(); ++i) {
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return a.is_non_overlapping_and_dense();
}

}  // namespace

bool fits_update_table(const torch::Tensor& parameter) {
  return parameter.scalar_type() == torch::kFloat || parameter.scalar_type() == torch::kBFloat16;
}

UpdateRow update_row(const UpdateTensors& t) {
  TORCH_CHECK(fits_update_table(t.parameter), "parameters of type ", t.parameter.scalar_type(), " are not updated in one pass");
  const bool is_bfloat16 = t.parameter.scalar_type() == torch::kBFloat16;
  const torch::Tensor& master = t.master.defined() ? t.master : t.parameter;
  const UpdateTypes types = !is_bfloat16          ? UpdateTypes::kFloat32
                            : t.master.defined() ? UpdateTypes::kBFloat16WithFloat32State
                                                 : UpdateTypes::kBFloat16;
  const auto check = [&](const torch::Tensor& tensor, at::ScalarType type, const char* what) {
    if (!tensor.defined()) return;
    TORCH_CHECK(lie_alike(tensor, t.parameter) && tensor.scalar_type() == type && tensor.device() == t.parameter.device(),
                "the ", what, " is unlike its parameter ", t.parameter.sizes());
  };
  check(t.parameter, t.parameter.scalar_type(), "parameter");
  check(t.gradient, t.parameter.scalar_type(), "gradient");
  check(t.average, torch::kFloat, "average");
  TORCH_CHECK(!t.gradient.defined() || (t.exp_avg.defined() && t.exp_avg_sq.defined() && t.step.defined() && t.lr.defined()),
              "a gradient without moments");
  for (const torch::Tensor& tensor : {master, t.exp_avg, t.exp_avg_sq}) {
    check(tensor, types == UpdateTypes::kBFloat16 ? torch::kBFloat16 : torch::kFloat, "optimizer's state");
  }
  UpdateRow row{.parameter = pointer<void>(t.parameter),
                .gradient = pointer<void>(t.gradient),
                .master = pointer<void>(master),
                .exp_avg = pointer<void>(t.exp_avg),
                .exp_avg_sq = pointer<void>(t.exp_avg_sq),
                .step = pointer<float>(t.step),
                .lr = pointer<float>(t.lr),
                .average = pointer<float>(t.average),
                .numel = t.parameter.numel(),
                .types = types};
  const auto misalignment = [lanes = static_cast<uintptr_t>(update_lanes(types))](const torch::Tensor& tensor) {
    return tensor.defined() ? reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % (lanes * tensor.element_size()) : 0;
  };
  row.is_aligned = misalignment(t.parameter) + misalignment(t.gradient) + misalignment(master) + misalignment(t.exp_avg) +
                       misalignment(t.exp_avg_sq) + misalignment(t.average) ==
                   0;
  return row;
}

void UpdateTable::set_rows(std::vector<UpdateRow> rows, torch::Device device) {
  std::vector<UpdatePart> whole;
  for (size_t row = 0; row < rows.size(); ++row) whole.push_back({.row = static_cast<int64_t>(row), .first = 0, .end = rows[row].numel});
  set_rows(std::move(rows), {whole}, device);
}

void UpdateTable::set_rows(std::vector<UpdateRow> rows, const UpdateGroups& groups, torch::Device device) {
  const auto is_same = [](const UpdateRow& a, const UpdateRow& b) { return address_of(a) == address_of(b); };
  if (host_.defined() && device == device_ && std::ranges::equal(rows, rows_, is_same)) return;
  const bool captured = device.is_cuda() && c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
  device_ = device;
  rows_ = std::move(rows);
  chunks_.clear();
  group_ends_.clear();
  for (const std::vector<UpdatePart>& group : groups) {
    for (const UpdatePart& part : group) {
      for (int64_t first = part.first, end = 0; first < part.end; first = end) {
        end = std::min(part.end, (first / kUpdateChunk + 1) * kUpdateChunk);
        chunks_.push_back({.row = part.row, .first = first, .end = end, .in_norm = part.in_norm});
      }
    }
    group_ends_.push_back(chunks_.size());
  }
  const size_t row_bytes = rows_.size() * sizeof(UpdateRow), chunk_bytes = chunks_.size() * sizeof(UpdateChunk);
  const auto size = static_cast<int64_t>(row_bytes + chunk_bytes);
  if (captured) {
    // Every run of the graph copies the table again, from memory that was made before and is nobody else's.
    TORCH_CHECK(spare_.defined() && spare_.numel() == size, "no memory for the addresses of a captured step's gradients");
    // Neither may be freed: their allocator would record an event in the graph.
    of_graphs_.push_back(std::exchange(host_, std::exchange(spare_, {})));
    of_graphs_.push_back(host_);
  } else {
    const auto allocate = [&] { return torch::empty({size}, torch::dtype(torch::kByte).pinned_memory(device.is_cuda())); };
    host_ = allocate();
    if (device.is_cuda() && (!spare_.defined() || spare_.numel() != size)) spare_ = allocate();
  }
  auto* bytes = static_cast<std::byte*>(host_.mutable_data_ptr());
  if (row_bytes > 0) std::memcpy(bytes, rows_.data(), row_bytes);
  if (chunk_bytes > 0) std::memcpy(bytes + row_bytes, chunks_.data(), chunk_bytes);
  on_device_ = host_.to(device, /*non_blocking=*/true);
  partial_ = torch::empty({static_cast<int64_t>(chunks_.size())}, torch::dtype(torch::kFloat).device(device));
}

void UpdateTable::gradient_norm(double limit, torch::Tensor& norm, torch::Tensor& factor) const {
  if (device_.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device_);
    C10_CUDA_CHECK(gradient_norm_cuda(view(on_device_, rows_.size(), 0, chunks_.size()), static_cast<float>(limit),
                                      partial_.mutable_data_ptr<float>(), norm.mutable_data_ptr<float>(), factor.mutable_data_ptr<float>(),
                                      c10::cuda::getCurrentCUDAStream().stream()));
    return;
  }
  norm_of(torch::scalar_tensor(sum_on_cpu(), torch::kDouble), limit, norm, factor);
}

void UpdateTable::sum_of_squares(torch::Tensor& sum) const {
  if (device_.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device_);
    C10_CUDA_CHECK(sum_of_squares_cuda(view(on_device_, rows_.size(), 0, chunks_.size()), partial_.mutable_data_ptr<float>(),
                                       sum.mutable_data_ptr<double>(), c10::cuda::getCurrentCUDAStream().stream()));
    return;
  }
  sum.fill_(sum_on_cpu());
}

void UpdateTable::norm_of(const torch::Tensor& sum, double limit, torch::Tensor& norm, torch::Tensor& factor) const {
  const auto* sum_in = sum.const_data_ptr<double>();
  auto* norm_out = norm.mutable_data_ptr<float>();
  auto* factor_out = factor.mutable_data_ptr<float>();
  if (device_.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device_);
    C10_CUDA_CHECK(norm_of_cuda(sum_in, static_cast<float>(limit), norm_out, factor_out, c10::cuda::getCurrentCUDAStream().stream()));
    return;
  }
  *norm_out = static_cast<float>(std::sqrt(*sum_in));
  *factor_out = limit > 0 ? clip_factor_of(*norm_out, static_cast<float>(limit)) : 1;
}

double UpdateTable::sum_on_cpu() const {
  auto* partial = partial_.mutable_data_ptr<float>();
  at::parallel_for(0, static_cast<int64_t>(chunks_.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const UpdateChunk& chunk = chunks_[static_cast<size_t>(i)];
      const UpdateRow& row = rows_[static_cast<size_t>(chunk.row)];
      partial[i] = row.gradient == nullptr || !chunk.in_norm ? 0
                   : row.types == UpdateTypes::kFloat32      ? squares<float>(row, chunk.first, chunk.end)
                                                             : squares<at::BFloat16>(row, chunk.first, chunk.end);
    }
  });
  double sum = 0;
  for (size_t i = 0; i < chunks_.size(); ++i) sum += static_cast<double>(partial[i]);
  return sum;
}

void UpdateTable::begin_update(const torch::Tensor& norm, const torch::Tensor& found_inf, torch::Tensor& skip, torch::Tensor& skipped) const {
  const auto* norm_in = norm.defined() ? norm.const_data_ptr<float>() : nullptr;
  const auto* flag_in = found_inf.defined() ? found_inf.const_data_ptr<float>() : nullptr;
  auto* skip_out = skip.mutable_data_ptr<float>();
  auto* skipped_out = skipped.mutable_data_ptr<float>();
  if (device_.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device_);
    C10_CUDA_CHECK(begin_update_cuda(view(on_device_, rows_.size(), 0, chunks_.size()), norm_in, flag_in, skip_out, skipped_out,
                                     c10::cuda::getCurrentCUDAStream().stream()));
    return;
  }
  *skip_out = (norm_in != nullptr && !is_finite(*norm_in)) || (flag_in != nullptr && *flag_in != 0) ? 1 : 0;
  *skipped_out += *skip_out;
  for (const UpdateRow& row : rows_) {
    if (row.gradient != nullptr && *skip_out == 0) *row.step += 1;
  }
}

void UpdateTable::update(const UpdateRule& rule) const { update_chunks(rule, 0, chunks_.size()); }

void UpdateTable::update_group(const UpdateRule& rule, size_t group) const {
  update_chunks(rule, group == 0 ? 0 : group_ends_[group - 1], group_ends_[group]);
}

void UpdateTable::update_chunks(const UpdateRule& rule, size_t first, size_t last) const {
  if (device_.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device_);
    C10_CUDA_CHECK(update_cuda(view(on_device_, rows_.size(), first, last), rule, c10::cuda::getCurrentCUDAStream().stream()));
    return;
  }
  at::parallel_for(static_cast<int64_t>(first), static_cast<int64_t>(last), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const UpdateChunk& chunk = chunks_[static_cast<size_t>(i)];
      const UpdateRow& row = rows_[static_cast<size_t>(chunk.row)];
      const UpdateFactors factors = update_factors(rule, row);
      for (int64_t e = chunk.first; e < chunk.end; ++e) {
        switch (row.types) {
          case UpdateTypes::kFloat32: update_elements<float, float, 1>(rule, row, factors, e); break;
          case UpdateTypes::kBFloat16WithFloat32State: update_elements<at::BFloat16, float, 1>(rule, row, factors, e); break;
          case UpdateTypes::kBFloat16: update_elements<at::BFloat16, at::BFloat16, 1>(rule, row, factors, e); break;
        }
      }
    }
  });
}

}  // namespace vla
