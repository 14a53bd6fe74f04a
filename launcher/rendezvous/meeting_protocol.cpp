#include "launcher/rendezvous/meeting_protocol.hpp"

#include <array>

#include <nlohmann/json.hpp>

namespace cxxrun {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongestText = size_t{1} << 16;
constexpr int64_t kMostRanks = 1 << 20;
constexpr int64_t kMostRounds = int64_t{1} << 40;
constexpr std::array<const char*, 4> kPhases = {"joining", "running", "succeeded", "failed"};

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Calls `read` with the object in `text`; whatever is wrong with it becomes an Error about the key.
template <class F>
auto read_object(const std::string& key, const std::string& text, F read) {
  try {
    if (text.size() > kLongestText) throw Error("{} bytes", text.size());
    return read(Json::parse(text));
  } catch (const std::exception& error) {  // of the JSON library, or ours
    throw Error("c10d rendezvous: key '{}' holds '{}': {}", key, text.substr(0, 200), error.what());
  }
}

int64_t integer(const Json& json, const char* name, int64_t least, int64_t most) {
  const Json& value = json.at(name);
  if (!value.is_number_integer() || value < least || value > most) {
    throw Error("'{}' is not an integer from {} to {}", name, least, most);
  }
  return value;
}

}  // namespace

std::string to_text(const NodeInfo& info) {
  return dump({{"join", info.join},
               {"role", info.role},
               {"local_world_size", info.local_world_size},
               {"address", info.address}});
}

NodeInfo read_node_info(const std::string& key, const std::string& text) {
  return read_object(key, text, [](const Json& json) {
    return NodeInfo{.join = integer(json, "join", 1, kMostRounds),
                    .role = json.at("role"),
                    .local_world_size = integer(json, "local_world_size", 1, kMostRanks),
                    .address = json.at("address")};
  });
}

std::string to_text(const Place& place) {
  if (!place.error.empty()) return dump(Json::object({{"error", place.error}}));
  const RendezvousResult& result = place.result;
  return dump({{"round", place.round},
               {"group_rank", result.group_rank},
               {"group_world_size", result.group_world_size},
               {"base_global_rank", result.base_global_rank},
               {"global_world_size", result.global_world_size},
               {"base_role_rank", result.base_role_rank},
               {"role_world_size", result.role_world_size},
               {"master_addr", result.master_addr},
               {"master_port", result.master_port},
               {"use_agent_store", result.use_agent_store}});
}

Place read_place(const std::string& key, const std::string& text) {
  return read_object(key, text, [](const Json& json) {
    Place place;
    if (json.contains("error")) {
      place.error = json["error"];
      return place;
    }
    place.round = integer(json, "round", 1, kMostRounds);
    const auto ranks = [&](const char* name, int64_t least) { return integer(json, name, least, kMostRanks); };
    place.result = {.group_rank = ranks("group_rank", 0),
                    .group_world_size = ranks("group_world_size", 1),
                    .base_global_rank = ranks("base_global_rank", 0),
                    .global_world_size = ranks("global_world_size", 1),
                    .base_role_rank = ranks("base_role_rank", 0),
                    .role_world_size = ranks("role_world_size", 1),
                    .master_addr = json.at("master_addr"),
                    .master_port = static_cast<int>(integer(json, "master_port", 1, 65535)),
                    .use_agent_store = json.at("use_agent_store")};
    return place;
  });
}

std::string to_text(const MeetingState& state) {
  return dump({{"round", state.round},
               {"phase", kPhases[static_cast<size_t>(state.phase)]},
               {"nodes", state.nodes},
               {"reason", state.reason}});
}

MeetingState read_meeting_state(const std::string& key, const std::string& text) {
  return read_object(key, text, [](const Json& json) {
    const std::string phase = json.at("phase");
    for (size_t i = 0; i < kPhases.size(); ++i) {
      if (phase != kPhases[i]) continue;
      return MeetingState{.round = integer(json, "round", 1, kMostRounds),
                          .phase = static_cast<Phase>(i),
                          .nodes = integer(json, "nodes", 0, kMostRanks),
                          .reason = json.at("reason")};
    }
    throw Error("an unknown phase");
  });
}

}  // namespace cxxrun
