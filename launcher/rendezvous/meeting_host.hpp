// Decides for all nodes of a c10d rendezvous: who is in the next round and with which ranks, who is lost, when the job
// is over. Owns the store in which nodes meet and, for each round, a fresh one for the ranks. Passive: the owner polls
// the epoll descriptor that it gave, calls on_ready() when that is readable, and step() every few moments. One thread.
// The constructor throws PortInUse; what other nodes write wrongly costs only them their place.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "launcher/rendezvous/meeting_protocol.hpp"
#include "launcher/rendezvous/rendezvous_conf.hpp"
#include "launcher/rendezvous/tcp_store_server.hpp"

namespace cxxrun {

class MeetingHost {
 public:
  // The options outlive this. `address`: how other nodes reach this one. `epoll`: gets the descriptors of the stores.
  MeetingHost(const RendezvousOptions& options, const RendezvousConf& conf, std::string address, int epoll);

  TcpStoreServer& store() { return *store_; }
  void on_ready();
  void step();
  bool others_know_the_end() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Member {
    int64_t number;
    Clock::time_point heard;
    std::string beat = "", text = "", again = "";  // as last read
    NodeInfo info = {};
    int64_t answered_join = 0;
    bool alive = true;
    bool in_round = false;  // the last one
    bool left = false;
    std::optional<bool> success = {};

    bool waits() const { return alive && info.join > answered_join; }
    bool starts_again() const { return waits() || again == std::to_string(answered_join); }
  };

  void meet_newcomers();
  void listen_to(Member& member);
  void judge_round();
  void begin_round_when_complete();
  void give_places(const std::vector<Member*>& nodes);
  int open_ranks_port();
  void refuse_those_who_wait();
  void close(Phase phase, std::string reason);
  void publish();

  const RendezvousOptions& options_;
  std::chrono::seconds last_call_timeout_, patience_;
  std::string address_;
  MeetingKeys keys_;
  int epoll_;
  std::unique_ptr<TcpStoreServer> store_;
  std::unique_ptr<TcpStoreServer> ranks_store_;
  BoundSocket reserved_;  // with AgentStore::kOff
  MeetingState state_;
  std::optional<MeetingState> published_;
  std::vector<Member> members_;  // by number - 1; those that left stay
  std::optional<Clock::time_point> last_call_;
};

}  // namespace cxxrun
