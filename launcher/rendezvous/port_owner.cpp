#include "launcher/rendezvous/port_owner.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

namespace cxxrun {
namespace {

namespace fs = std::filesystem;

// Any state, not only listening: an outgoing connection may have been given the port as its source.
void collect_sockets(const char* table, int port, std::set<std::string>& names) {
  std::ifstream file(table);
  const std::string suffix = fmt::format(":{:04X}", port);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
    if (local.ends_with(suffix) && inode != "0") names.insert("socket:[" + inode + "]");
  }
}

bool holds_one_of(const fs::path& process, const std::set<std::string>& names) {
  std::error_code error;
  for (const auto& fd : fs::directory_iterator(process / "fd", error)) {
    if (names.contains(fs::read_symlink(fd.path(), error).string())) return true;
  }
  return false;
}

}  // namespace

std::string find_port_owner(int port) {
  std::set<std::string> names;
  collect_sockets("/proc/net/tcp", port, names);
  collect_sockets("/proc/net/tcp6", port, names);
  if (names.empty()) return "";
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos || !holds_one_of(process.path(), names)) continue;
    std::string name;
    std::getline(std::ifstream(process.path() / "comm"), name);
    return fmt::format("pid {} ({})", pid, name);
  }
  return "";
}

}  // namespace cxxrun
