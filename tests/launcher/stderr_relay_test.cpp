#include "launcher/stderr_relay.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cxxrun {
namespace {

using ::testing::ElementsAre;

class StderrRelayTest : public ::testing::Test {
 protected:
  StderrRelayTest() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    reader.reset(ends[0]);
    target.reset(ends[1]);
    ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  }
  static void say(const UniqueFd& fd, const std::string& text) {
    ASSERT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::string read_all() {
    std::string text(1 << 20, '\0');
    const ssize_t size = ::read(reader.get(), text.data(), text.size());
    text.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return text;
  }

  UniqueFd reader, target;
  EventLoop loop;
};

TEST_F(StderrRelayTest, PassesBytesOnUnchangedAndAtOnce) {
  StderrRelay relay(loop, target.get());
  const UniqueFd rank = relay.open(0);
  for (const std::string& text :
       {std::string("line\n"), std::string("\xff\xfe\0\r 50%", 9), std::string("no newline")}) {
    say(rank, text);
    loop.run_once();
    EXPECT_EQ(read_all(), text);
  }
}

TEST_F(StderrRelayTest, KeepsTheLastLinesOfEachRank) {
  StderrRelay relay(loop, target.get());
  const UniqueFd first = relay.open(0), second = relay.open(1);
  for (int i = 0; i < 100; ++i) say(first, "line " + std::to_string(i) + "\n");
  say(second, "10%\r20%\r30%\r\n\nend without newline");
  relay.drain();
  EXPECT_THAT(relay.last_lines(0, 2), ElementsAre("line 98", "line 99"));
  EXPECT_THAT(relay.last_lines(1, 9), ElementsAre("30%", "end without newline"));
  EXPECT_TRUE(relay.last_lines(7, 9).empty());
}

TEST_F(StderrRelayTest, ANewAttemptStartsWithNoLines) {
  StderrRelay relay(loop, target.get());
  say(relay.open(0), "old\n");
  loop.run_once();
  say(relay.open(0), "new\n");
  relay.drain();
  EXPECT_THAT(relay.last_lines(0, 9), ElementsAre("new"));
}

TEST_F(StderrRelayTest, AReaderThatDoesNotReadHoldsUpNobodyAndLosesNothing) {
  StderrRelay relay(loop, target.get());
  UniqueFd rank = relay.open(0);
  ::fcntl(rank.get(), F_SETFL, O_NONBLOCK);
  const std::string line(1000, 'x');
  size_t sent = 0;
  // The relay takes its fill, 1 MiB, and stops reading; then the rank's pipe fills up.
  constexpr size_t kRelayAndOnePipe = (1U << 20) + (1U << 16);
  for (;;) {
    const ssize_t size = ::write(rank.get(), line.data(), line.size());
    if (size > 0) {
      sent += static_cast<size_t>(size);
      ASSERT_LT(sent, 2 * kRelayAndOnePipe) << "memory is not bounded";
    } else if (sent > kRelayAndOnePipe) {
      break;
    } else {
      loop.run_once();
    }
  }
  rank.reset();
  size_t received = 0;
  while (received < sent) {
    const size_t size = read_all().size();
    received += size;
    if (received < sent) loop.run_once();
  }
  EXPECT_EQ(received, sent);
}

TEST_F(StderrRelayTest, WithoutAReaderOutputIsLostAndNothingElse) {
  ::signal(SIGPIPE, SIG_IGN);
  StderrRelay relay(loop, target.get());
  const UniqueFd rank = relay.open(0);
  reader.reset();
  say(rank, "words\n");
  relay.drain();
  EXPECT_THAT(relay.last_lines(0, 1), ElementsAre("words"));
}

}  // namespace
}  // namespace cxxrun
