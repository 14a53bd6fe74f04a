#include "launcher/rendezvous/single_node.hpp"

#include <utility>

namespace cxxrun {

SingleNode::SingleNode(RendezvousOptions options) : options_(std::move(options)) {
  if (options_.nodes != 1)
    throw UsageError("the single_node rendezvous is for --nnodes=1, not {}; use static", options_.nodes);
  open_port();
}

void SingleNode::open_port() {
  const std::string address = listen_address(options_.master_addr);
  if (options_.agent_store == AgentStore::kOff) {
    reserved_ = reserve_port(address, options_.port, options_.log);
  } else {
    server_ = std::make_unique<TcpStoreServer>(
        StoreServerOptions{.address = address, .port = options_.port, .report = options_.log});
  }
}

std::optional<RendezvousResult> SingleNode::join(int64_t, int) {
  if (std::exchange(used_, true)) {
    if (options_.port.port == 0) {
      open_port();  // before the old one is closed, so that the port is another one and stragglers meet nobody
    } else if (server_) {
      server_->reset();
    }
  }
  return RendezvousResult{.global_world_size = options_.local_world_size,
                          .role_world_size = options_.local_world_size,
                          .master_addr = options_.master_addr,
                          .master_port = server_ ? server_->port() : reserved_.port,
                          .use_agent_store = server_ != nullptr};
}

Ending SingleNode::finish(bool, int) { return Ending::kTogether; }

}  // namespace cxxrun
