// The Store of the node that serves it. While it waits it serves the clients, since they are what it waits for.
#pragma once

#include "launcher/rendezvous/store.hpp"
#include "launcher/rendezvous/tcp_store_server.hpp"

namespace cxxrun {

class LocalStore : public Store {
 public:
  explicit LocalStore(TcpStoreServer& server) : server_(server) {}  // must outlive this

  void set(const std::string& key, const std::string& value) override { server_.set(key, value); }
  std::string get(const std::string& key) override { return server_.get(key); }
  int64_t add(const std::string& key, int64_t delta) override { return server_.add(key, delta); }
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;

 private:
  TcpStoreServer& server_;
};

}  // namespace cxxrun
