// An OutputRouter whose stdout and stderr are pipes (or one terminal) that the test reads.
#pragma once

#include <fcntl.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "launcher/output/output_router.hpp"
#include "tests/support/temp_dir.hpp"

namespace cxxrun::testing {

class OutputTest : public ::testing::Test {
 protected:
  struct Ends {
    UniqueFd reader, writer;

    std::string read() const {  // what is there now
      std::string text(1 << 20, '\0');
      const ssize_t size = ::read(reader.get(), text.data(), text.size());
      text.resize(size > 0 ? static_cast<size_t>(size) : 0);
      return text;
    }
  };
  static Ends make_pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
  }
  static Ends make_terminal() {  // that shows bytes as they are
    int master = -1, slave = -1;
    termios raw{};
    ::cfmakeraw(&raw);
    winsize size{.ws_row = 33, .ws_col = 111, .ws_xpixel = 0, .ws_ypixel = 0};
    if (::openpty(&master, &slave, nullptr, &raw, &size) != 0) std::abort();
    ::fcntl(master, F_SETFL, O_NONBLOCK);
    return {UniqueFd(master), UniqueFd(slave)};
  }
  static void say(const UniqueFd& fd, const std::string& text) {
    ASSERT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  RankPlan plan(int rank, const StreamPlan& out = {}, const StreamPlan& err = {}) const {
    return {.rank = 10 + rank,
            .local_rank = rank,
            .error_file = path(std::to_string(rank) + "/error.json"),
            .out = out,
            .err = err};
  }
  std::string path(const std::string& name) const { return (folder.path() / name).string(); }
  // All ranks of an attempt, with the same streams.
  std::vector<RankStreams> start(OutputRouter& router, int ranks, const StreamPlan& out = {}, const StreamPlan& err = {}) {
    std::vector<RankPlan> plans;
    for (int rank = 0; rank < ranks; ++rank) plans.push_back(plan(rank, out, err));
    router.start_attempt(plans);
    std::vector<RankStreams> streams;
    for (const RankPlan& one : plans) streams.push_back(router.open(one));
    return streams;
  }
  // What the rank says, and then what it has led to.
  std::string shown(const UniqueFd& fd, const std::string& text, const Ends& console) {
    say(fd, text);
    loop.run_once();
    return console.read();
  }

  TempDir folder;
  EventLoop loop;
  OutputOptions options;
  Ends out = make_pipe(), err = make_pipe();
};

}  // namespace cxxrun::testing
