// What cxxrun says about its command line: --help and the completion scripts of shells, both from the option rows.
#pragma once

#include <string>

namespace cxxrun {

std::string help_text();
std::string completion_script(const std::string& shell);  // bash, zsh or tcsh

}  // namespace cxxrun
