// Serves a PolicyRunner on a local socket to programs that speak protocol.hpp. A connection is a session of its own; connections are
// served side by side, one inference at a time, by the thread that calls serve(). What a client gets wrong is answered by an error
// reply; bytes that are no messages end its connection, and its alone. Owns the sockets and the socket's file.
#pragma once

#include <chrono>
#include <list>
#include <string>
#include <vector>

#include "common/unique_fd.hpp"
#include "worker/inference/policy_runner.hpp"
#include "worker/inference/protocol.hpp"

namespace vla {

// Of the last predictions.
class Latencies {
 public:
  void add(double milliseconds);
  int64_t count() const { return count_; }  // of all that were added
  std::string text() const;  // "p50 3.1 ms, p95 4.0 ms, p99 5.2 ms, max 5.9 ms"

 private:
  static constexpr size_t kKept = 4096;
  std::vector<double> last_;
  int64_t count_ = 0;
};

class PolicyServer {
 public:
  struct Options {
    std::string socket = {};  // path of a Unix socket, mode 0600; or empty and
    int64_t port = -1;  // of 127.0.0.1; 0 = one that is free
    int64_t report_every = 100;  // predictions
  };

  // Listens. UsageError when the path is too long or in use, Error when the system refuses. `runner` outlives the server.
  PolicyServer(PolicyRunner& runner, const Options& options);
  PolicyServer(const PolicyServer&) = delete;
  PolicyServer& operator=(const PolicyServer&) = delete;
  ~PolicyServer();

  const std::string& address() const { return address_; }  // "/run/policy.sock", "127.0.0.1:5555"
  void serve(int stop_fd);  // until that is readable
  const Latencies& latencies() const { return latencies_; }

 private:
  struct Client {
    cxxrun::UniqueFd fd;
    int64_t number = 0;
    std::string in = {}, out = {};  // not yet handled, not yet sent
    PolicyRunner::Session session = {};
  };

  void listen_on_path(const std::string& path);
  void listen_on_port(int64_t port);
  void accept_clients();
  bool receive(Client& client);  // whether the connection goes on
  bool flush(Client& client);
  bool handle_messages(Client& client);
  std::string reply(Client& client, std::string_view header, std::string_view payload);
  nlohmann::json info() const;

  PolicyRunner& runner_;
  int64_t report_every_;
  std::string path_;  // of the socket's file, once it is ours
  std::string address_;
  cxxrun::UniqueFd listener_;
  std::list<Client> clients_;
  int64_t accepted_ = 0;
  Latencies latencies_;
};

}  // namespace vla
