// Who holds a TCP port of this machine, as far as /proc lets us see.
#pragma once

#include <string>

namespace cxxrun {

// "pid 4711 (python3)", or "" when nobody is visible: another user's process, another namespace, or no /proc.
std::string find_port_owner(int port);

}  // namespace cxxrun
