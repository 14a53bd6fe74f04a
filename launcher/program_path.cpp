#include "launcher/program_path.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/error.hpp"

namespace cxxrun {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool is_executable(const fs::path& path) { return is_file(path) && ::access(path.c_str(), X_OK) == 0; }

std::string find_in_path(const std::string& name, const Environment& environment) {
  if (name.find('/') != name.npos) return "";
  const std::string path = environment("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  for (size_t start = 0; start <= path.size();) {
    const size_t colon = std::min(path.find(':', start), path.size());
    const std::string folder = colon == start ? "." : path.substr(start, colon - start);
    if (is_executable(fs::path(folder) / name)) return fs::path(folder) / name;
    start = colon + 1;
  }
  return "";
}

// Native code, or a script that names its interpreter. Python scripts are left to Python, as under torchrun, so that
// PYTHON_EXEC and unbuffered output hold for them too.
bool runs_directly(const std::string& path) {
  char head[128] = {};
  std::ifstream(path, std::ios::binary).read(head, sizeof head - 1);
  const std::string text(head);
  if (text.starts_with("\x7f"
                       "ELF"))
    return true;
  return text.starts_with("#!") && is_executable(path) && text.substr(0, text.find('\n')).find("python") == text.npos;
}

std::string python(const Environment& environment) {
  if (const auto chosen = environment("PYTHON_EXEC"); chosen && !chosen->empty()) {
    if (is_executable(*chosen)) return *chosen;
    if (const std::string found = find_in_path(*chosen, environment); !found.empty()) return found;
    throw Error("PYTHON_EXEC={} is not an executable file", *chosen);
  }
  for (const char* name : {"python3", "python"}) {
    if (const std::string found = find_in_path(name, environment); !found.empty()) return found;
  }
  throw Error("no python3 in PATH to run Python code with: set PYTHON_EXEC, or name a native executable");
}

std::string find_program(const LauncherOptions& options, const Environment& environment,
                         const std::string& launcher_folder) {
  const std::string& name = options.program;
  if (is_file(name)) return name;
  if (const std::string found = find_in_path(name, environment); !found.empty()) return found;
  const fs::path beside = fs::path(launcher_folder) / name;
  if (name.find('/') == name.npos && is_executable(beside)) return beside;
  std::error_code ignored;
  if (fs::is_directory(name, ignored)) throw Error("program '{}' is a folder", name);
  throw Error("program '{}' not found: it is no file here ({}), not in PATH and not in {}", name,
              fs::current_path(ignored).string(), launcher_folder);
}

}  // namespace

ResolvedProgram resolve_program(const LauncherOptions& options, const Environment& environment,
                                const std::string& launcher_folder) {
  if (options.module) {
    const std::string interpreter = python(environment);
    return {interpreter, {interpreter, "-u", "-m", options.program}};
  }
  if (options.run_path) {
    static constexpr char kRunPath[] =
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')";
    const std::string interpreter = python(environment);
    return {interpreter, {interpreter, "-u", "-c", kRunPath, options.program}, /*macro_start=*/4};
  }
  const std::string path = find_program(options, environment, launcher_folder);
  if (options.no_python || runs_directly(path)) {
    if (!is_executable(path)) throw Error("program '{}' is not executable: chmod +x it", path);
    return {path, {options.program}};
  }
  const std::string interpreter = python(environment);
  return {interpreter, {interpreter, "-u", path}};
}

std::string own_folder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? "." : self.parent_path().string();
}

}  // namespace cxxrun
