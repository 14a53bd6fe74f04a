// The project's version, and those of the libraries that decide what training does.
#pragma once

#include <string>

#include <torch/version.h>

namespace vla {

inline std::string version() { return std::string(CXXRUN_VERSION) + " (LibTorch " TORCH_VERSION ")"; }

}  // namespace vla
