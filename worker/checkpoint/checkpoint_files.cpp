#include "worker/checkpoint/checkpoint_files.hpp"

#include <torch/torch.h>

#include "common/atomic_file.hpp"

namespace vla {

void copy_tensors_to_host(CheckpointFiles& files) {
  const torch::NoGradGuard no_grad;
  bool any_cuda = false;
  for (auto& [path, tensors] : files.tensors) {
    for (auto& [name, tensor] : tensors) {
      // Into page-locked memory, so that the copies overlap and one wait at the end is enough.
      any_cuda = any_cuda || tensor.is_cuda();
      const torch::Tensor host =
          torch::empty(tensor.sizes(), tensor.options().device(torch::kCPU).pinned_memory(tensor.is_cuda()));
      tensor = host.copy_(tensor, /*non_blocking=*/true);
    }
  }
  if (any_cuda) torch::cuda::synchronize();
}

void write_files(const std::filesystem::path& folder, const CheckpointFiles& files,
                 const std::function<void()>& after_each) {
  const auto prepare = [&](const std::string& name) {
    std::filesystem::create_directories((folder / name).parent_path());
    return folder / name;
  };
  for (const auto& [name, tensors] : files.tensors) {
    save_safetensors(prepare(name), tensors);
    after_each();
  }
  for (const auto& [name, text] : files.texts) {
    cxxrun::write_file_atomically(prepare(name), text);
    after_each();
  }
  cxxrun::sync_directory(folder);
}

}  // namespace vla
