// The rendezvous of one node. Owns the ranks' store, or with AgentStore::kOff only its port. Every attempt gets an
// empty store: at a new port, or at the same one if a port was asked for. Reachable from this machine only, unless
// master_addr is not a loopback address. The constructor opens the port and throws PortInUse.
#pragma once

#include <memory>

#include "launcher/rendezvous/rendezvous.hpp"
#include "launcher/rendezvous/tcp_store_server.hpp"

namespace cxxrun {

class SingleNode : public Rendezvous {
 public:
  explicit SingleNode(RendezvousOptions options);

  std::optional<RendezvousResult> join(int64_t attempt, int cancel_fd) override;
  Ending finish(bool success, int cancel_fd) override;
  int fd() const override { return server_ ? server_->fd() : -1; }
  void on_ready() override { server_->on_ready(); }

 private:
  void open_port();

  RendezvousOptions options_;
  std::unique_ptr<TcpStoreServer> server_;
  BoundSocket reserved_;
  bool used_ = false;
};

}  // namespace cxxrun
