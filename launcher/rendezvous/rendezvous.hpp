// How the nodes of a job find each other and which ranks each of them runs. The launcher makes one by name, calls
// join() before each attempt and finish() once after the last. Between those calls it polls fd() for reading, calls
// on_ready() and looks at interruption(): the ranks' store may live here, and other nodes may have news. One thread.
// What cannot go on throws Error; being cancelled is an outcome.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "launcher/rendezvous/listen_socket.hpp"

namespace cxxrun {

enum class AgentStore { kOn, kOff };  // off: rank 0 hosts the store; the launcher only chooses the port

struct RendezvousOptions {
  std::string run_id = "none";
  int64_t nodes = 1;  // c10d: at most
  int64_t min_nodes = 1;  // c10d
  int64_t node_rank = 0;
  int64_t local_world_size = 1;
  std::string role = "default";
  std::string master_addr = "127.0.0.1";  // published as it is written
  PortRequest port = {};
  AgentStore agent_store = AgentStore::kOn;
  bool identical_nodes = false;  // TORCH_ELASTIC_WORKER_IDENTICAL=1: ranks follow without an exchange
  std::chrono::milliseconds join_timeout = std::chrono::seconds(900);
  std::chrono::milliseconds exit_barrier_timeout = std::chrono::seconds(300);
  std::map<std::string, std::string> conf = {};  // --rdzv-conf
  std::string local_addr = "";  // c10d: how other nodes reach this one
  LogLine log = {};
};

struct RendezvousResult {
  int64_t group_rank = 0;  // node
  int64_t group_world_size = 1;
  int64_t base_global_rank = 0;  // RANK of local rank 0
  int64_t global_world_size = 1;
  int64_t base_role_rank = 0;
  int64_t role_world_size = 1;
  std::string master_addr;
  int master_port = 0;
  bool use_agent_store = true;  // TORCHELASTIC_USE_AGENT_STORE

  bool operator==(const RendezvousResult&) const = default;
};

enum class Ending {
  kTogether,  // every node succeeded, or its node 0 has already left
  kPeerFailed,  // another node said that it failed, or was lost
  kUnknown,  // timed out or cancelled
};

// What the other nodes make of an attempt that runs.
enum class Interruption {
  kNone,
  kRestart,  // a node starts again, came or left: stop the ranks and join again; that uses up none of the restarts
  kPeerFailed,  // the job has failed elsewhere: stop the ranks and finish
};

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // Blocks until all nodes are there. Requires: no rank of an earlier attempt is alive. nullopt: cancel_fd became
  // readable.
  virtual std::optional<RendezvousResult> join(int64_t attempt, int cancel_fd) = 0;

  // After the last attempt: success = all ranks here returned 0. With success it blocks until the other nodes are
  // through.
  virtual Ending finish(bool success, int cancel_fd) = 0;

  // A rank failed here: other nodes hear of it at once and need not wait until its peers have ended and join() or
  // finish(false) is called. restarts = join() will be.
  virtual void announce_failure(bool restarts) { static_cast<void>(restarts); }

  virtual int fd() const { return -1; }  // -1: nothing to poll; ask again after every join()
  virtual void on_ready() {}
  virtual Interruption interruption() const { return Interruption::kNone; }  // changes in on_ready() and join() only
};

struct RendezvousRow {
  std::string_view name;
  std::string_view help;
  std::unique_ptr<Rendezvous> (*make)(RendezvousOptions);
};
std::span<const RendezvousRow> rendezvous_table();

// Throws UsageError naming the known ones.
std::unique_ptr<Rendezvous> make_rendezvous(std::string_view name, RendezvousOptions options);

}  // namespace cxxrun
