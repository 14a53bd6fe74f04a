#include "worker/shutdown.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <future>

#include <gmock/gmock.h>

#include "tests/support/launched.hpp"

namespace vla {
namespace {

using cxxrun::testing::eventually;
using testing::ExitedWithCode;

// A thread as CUDA and NVML have them: every signal unblocked.
class LibraryThread {
 public:
  LibraryThread() {
    std::promise<void> started;
    thread_ = std::thread([&, ended = end_.get_future()] {
      sigset_t all;
      sigfillset(&all);
      ::pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
      started.set_value();
      ended.wait();
    });
    started.get_future().wait();
  }
  ~LibraryThread() {
    end_.set_value();
    thread_.join();
  }
  void signal(int number) { ::pthread_kill(thread_.native_handle(), number); }

 private:
  std::promise<void> end_;
  std::thread thread_;
};

TEST(ShutdownWatcher, SeesSignalsThatReachAThreadWithNothingBlocked) {
  ShutdownWatcher watcher(-1);
  LibraryThread library;
  library.signal(SIGUSR1);
  EXPECT_TRUE(eventually([&] { return watcher.take_save_request(); }));
  EXPECT_EQ(watcher.stop_signal(), 0);
  library.signal(SIGTERM);
  EXPECT_TRUE(eventually([&] { return watcher.stop_signal() == SIGTERM; }));
}

TEST(ShutdownWatcher, SeesSignalsOfTheProcess) {
  ShutdownWatcher watcher(-1);
  ::kill(::getpid(), SIGUSR2);
  EXPECT_TRUE(eventually([&] { return watcher.take_save_request(); }));
  EXPECT_FALSE(watcher.take_save_request());
  ::kill(::getpid(), SIGHUP);
  EXPECT_TRUE(eventually([&] { return watcher.stop_signal() == SIGHUP; }));
}

TEST(ShutdownWatcher, ASecondSignalEndsTheProcessAtOnce) {
  const auto twice = [] {
    ShutdownWatcher watcher(-1);
    LibraryThread library;
    library.signal(SIGTERM);
    eventually([&] { return watcher.stop_signal() != 0; });
    ::kill(::getpid(), SIGINT);
    for (;;) ::pause();
  };
  EXPECT_EXIT(twice(), ExitedWithCode(128 + SIGINT), "");
}

TEST(ShutdownWatcher, AnIgnoredHangupStaysIgnored) {
  const auto previous = ::signal(SIGHUP, SIG_IGN);
  {
    ShutdownWatcher watcher(-1);
    LibraryThread library;
    library.signal(SIGHUP);
    library.signal(SIGUSR1);
    EXPECT_TRUE(eventually([&] { return watcher.take_save_request(); }));
    EXPECT_EQ(watcher.stop_signal(), 0);
  }
  ::signal(SIGHUP, previous);
}

TEST(ShutdownWatcher, LeavesAtOnceWhenThePeerFailed) {
  const auto told = [] {
    auto [launcher, descriptor] = cxxrun::ControlChannel::make_pair();
    ShutdownWatcher watcher(descriptor.get());
    launcher.send(cxxrun::kPeerFailed, 3);
    for (;;) ::pause();
  };
  EXPECT_EXIT(told(), ExitedWithCode(128 + SIGTERM), "rank 3 failed");
}

TEST(ShutdownWatcher, GivesTheHandlersBack) {
  struct sigaction before = {}, after = {};
  ::sigaction(SIGTERM, nullptr, &before);
  { ShutdownWatcher watcher(-1); }
  ::sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

}  // namespace
}  // namespace vla
