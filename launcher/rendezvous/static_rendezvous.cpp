#include "launcher/rendezvous/static_rendezvous.hpp"

#include <poll.h>

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "launcher/rendezvous/local_store.hpp"
#include "launcher/rendezvous/rendezvous_conf.hpp"
#include "launcher/rendezvous/socket_io.hpp"
#include "launcher/rendezvous/tcp_store_client.hpp"

namespace cxxrun {
namespace {

using Json = nlohmann::ordered_json;
using namespace std::chrono_literals;

// torchrun's names, below /<run id>/.
constexpr char kRoleInfo[] = "torchelastic/role_info/";
constexpr char kAssignedRanks[] = "torchelastic/assigned_ranks/";
constexpr char kMembersDone[] = "torchelastic/agent/terminal_state/num_members";
constexpr char kLastMemberDone[] = "torchelastic/agent/terminal_state/last_member";
constexpr char kIgnored[] = "<val_ignored>";
constexpr char kInitKey[] = "init/";  // LibTorch's: a node 0 of torchrun counts its nodes here

// Ours.
constexpr char kNode[] = "cxxrun/node/";
constexpr char kAttempt[] = "cxxrun/attempt/";
constexpr char kFailed[] = "cxxrun/failed";

// Others may still be about to read the end of the job when node 0 is done.
constexpr auto kLingerAfterSuccess = 10s, kLingerAfterFailure = 2s;

Json parse_json(const std::string& key, const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw Error("static rendezvous: key '{}' holds '{}', which is not JSON", key, text);
  return json;
}

}  // namespace

std::vector<RankAssignment> assign_ranks(const std::vector<NodeRole>& nodes) {
  std::map<std::string, int64_t> role_sizes, role_bases;
  int64_t world_size = 0, base = 0;
  for (const NodeRole& node : nodes) {
    role_sizes[node.role] += node.local_world_size;
    world_size += node.local_world_size;
  }
  std::vector<RankAssignment> result;
  for (const NodeRole& node : nodes) {
    result.push_back({base, world_size, role_bases[node.role], role_sizes[node.role]});
    base += node.local_world_size;
    role_bases[node.role] += node.local_world_size;
  }
  return result;
}

StaticRendezvous::StaticRendezvous(RendezvousOptions options) : options_(std::move(options)) {
  if (options_.node_rank < 0 || options_.node_rank >= options_.nodes) {
    throw UsageError("--node_rank={} is not one of the {} nodes of --nnodes; ranks of nodes begin with 0",
                     options_.node_rank, options_.nodes);
  }
  if (options_.port.port == 0)
    throw UsageError("several nodes need one known port; give all of them the same --master_port");
  if (options_.conf.contains("timeout")) options_.join_timeout = seconds_of(options_.conf, "timeout", 900s);
  if (options_.agent_store == AgentStore::kOff || options_.node_rank != 0) return;
  server_ = std::make_unique<TcpStoreServer>(
      StoreServerOptions{.address = "", .port = {options_.port.port, true}, .report = options_.log});
  store_ = std::make_unique<LocalStore>(*server_);
}

std::optional<RendezvousResult> StaticRendezvous::join(int64_t attempt, int cancel_fd) {
  if (options_.agent_store == AgentStore::kOff) return identical_ranks();
  const WaitLimit limit = WaitLimit::within(options_.join_timeout, cancel_fd);
  try {
    connect(limit);
    store_->set_limit(limit);
    if (attempt > 0) begin_attempt_together(attempt);
    if (options_.identical_nodes) return identical_ranks();
    store_->set(key(fmt::format("{}{}", kNode, options_.node_rank)), "");
    const Json role_info = {
        {"role", options_.role}, {"rank", options_.node_rank}, {"local_world_size", options_.local_world_size}};
    store_->set(key(fmt::format("{}{}", kRoleInfo, options_.node_rank)), role_info.dump());
    if (options_.node_rank == 0) assign_ranks();
    return assigned_ranks();
  } catch (const WaitCancelled&) {
    return std::nullopt;
  } catch (const StoreClosed& error) {
    throw Error("static rendezvous: node 0 has left the job: {}", error.what());
  } catch (const StoreTimeout& error) {
    throw Error("static rendezvous of {} nodes at {}:{} gave up after {} s: {}{}", options_.nodes, options_.master_addr,
                options_.port.port, std::chrono::duration_cast<std::chrono::seconds>(options_.join_timeout).count(),
                error.what(), missing_nodes(kRoleInfo));
  }
}

void StaticRendezvous::connect(const WaitLimit& limit) {
  if (!store_) store_ = std::make_unique<TcpStoreClient>(options_.master_addr, options_.port.port, limit);
  if (!std::exchange(counted_, true)) store_->add(kInitKey, 1);
}

// The ranks of the last attempt left keys that would mislead those of the next. They can be deleted only when all nodes
// have stopped their ranks and none has started new ones. A torchrun node takes no part in this, so then they stay.
void StaticRendezvous::begin_attempt_together(int64_t attempt) {
  if (!store_->check(keys_of_all_nodes(kNode))) return;
  const std::string name = fmt::format("{}{}/", kAttempt, attempt);
  store_->set(key(fmt::format("{}{}", name, options_.node_rank)), "");
  if (options_.node_rank == 0) {
    try {
      store_->wait(keys_of_all_nodes(name));
    } catch (const StoreTimeout& error) {
      throw Error("attempt {} cannot begin after {} s: {}{}; has that node ended, or a smaller --max_restarts?",
                  attempt, std::chrono::duration_cast<std::chrono::seconds>(options_.join_timeout).count(),
                  error.what(), missing_nodes(name));
    }
    server_->keep_only({key(""), kInitKey});
    store_->set(key(name + "open"), "");
  }
  store_->wait({key(name + "open")});
}

void StaticRendezvous::assign_ranks() {
  const auto keys = keys_of_all_nodes(kRoleInfo);
  store_->wait(keys);
  std::vector<NodeRole> nodes;
  for (const std::string& name : keys) {
    const Json info = parse_json(name, store_->get(name));
    try {
      nodes.push_back({info.at("role").get<std::string>(), info.at("local_world_size").get<int64_t>()});
    } catch (const Json::exception&) {
      throw Error("static rendezvous: key '{}' holds {}, without a role and a local_world_size", name, info.dump());
    }
  }
  const auto assignments = cxxrun::assign_ranks(nodes);
  for (size_t node = 0; node < assignments.size(); ++node) {
    const auto& [base, world_size, role_base, role_size] = assignments[node];
    store_->set(key(fmt::format("{}{}", kAssignedRanks, node)),
                fmt::format("[{}, {}, {}, {}]", base, world_size, role_base, role_size));
  }
}

RendezvousResult StaticRendezvous::assigned_ranks() {
  const std::string name = key(fmt::format("{}{}", kAssignedRanks, options_.node_rank));
  store_->wait({name});
  const Json ranks = parse_json(name, store_->get(name));
  if (!ranks.is_array() || ranks.size() != 4 ||
      !std::ranges::all_of(ranks, [](const Json& rank) { return rank.is_number_integer(); })) {
    throw Error("static rendezvous: key '{}' holds {} instead of four numbers", name, ranks.dump());
  }
  RendezvousResult result = identical_ranks();
  result.base_global_rank = ranks[0];
  result.global_world_size = ranks[1];
  result.base_role_rank = ranks[2];
  result.role_world_size = ranks[3];
  return result;
}

RendezvousResult StaticRendezvous::identical_ranks() const {
  const int64_t base = options_.node_rank * options_.local_world_size,
                world_size = options_.nodes * options_.local_world_size;
  return {.group_rank = options_.node_rank,
          .group_world_size = options_.nodes,
          .base_global_rank = base,
          .global_world_size = world_size,
          .base_role_rank = base,
          .role_world_size = world_size,
          .master_addr = options_.master_addr,
          .master_port = options_.port.port,
          .use_agent_store = options_.agent_store == AgentStore::kOn};
}

Ending StaticRendezvous::finish(bool success, int cancel_fd) {
  if (!store_) return Ending::kTogether;
  Ending ending = Ending::kTogether;
  try {
    store_->set_limit(WaitLimit::within(options_.exit_barrier_timeout, cancel_fd));
    if (!success) {
      store_->set(key(kFailed), std::to_string(options_.node_rank));
      store_->set(key(kLastMemberDone), kIgnored);  // releases those in the barrier; torchrun lets them sit for 300 s
    } else {
      if (store_->add(key(kMembersDone), 1) == options_.nodes) store_->set(key(kLastMemberDone), kIgnored);
      store_->wait({key(kLastMemberDone)});
      if (store_->check({key(kFailed)})) ending = Ending::kPeerFailed;
    }
  } catch (const StoreClosed&) {
    // Node 0 leaves when the last node is through, so the end of the store is the end of the job.
  } catch (const Error& error) {
    if (options_.log) options_.log(fmt::format("exit barrier: {}", error.what()));
    ending = Ending::kUnknown;
  }
  if (server_) linger(success ? kLingerAfterSuccess : kLingerAfterFailure, cancel_fd);
  store_.reset();
  server_.reset();
  return ending;
}

// Until all clients have left, for a while.
void StaticRendezvous::linger(std::chrono::milliseconds duration, int cancel_fd) {
  const WaitLimit limit = WaitLimit::within(duration, cancel_fd);
  try {
    while (server_->connections() > 0) {
      poll_until(server_->fd(), POLLIN, limit, "waiting for the other nodes to leave");
      server_->on_ready();
    }
  } catch (const Error&) {  // they have had their time
  }
}

// As the server sees it: PrefixStore puts the run id before the name, TCPStore a '/' before all.
std::string StaticRendezvous::key(const std::string& name) const {
  return fmt::format("/{}/{}", options_.run_id, name);
}

std::vector<std::string> StaticRendezvous::keys_of_all_nodes(const std::string& name) const {
  std::vector<std::string> result;
  for (int64_t node = 0; node < options_.nodes; ++node) result.push_back(key(fmt::format("{}{}", name, node)));
  return result;
}

// "; missing: nodes 2, 3", which only node 0 knows.
std::string StaticRendezvous::missing_nodes(const std::string& name) {
  if (!server_) return "";
  std::vector<int64_t> missing;
  for (int64_t node = 0; node < options_.nodes; ++node) {
    if (!server_->has(key(fmt::format("{}{}", name, node)))) missing.push_back(node);
  }
  return missing.empty() ? "" : fmt::format("; missing: node {}", fmt::join(missing, ", "));
}

}  // namespace cxxrun
