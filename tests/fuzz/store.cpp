// The launcher's TCPStore: whatever clients send, the decoder does not depend on how it arrives, and the server goes on serving.
// The first byte of an input says into which portions the rest is cut, and which of three clients sends each.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "common/error.hpp"
#include "launcher/rendezvous/tcp_store_server.hpp"

namespace {

using namespace cxxrun;

struct Decoded {
  std::vector<StoreRequest> requests;
  std::string error;
  bool operator==(const Decoded&) const = default;
};

Decoded decode(std::string_view bytes, size_t portion) {
  StoreDecoder decoder({.request_bytes = 1 << 20});
  Decoded decoded;
  try {
    while (!bytes.empty()) {
      std::string_view piece = bytes.substr(0, portion);
      bytes.remove_prefix(piece.size());
      while (!piece.empty()) {
        if (auto request = decoder.decode(piece)) decoded.requests.push_back(std::move(*request));
      }
    }
  } catch (const Error& error) {
    decoded.error = error.what();
  }
  return decoded;
}

class Client {
 public:
  explicit Client(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // libFuzzer's alarm may interrupt it; the next call goes on waiting.
    while (::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 && errno != EISCONN) {
      if (errno != EINTR && errno != EALREADY) std::abort();
    }
    const linger at_once{1, 0};  // thousands of connections a second would leave no port free
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  void send(std::string_view bytes) { ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT); }
  std::string receive() {
    std::array<char, 4096> answer;
    const ssize_t size = ::recv(fd_.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    return {answer.data(), size > 0 ? static_cast<size_t>(size) : 0};
  }

 private:
  UniqueFd fd_;
};

void require_service(TcpStoreServer& server) {
  std::string request;
  encode({.op = StoreOp::kValidate, .number = kStoreMagic}, request);
  encode({.op = StoreOp::kPing, .number = 0x12345678}, request);
  Client client(server.port());
  client.send(request);
  for (int patience = 500; client.receive() != "\x78\x56\x34\x12";) {
    if (--patience == 0) std::abort();
    pollfd ready{server.fd(), POLLIN, 0};
    ::poll(&ready, 1, 10);
    server.on_ready();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static TcpStoreServer server({.address = "127.0.0.1", .limit_bytes = 1 << 20});
  if (size < 2) return 0;
  const uint8_t cut = data[0];
  std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (decode(input, 1) != decode(input, input.size())) std::abort();

  std::array clients{Client(server.port()), Client(server.port()), Client(server.port())};
  server.on_ready();
  const size_t portion = 1 + cut / 3;
  for (size_t i = cut; !input.empty(); ++i) {
    clients[i % (1 + cut % 3)].send(input.substr(0, portion));
    input.remove_prefix(std::min(portion, input.size()));
    server.on_ready();
    clients[i % 3].receive();
  }
  require_service(server);
  server.reset();
  return 0;
}
