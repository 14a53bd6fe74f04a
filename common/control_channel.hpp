// One end of the control socket between cxxrun and a rank (SOCK_SEQPACKET; a packet is one short text, "verb number").
// rank -> launcher: "beat <step>" once a step. launcher -> rank: "peer_failed <rank>", sent before survivors are ended.
// Never blocks and never throws: without a socket, or when the other side is gone, messages are lost. One thread an end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/unique_fd.hpp"

namespace cxxrun {

inline constexpr char kBeat[] = "beat";
inline constexpr char kPeerFailed[] = "peer_failed";

struct ControlMessage {
  std::string verb;
  int64_t value = 0;
};

class ControlChannel {
 public:
  // Takes ownership of `fd` if it is a seqpacket socket; anything else (-1, or a number that an outer launcher's
  // environment left behind) gives a channel that does nothing.
  explicit ControlChannel(int fd = -1);

  // A connected pair: the launcher's end, and the descriptor that the rank inherits.
  static std::pair<ControlChannel, UniqueFd> make_pair();

  int fd() const { return fd_.get(); }
  void beat(int64_t step) { send(kBeat, step); }
  void send(std::string_view verb, int64_t value);
  std::optional<ControlMessage> poll();
  // The other side has closed, or there never was one.
  bool closed() const { return !fd_; }

 private:
  UniqueFd fd_;
};

}  // namespace cxxrun
