// What to execute for the program that the user named: an existing file, else one found in PATH, else one beside cxxrun
// itself. An ELF file or an executable #! file runs directly, anything else is a Python script. Throws Error with the places
// it looked at.
#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.hpp"

namespace cxxrun {

struct ResolvedProgram {
  std::string path;  // what execve gets
  std::vector<std::string> leading_args;  // what stands before the user's arguments, argv[0] included
  size_t macro_start = 1;  // leading_args from here on are arguments: macros are replaced in them
};

ResolvedProgram resolve_program(const LauncherOptions& options, const Environment& environment,
                                const std::string& launcher_folder);

// The folder that the running executable is in.
std::string own_folder();

}  // namespace cxxrun
