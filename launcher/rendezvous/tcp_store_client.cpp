#include "launcher/rendezvous/tcp_store_client.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "launcher/rendezvous/socket_io.hpp"

namespace cxxrun {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstBackoff = 20ms, kLongestBackoff = 1000ms;
constexpr auto kCancelReply = 5s;

// One attempt over all addresses of the host. An invalid descriptor, with `reason`, if none answers.
UniqueFd try_connect(const std::string& host, int port, const WaitLimit& limit, std::string& reason) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); error != 0) {
    reason = ::gai_strerror(error);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
    UniqueFd fd(::socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int error = errno;
    if (fd) {
      error = ::connect(fd.get(), address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
      if (error == EINPROGRESS) {
        poll_until(fd.get(), POLLOUT, limit, fmt::format("connecting to the store at {}:{}", host, port));
        socklen_t length = sizeof error;
        ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
      }
    }
    if (error == 0) return fd;
    reason = std::strerror(error);
  }
  return {};
}

}  // namespace

TcpStoreClient::TcpStoreClient(const std::string& host, int port, WaitLimit limit)
    : peer_(fmt::format("{}:{}", host, port)) {
  set_limit(limit);
  connect(host, port);
  const int on = 1;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  handshake();
}

void TcpStoreClient::connect(const std::string& host, int port) {
  std::string reason;
  for (std::chrono::milliseconds pause = kFirstBackoff;;
       pause = std::min<std::chrono::milliseconds>(2 * pause, kLongestBackoff)) {
    fd_ = try_connect(host, port, limit_, reason);
    if (fd_) return;
    if (WaitLimit::Clock::now() + pause > limit_.deadline) {
      throw StoreTimeout(
          "cannot connect to the store at {}: {}; is the node with rank 0 running there, and is the port open?", peer_,
          reason);
    }
    try {
      poll_until(-1, 0, WaitLimit::within(pause, limit_.cancel_fd), "connecting to the store at " + peer_);
    } catch (const StoreTimeout&) {  // the pause is over
    }
  }
}

void TcpStoreClient::handshake() {
  const auto nonce = static_cast<uint32_t>(::getpid());
  send({.op = StoreOp::kValidate, .number = kStoreMagic});
  send({.op = StoreOp::kPing, .number = nonce});
  if (const auto answer = receive_number<uint32_t>(); answer != nonce) {
    throw Error("what listens at {} is not a TCPStore: it answered a ping of {} with {}", peer_, nonce, answer);
  }
}

void TcpStoreClient::set(const std::string& key, const std::string& value) {
  send({.op = StoreOp::kSet, .keys = {key}, .values = {value}});
}

std::string TcpStoreClient::get(const std::string& key) {
  // LibTorch's server without libuv drops a client that asks for a missing key.
  if (!check({key})) return "";
  send({.op = StoreOp::kGet, .keys = {key}});
  return receive_text();
}

int64_t TcpStoreClient::add(const std::string& key, int64_t delta) {
  send({.op = StoreOp::kAdd, .keys = {key}, .number = delta});
  return receive_number<int64_t>();
}

bool TcpStoreClient::check(const std::vector<std::string>& keys) {
  send({.op = StoreOp::kCheck, .keys = keys});
  return receive_number<uint8_t>() == kCheckReady;
}

std::string TcpStoreClient::compare_set(const std::string& key, const std::string& expected,
                                        const std::string& desired) {
  send({.op = StoreOp::kCompareSet, .keys = {key}, .values = {expected, desired}});
  return receive_text();
}

bool TcpStoreClient::remove(const std::string& key) {
  send({.op = StoreOp::kDeleteKey, .keys = {key}});
  return receive_number<int64_t>() > 0;
}

void TcpStoreClient::wait(const std::vector<std::string>& keys) {
  send({.op = StoreOp::kWait, .keys = keys});
  const auto withdraw = [&] {
    const WaitLimit limit = std::exchange(limit_, WaitLimit::within(kCancelReply));
    send({.op = StoreOp::kCancelWait});
    while (receive_number<uint8_t>() != kWaitCancelled) continue;  // the answer to WAIT may have crossed the request
    limit_ = limit;
  };
  try {
    poll_until(fd_.get(), POLLIN, limit_, fmt::format("waiting for {} at {}", keys.empty() ? "" : keys.front(), peer_));
  } catch (const StoreTimeout&) {
    withdraw();
    throw;
  } catch (const WaitCancelled&) {
    withdraw();
    throw;
  }
  receive_number<uint8_t>();
}

void TcpStoreClient::send(const StoreRequest& request) {
  if (!fd_) throw StoreClosed("the connection to the store at {} is closed", peer_);
  std::string bytes;
  encode(request, bytes);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t sent = ::send(fd_.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent > 0) done += static_cast<size_t>(sent);
    if (sent < 0) recover(POLLOUT);
  }
}

void TcpStoreClient::receive(void* bytes, size_t count) {
  for (size_t done = 0; done < count;) {
    const ssize_t received = ::recv(fd_.get(), static_cast<char*>(bytes) + done, count - done, 0);
    if (received == 0) {
      fd_.reset();
      throw StoreClosed("the store at {} closed the connection", peer_);
    }
    if (received > 0) done += static_cast<size_t>(received);
    if (received < 0) recover(POLLIN);
  }
}

// After an errno: waits if that helps. Otherwise the connection is closed, since half a message or a late reply would
// be taken for another one.
void TcpStoreClient::recover(short events) {
  const int error = errno;
  if (error == EINTR) return;
  try {
    if (error != EAGAIN && error != EWOULDBLOCK) {
      throw StoreClosed("the connection to the store at {} is lost: {}", peer_, std::strerror(error));
    }
    poll_until(fd_.get(), events, limit_, "talking to the store at " + peer_);
  } catch (const Error&) {
    fd_.reset();
    throw;
  }
}

std::string TcpStoreClient::receive_text() {
  const auto length = receive_number<uint64_t>();
  if (length > StoreLimits{}.request_bytes) {
    fd_.reset();
    throw Error("the store at {} announced a value of {} bytes", peer_, length);
  }
  std::string text(length, '\0');
  receive(text.data(), length);
  return text;
}

template <class Number>
Number TcpStoreClient::receive_number() {
  Number number;
  receive(&number, sizeof number);
  return number;
}

}  // namespace cxxrun
