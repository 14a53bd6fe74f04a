// Ranks as real processes. Owns them, their control sockets and, through the router, what they write; ends what is
// left of them when destroyed. Tells the guardian which sessions exist, so that it can end them if we are killed. Main thread.
#pragma once

#include <map>

#include "common/control_channel.hpp"
#include "launcher/child_process.hpp"
#include "launcher/child_runner.hpp"
#include "launcher/event_loop.hpp"
#include "launcher/orphans.hpp"
#include "launcher/output/output_router.hpp"

namespace cxxrun {

class ProcessRunner : public ChildRunner {
 public:
  ProcessRunner(EventLoop& loop, OutputRouter& output, ControlChannel& guardian, std::string program,
                const sigset_t& signal_mask);
  ~ProcessRunner() override;

  void start(const std::vector<RankPlan>& plans) override;
  std::vector<RankExit> take_exits() override;
  void signal_ranks(int signo) override;
  void tell_ranks(std::string_view verb, int64_t value) override;
  bool anything_left() const override { return orphans_.any_child_left(); }
  void signal_leftovers(int signo) override { orphans_.signal_all(signo); }
  std::string describe_leftovers() const override { return orphans_.describe(); }
  int64_t pid(int local_rank) const override { return ranks_.at(local_rank).pid; }
  bool is_stopped(int local_rank) const override;
  // The local rank that a process belongs to, by its session.
  std::optional<int> rank_of(pid_t pid) const;
  std::vector<std::string> last_stderr_lines(int local_rank, size_t count) override;
  std::optional<Beat> last_beat(int local_rank) const override { return ranks_.at(local_rank).last_beat; }

 private:
  struct Rank {
    ChildProcess process;
    ControlChannel control;
    pid_t pid;
    std::optional<Beat> last_beat = {};
  };

  void start(const RankPlan& plan);
  void read_control(Rank& rank);
  void close_control(Rank& rank);

  EventLoop& loop_;
  OutputRouter& output_;
  ControlChannel& guardian_;
  std::string program_;
  sigset_t signal_mask_;
  Orphans orphans_;
  std::map<int, Rank> ranks_;
};

}  // namespace cxxrun
