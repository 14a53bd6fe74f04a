// What the nodes of a c10d rendezvous tell each other, in the store of the node that hosts it. The host alone decides;
// it is node 1, and always rank 0. Not torchrun's pickled state: all nodes must be cxxrun's. Reading throws Error that
// names the key; nothing that arrives is trusted. Below /cxxrun.rendezvous/<run id>/:
//
//   nodes             ADD 1 gives a node its number, in order of arrival
//   node/<n>          {"join": 2, "role": "default", "local_world_size": 8, "address": "b"}: n waits for the next
//                     round, for the second time
//   place/<n>/<join>  the host's answer: {"round": 3, ranks…} or {"error": "…"}
//   beat/<n>          ADD 1 every keep_alive_interval
//   again/<n>         the ranks that n got at its join of this number have failed, and it will join once more
//   end/<n>           1 or 0: the ranks of n have succeeded or failed, for good
//   state             {"round": 3, "phase": "joining", "nodes": 2, "reason": "…"}
//   seen/<n>          n has read that the job is over
#pragma once

#include <cstdint>
#include <string>

#include "launcher/rendezvous/rendezvous.hpp"

namespace cxxrun {

enum class Phase { kJoining, kRunning, kSucceeded, kFailed };

inline bool is_over(Phase phase) { return phase == Phase::kSucceeded || phase == Phase::kFailed; }

struct NodeInfo {
  int64_t join = 0;
  std::string role = "";
  int64_t local_world_size = 1;
  std::string address = "";
};

struct Place {
  int64_t round = 0;
  RendezvousResult result = {};
  std::string error = "";  // "" = there is a place
};

struct MeetingState {
  int64_t round = 1;  // that runs, or that nodes join
  Phase phase = Phase::kJoining;
  int64_t nodes = 0;  // that are in it, or wait for it
  std::string reason = "";

  bool operator==(const MeetingState&) const = default;
};

struct MeetingKeys {
  explicit MeetingKeys(const std::string& run_id) : prefix("/cxxrun.rendezvous/" + run_id + "/") {}

  std::string nodes() const { return prefix + "nodes"; }
  std::string state() const { return prefix + "state"; }
  std::string of(const char* name, int64_t node) const { return fmt::format("{}{}/{}", prefix, name, node); }
  std::string place(int64_t node, int64_t join) const { return fmt::format("{}place/{}/{}", prefix, node, join); }

  std::string prefix;
};

std::string to_text(const NodeInfo& info);
std::string to_text(const Place& place);
std::string to_text(const MeetingState& state);

NodeInfo read_node_info(const std::string& key, const std::string& text);
Place read_place(const std::string& key, const std::string& text);
MeetingState read_meeting_state(const std::string& key, const std::string& text);

}  // namespace cxxrun
