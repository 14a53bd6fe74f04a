// Two ways to run a store in a test: StoreThread serves it on a thread of its own, for blocking clients; RawClient
// speaks bytes and turns the server's loop itself while it waits for a reply, so that everything happens on one
// thread, in order.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <utility>

#include "launcher/rendezvous/tcp_store_protocol.hpp"
#include "launcher/rendezvous/tcp_store_server.hpp"

namespace cxxrun {

inline StoreServerOptions loopback_options() { return {.address = "127.0.0.1"}; }

class StoreThread {
 public:
  explicit StoreThread(StoreServerOptions options = loopback_options())
      : server_(std::move(options)), stop_(::eventfd(0, EFD_CLOEXEC)), thread_([this] { serve(); }) {}
  ~StoreThread() {
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }

  int port() const { return server_.port(); }

 private:
  void serve() {
    while (true) {
      pollfd fds[] = {{server_.fd(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
      if (::poll(fds, 2, -1) > 0 && fds[1].revents) return;
      server_.on_ready();
    }
  }

  TcpStoreServer server_;
  UniqueFd stop_;
  std::thread thread_;
};

class RawClient {
 public:
  explicit RawClient(TcpStoreServer& server, bool validate = true)
      : server_(server), fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    if (validate) send({.op = StoreOp::kValidate, .number = kStoreMagic});
  }

  void send_bytes(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
      if (sent < 0 && errno != EAGAIN) return;  // the server has closed: the next receive tells
      server_.on_ready();
    }
  }
  void send(const StoreRequest& request) {
    std::string bytes;
    encode(request, bytes);
    send_bytes(bytes);
  }

  // Exactly `count` bytes, fewer if the server closes the connection or says nothing for 20 s.
  std::string receive(size_t count) {
    std::string bytes;
    while (bytes.size() < count) {
      pollfd fds[] = {{fd_.get(), POLLIN, 0}, {server_.fd(), POLLIN, 0}};
      if (::poll(fds, 2, 20'000) <= 0) break;
      if (fds[1].revents) server_.on_ready();
      if (!fds[0].revents) continue;
      char buffer[1 << 16];
      const ssize_t got = ::recv(fd_.get(), buffer, std::min(sizeof buffer, count - bytes.size()), 0);
      if (got <= 0) {
        closed_ = true;
        break;
      }
      bytes.append(buffer, static_cast<size_t>(got));
    }
    return bytes;
  }
  template <class Number>
  Number receive_number() {
    Number number{};
    const std::string bytes = receive(sizeof number);
    EXPECT_EQ(bytes.size(), sizeof number);
    std::memcpy(&number, bytes.data(), bytes.size());
    return number;
  }
  std::string receive_text() { return receive(receive_number<uint64_t>()); }
  int receive_byte() { return receive_number<uint8_t>(); }

  // The next bytes from the server answer this ping: nothing else was on its way.
  void expect_no_reply_pending() {
    send({.op = StoreOp::kPing, .number = 0x51525354});
    EXPECT_EQ(receive_number<uint32_t>(), 0x51525354u);
  }
  bool is_closed_by_server() {
    receive(1);
    return closed_;
  }

  void set(const std::string& key, const std::string& value) {
    send({.op = StoreOp::kSet, .keys = {key}, .values = {value}});
  }
  std::string get(const std::string& key) {
    send({.op = StoreOp::kGet, .keys = {key}});
    return receive_text();
  }
  void wait(std::vector<std::string> keys) { send({.op = StoreOp::kWait, .keys = std::move(keys)}); }
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
    send({.op = StoreOp::kCompareSet, .keys = {key}, .values = {expected, desired}});
    return receive_text();
  }
  int64_t number(StoreOp op, std::vector<std::string> keys, int64_t argument = 0) {
    send({.op = op, .keys = std::move(keys), .number = argument});
    return receive_number<int64_t>();
  }
  int fd() const { return fd_.get(); }

 private:
  TcpStoreServer& server_;
  UniqueFd fd_;
  bool closed_ = false;
};

}  // namespace cxxrun
