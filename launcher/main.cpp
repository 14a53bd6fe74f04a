#include <algorithm>
#include <filesystem>

#include "launcher/launch.hpp"

int main(int argc, char** argv) {
  return cxxrun::run_cxxrun({argv + std::min(argc, 1), argv + argc}, std::filesystem::path(argc ? argv[0] : "").filename());
}
