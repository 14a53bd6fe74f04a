// Serves c10d's TCPStore to any number of clients. Owns the listening socket, the connections and the data. Passive:
// the owner's event loop polls fd() for reading and calls on_ready(), which never blocks. It may also use the data
// itself, by the keys as clients send them: LibTorch puts '/' before those of its users. One thread. The constructor
// throws PortInUse or Error; later, whatever a client does wrong costs only that client its connection and is told to
// `report`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/unique_fd.hpp"
#include "launcher/rendezvous/key_value_store.hpp"
#include "launcher/rendezvous/listen_socket.hpp"
#include "launcher/rendezvous/tcp_store_protocol.hpp"
#include "launcher/rendezvous/wait_list.hpp"

namespace cxxrun {

struct StoreServerOptions {
  std::string address = {};  // numeric; "" = all interfaces, both families
  PortRequest port = {};
  size_t limit_bytes = size_t{1} << 30;  // of the data, and again of unfinished requests
  size_t max_connections = 0;  // 0 = what RLIMIT_NOFILE leaves to us
  LogLine report = {};
};

class TcpStoreServer {
 public:
  explicit TcpStoreServer(StoreServerOptions options);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  int fd() const { return epoll_.get(); }
  void on_ready();
  int port() const { return listener_.port; }
  size_t connections() const { return connections_.size(); }

  // Drops all clients and all data but keeps listening, so that a new attempt finds an empty store at the same port.
  void reset();
  // Deletes the keys that do not start with one of `prefixes`, and all queues.
  void keep_only(const std::vector<std::string>& prefixes);

  void set(const std::string& key, std::string value);
  int64_t add(const std::string& key, int64_t delta);
  const std::string& get(const std::string& key) const { return data_.get(key); }  // "" when missing
  bool has(const std::string& key) const { return data_.has(key); }

 private:
  struct Connection;

  void accept_clients();
  void set_accepting(bool accepting);
  void serve(Connection& connection, uint32_t events);
  void process_input(Connection& connection);
  void answer(Connection& connection, StoreRequest request);
  void multi_get(Connection& connection, const StoreRequest& request);
  void barrier(Connection& connection, const StoreRequest& request);
  void end_waits(const std::vector<int>& clients);
  void flush(Connection& connection);
  void charge(Connection& connection);
  void close(Connection& connection);

  StoreServerOptions options_;
  UniqueFd epoll_;
  BoundSocket listener_;
  bool accepting_ = false;
  KeyValueStore data_;
  WaitList waits_{data_};
  size_t held_bytes_ = 0;  // of unfinished requests
  std::unordered_map<int, std::unique_ptr<Connection>> connections_;  // by descriptor
};

}  // namespace cxxrun
