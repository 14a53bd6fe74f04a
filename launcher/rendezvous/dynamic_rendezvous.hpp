// The c10d rendezvous: from min_nodes to nodes of them meet at an end point, get their ranks in order of arrival and
// meet again when one of them starts again, comes or is lost. The end point is master_addr:port (29400 unless given);
// the node that owns it hosts the meeting (meeting_host.hpp), keeps rank 0 and serves the ranks' store; without it the
// job is over. A node of the host's machine that comes later finds the port taken and is one of the others. Only among
// cxxrun nodes; the keys are in meeting_protocol.hpp. What goes wrong while ranks run shows in interruption().
#pragma once

#include <memory>
#include <string>

#include "common/unique_fd.hpp"
#include "launcher/rendezvous/meeting_host.hpp"
#include "launcher/rendezvous/meeting_protocol.hpp"
#include "launcher/rendezvous/rendezvous.hpp"
#include "launcher/rendezvous/rendezvous_conf.hpp"
#include "launcher/rendezvous/store.hpp"

namespace cxxrun {

class DynamicRendezvous : public Rendezvous {
 public:
  // The host opens its port here: PortInUse if is_host says that it must. UsageError for numbers that make no sense.
  explicit DynamicRendezvous(RendezvousOptions options);

  std::optional<RendezvousResult> join(int64_t attempt, int cancel_fd) override;
  Ending finish(bool success, int cancel_fd) override;
  int fd() const override { return epoll_.get(); }
  void on_ready() override;
  void announce_failure(bool restarts) override;
  Interruption interruption() const override { return interruption_; }

 private:
  using Clock = WaitLimit::Clock;

  void connect(const WaitLimit& limit);
  void wake_every(std::chrono::milliseconds interval);
  bool serve();
  bool is_set(const std::string& key);
  void beat();
  void observe();
  void lose_host(const Error& error);
  RendezvousResult take_place(const std::string& key);
  void wait_for_the_end(bool success, const WaitLimit& limit);
  std::string who_came();

  RendezvousOptions options_;
  RendezvousConf conf_;
  MeetingKeys keys_;
  UniqueFd epoll_, timer_;
  std::unique_ptr<MeetingHost> host_;  // here, if this node hosts
  std::unique_ptr<Store> store_;
  int64_t number_ = 0;
  int64_t joins_ = 0;
  int64_t round_ = 0;
  std::optional<bool> success_ = {};  // of the ranks here, for good
  bool over_ = false;
  Clock::time_point next_beat_;
  Interruption interruption_ = Interruption::kNone;
};

}  // namespace cxxrun
