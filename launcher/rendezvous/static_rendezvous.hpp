// A fixed set of nodes that all know node 0's address and port: torchrun's static rendezvous, key by key, so that
// cxxrun and torchrun nodes can share a job. Node 0 owns the store, the ranks use it too. Among cxxrun nodes it does
// more: a new attempt begins together and with an empty store, and a node that fails tells those in the exit barrier.
// The port never moves. With AgentStore::kOff nothing is exchanged: all nodes must run the same number of ranks.
#pragma once

#include <memory>
#include <vector>

#include "launcher/rendezvous/rendezvous.hpp"
#include "launcher/rendezvous/store.hpp"
#include "launcher/rendezvous/tcp_store_server.hpp"

namespace cxxrun {

class StaticRendezvous : public Rendezvous {
 public:
  explicit StaticRendezvous(RendezvousOptions options);  // node 0: opens the port, throws PortInUse

  std::optional<RendezvousResult> join(int64_t attempt, int cancel_fd) override;
  Ending finish(bool success, int cancel_fd) override;
  int fd() const override { return server_ ? server_->fd() : -1; }
  void on_ready() override { server_->on_ready(); }

 private:
  std::string key(const std::string& name) const;
  std::vector<std::string> keys_of_all_nodes(const std::string& name) const;
  void connect(const WaitLimit& limit);
  void begin_attempt_together(int64_t attempt);
  void assign_ranks();
  RendezvousResult identical_ranks() const;
  RendezvousResult assigned_ranks();
  std::string missing_nodes(const std::string& name);
  void linger(std::chrono::milliseconds duration, int cancel_fd);

  RendezvousOptions options_;
  std::unique_ptr<TcpStoreServer> server_;  // on node 0
  std::unique_ptr<Store> store_;
  bool counted_ = false;  // this node is in LibTorch's count of connected nodes
};

// One row of what node 0 computes: torchrun's assignment by role, in the order of nodes.
struct NodeRole {
  std::string role;
  int64_t local_world_size = 1;
};
struct RankAssignment {
  int64_t base_global_rank = 0, global_world_size = 0, base_role_rank = 0, role_world_size = 0;

  bool operator==(const RankAssignment&) const = default;
};
std::vector<RankAssignment> assign_ranks(const std::vector<NodeRole>& nodes);

}  // namespace cxxrun
