// The protocol's other end, for tests: sends bytes, waits for a reply.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include <torch/torch.h>

#include "common/unique_fd.hpp"
#include "worker/inference/policy_runner.hpp"
#include "worker/inference/protocol.hpp"

namespace vla {

struct Reply {
  nlohmann::json header;
  std::string payload;

  at::Tensor actions() const {
    const auto shape = header.at("tensors").at(0).at("shape").get<std::vector<int64_t>>();
    return torch::from_blob(const_cast<char*>(payload.data()), shape, torch::kFloat).clone();
  }
  std::string error() const { return header.value("error", "none"); }
};

class TestClient {
 public:
  explicit TestClient(const std::filesystem::path& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.native().copy(address.sun_path, sizeof address.sun_path - 1);
    connect(reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  explicit TestClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }

  void send(const std::string& bytes) { ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  bool is_closed() {  // by the server; waits for it
    char byte;
    return ::recv(fd_.get(), &byte, 1, 0) <= 0;
  }
  Reply receive() {
    const MessagePrefix prefix = read_prefix(bytes(kPrefixBytes));
    const std::string header = bytes(prefix.header_bytes);
    return {nlohmann::json::parse(header), bytes(prefix.payload_bytes)};
  }
  Reply ask(const std::string& message) {
    send(message);
    return receive();
  }

 private:
  void connect(const sockaddr* address, socklen_t size) {
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (::connect(fd_.get(), address, size) != 0) throw std::runtime_error("cannot connect to the server");
  }
  std::string bytes(size_t count) {
    std::string data(count, '\0');
    if (count > 0 && ::recv(fd_.get(), data.data(), count, MSG_WAITALL) != static_cast<ssize_t>(count)) throw std::runtime_error("no whole reply");
    return data;
  }

  cxxrun::UniqueFd fd_;
};

inline std::string request(const std::string& op, const Observation& observation, bool reset = false) {
  nlohmann::json header = {{"op", op}, {"reset", reset}, {"tensors", nlohmann::json::array()}};
  if (observation.task) header["task"] = *observation.task;
  std::string payload;
  for (const auto& [key, value] : observation.values) {
    header["tensors"].push_back({{"key", key}, {"dtype", value.scalar_type() == at::kByte ? "uint8" : "float32"}, {"shape", value.sizes().vec()}});
    payload.append(static_cast<const char*>(value.const_data_ptr()), value.nbytes());
  }
  return encode_message(header, payload);
}

}  // namespace vla
