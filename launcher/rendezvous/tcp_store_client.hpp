// A blocking client of c10d's TCPStore: ours or LibTorch's. Owns one connection. Connecting is retried with back-off
// until the limit passes, since the store's node may start later. After a reply that did not come in time the
// connection is closed; a wait that timed out leaves it usable. One thread.
#pragma once

#include "common/unique_fd.hpp"
#include "launcher/rendezvous/store.hpp"
#include "launcher/rendezvous/tcp_store_protocol.hpp"

namespace cxxrun {

class TcpStoreClient : public Store {
 public:
  // `host` is a name or an address. Throws StoreTimeout with the last reason, or WaitCancelled.
  TcpStoreClient(const std::string& host, int port, WaitLimit limit);

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t delta) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;

  // The value now; see KeyValueStore::compare_set.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  bool remove(const std::string& key);

 private:
  void connect(const std::string& host, int port);
  void handshake();
  void send(const StoreRequest& request);
  void receive(void* bytes, size_t count);
  void recover(short events);
  std::string receive_text();
  template <class Number>
  Number receive_number();

  std::string peer_;
  UniqueFd fd_;
};

}  // namespace cxxrun
