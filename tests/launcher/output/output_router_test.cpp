#include "launcher/output/output_router.hpp"

#include <sys/socket.h>

#include <csignal>
#include <fstream>
#include <map>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/support/output_fixture.hpp"

namespace cxxrun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OutputRouterTest : public testing::OutputTest {
 protected:
  OutputRouterTest() { ::signal(SIGPIPE, SIG_IGN); }
  OutputRouter router{loop, options, "trainer", out.writer.get(), err.writer.get()};

  std::string file(const std::string& name) const {
    std::ifstream stream(path(name), std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  }
  StreamPlan to_file(const std::string& name) const { return {.console = false, .file = path(name)}; }
  StreamPlan teed(const std::string& name) const { return {.console = true, .file = path(name), .teed = true}; }
};

TEST_F(OutputRouterTest, PassesTheBytesOfOneRankOnUnchangedAndAtOnce) {
  const auto ranks = start(router, 1);
  for (const std::string& text :
       {std::string("line\n"), std::string("\xff\xfe\0\r 50%", 9), std::string("no newline"), std::string(1, '\0')}) {
    EXPECT_EQ(shown(ranks[0].out, text, out), text);
    EXPECT_EQ(shown(ranks[0].err, text, err), text);
  }
}

TEST_F(OutputRouterTest, StreamsGoWhereTheirPlansSay) {
  const std::vector<RankPlan> plans = {plan(0, to_file("0.out"), teed("0.err")),
                                       plan(1, teed("1.out"), to_file("1.err")), plan(2, {.console = false}, {})};
  router.start_attempt(plans);
  for (const RankPlan& one : plans) {
    const RankStreams rank = router.open(one);
    say(rank.out, "out\xff\r" + std::to_string(one.local_rank) + "\n");
    say(rank.err, "err" + std::to_string(one.local_rank) + "\n");
  }
  router.drain();
  EXPECT_EQ(out.read(), "[trainer1]:out\xff\r1\n");
  EXPECT_EQ(err.read(), "[trainer0]:err0\nerr2\n");
  EXPECT_EQ(file("0.out"), "out\xff\r0\n");
  EXPECT_EQ(file("0.err"), "err0\n");
  EXPECT_EQ(file("1.out"), "out\xff\r1\n");
  EXPECT_EQ(file("1.err"), "err1\n");
}

TEST_F(OutputRouterTest, KeepsTheLastLinesOfStderrWhereverItGoes) {
  const std::vector<RankPlan> plans = {plan(0), plan(1, {}, to_file("1.err")), plan(2, {}, {.console = false})};
  router.start_attempt(plans);
  for (const RankPlan& one : plans) {
    const RankStreams rank = router.open(one);
    for (int i = 0; i < 100; ++i) say(rank.err, "line " + std::to_string(i) + "\n");
    say(rank.err, "10%\r20%\r30%\r\n\nend without newline");
  }
  router.drain();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(router.last_lines(rank, 3), ElementsAre("line 99", "30%", "end without newline")) << rank;
  }
  EXPECT_TRUE(router.last_lines(7, 9).empty());
}

TEST_F(OutputRouterTest, ANewAttemptStartsWithNoLinesAndLosesNone) {
  say(start(router, 1)[0].err, "old\n");
  const auto ranks = start(router, 1);
  EXPECT_EQ(err.read(), "old\n");
  EXPECT_TRUE(router.last_lines(0, 9).empty());
  say(ranks[0].err, "new\n");
  router.drain();
  EXPECT_THAT(router.last_lines(0, 9), ElementsAre("new"));
}

TEST_F(OutputRouterTest, AReaderThatDoesNotReadHoldsUpNobodyAndLosesNothing) {
  auto ranks = start(router, 1);
  ::fcntl(ranks[0].out.get(), F_SETFL, O_NONBLOCK);
  const std::string line(1000, 'x');
  size_t sent = 0;
  // The router takes its fill, 1 MiB, and stops reading; then the rank's pipe fills up.
  constexpr size_t kRouterAndPipes = (1U << 20) + 3 * (1U << 18);
  for (bool full = false; !full;) {
    const ssize_t size = ::write(ranks[0].out.get(), line.data(), line.size());
    if (size > 0) {
      sent += static_cast<size_t>(size);
      ASSERT_LT(sent, 2 * kRouterAndPipes) << "memory is not bounded";
    } else {
      // The other stream still passes, and with it comes whatever the router had to do before.
      full = sent > (1U << 20);
      say(ranks[0].err, "here\n");
      for (std::string seen; seen.empty(); seen = err.read()) loop.run_once();
    }
  }
  ranks[0].out.reset();
  size_t received = 0;
  while (received < sent) {
    received += out.read().size();
    if (received < sent) loop.run_once();
  }
  EXPECT_EQ(received, sent);
}

TEST_F(OutputRouterTest, AReaderThatStopsDuringADrainIsNotWaitedForButCanGoOn) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  ::fcntl(sockets[0], F_SETFL, O_NONBLOCK);
  Ends socket{UniqueFd(sockets[0]), UniqueFd(sockets[1])};
  for (const Ends* console : {&out, &socket}) {
    OutputRouter onto(loop, options, "", console->writer.get(), err.writer.get());
    auto ranks = start(onto, 2);
    const std::string line = std::string(200'000, 'x') + "\n";
    for (const RankStreams& rank : ranks) say(rank.out, line);
    onto.drain();
    EXPECT_TRUE(onto.has_backlog());
    size_t received = 0;
    while (onto.has_backlog()) {
      received += console->read().size();
      loop.run_once();
    }
    for (std::string rest; !(rest = console->read()).empty();) received += rest.size();
    EXPECT_EQ(received, 2 * line.size());
  }
}

TEST_F(OutputRouterTest, WithoutAReaderOfStdoutRanksAreToldAsUsual) {
  const auto ranks = start(router, 1);
  out.reader.reset();
  say(ranks[0].out, "words\n");
  loop.run_once();
  EXPECT_EQ(::write(ranks[0].out.get(), "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(OutputRouterTest, AFileGoesOnWithoutAReaderOfStdout) {
  const auto ranks = start(router, 1, teed("out"));
  out.reader.reset();
  for (int i = 0; i < 3; ++i) {
    say(ranks[0].out, "words\n");
    loop.run_once();
  }
  EXPECT_EQ(file("out"), "words\nwords\nwords\n");
}

TEST_F(OutputRouterTest, WithoutAReaderOfStderrTheReportStillHasItsLines) {
  const auto ranks = start(router, 1);
  err.reader.reset();
  for (int i = 0; i < 3; ++i) {
    say(ranks[0].err, "words " + std::to_string(i) + "\n");
    loop.run_once();
  }
  EXPECT_THAT(router.last_lines(0, 2), ElementsAre("words 1", "words 2"));
}

TEST_F(OutputRouterTest, AFileThatCannotBeWrittenIsSaidOnceAndTheConsoleGoesOn) {
  const std::vector<RankPlan> plans = {plan(0, {.console = true, .file = "/dev/full", .teed = true}),
                                       plan(1, {.console = false, .file = path("absent/file")})};
  router.start_attempt(plans);
  const RankStreams full = router.open(plans[0]), absent = router.open(plans[1]);
  EXPECT_EQ(shown(full.out, "1\n", out), "[trainer0]:1\n");
  EXPECT_EQ(shown(full.out, "2\n", out), "[trainer0]:2\n");
  EXPECT_EQ(shown(absent.out, "3\n", out), "3\n") << "rather on the console than nowhere";
  EXPECT_EQ(err.read(), "cxxrun: cannot write '" + path("absent/file") +
                            "': No such file or directory; output goes on without it\n"
                            "cxxrun: cannot write '/dev/full': No space left on device; output goes on without it\n");
}

TEST_F(OutputRouterTest, AConsoleWithoutRoomIsSaidOnceAndStopsNobody) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  OutputRouter onto_full(loop, options, "", full.get(), err.writer.get());
  const auto ranks = start(onto_full, 1);
  for (int i = 0; i < 2; ++i) {
    say(ranks[0].out, "lost\n");
    loop.run_once();
  }
  EXPECT_EQ(err.read(), "cxxrun: cannot write to stdout: No space left on device; output is lost\n");
}

TEST_F(OutputRouterTest, FilteredFilesHoldTheVisibleTeedLinesOfAllRanksThatMatch) {
  options.duplicate_stdout_filters = {"loss", "accuracy"};
  const std::vector<RankPlan> plans = {plan(0, teed("0.out")), plan(1, teed("1.out")), plan(2, to_file("2.out")),
                                       plan(3)};
  router.start_attempt(plans);
  for (const RankPlan& one : plans) {
    const RankStreams rank = router.open(one);
    say(rank.out, "step 1\nlo");
    if (one.local_rank < 2) loop.run_once();
    say(rank.out, "ss 0.5\nother\naccuracy 1");
    router.drain();
  }
  EXPECT_EQ(file("filtered_stdout.log"),
            "[trainer0]:loss 0.5\n[trainer0]:accuracy 1\n[trainer1]:loss 0.5\n[trainer1]:accuracy 1\n");
  EXPECT_FALSE(std::filesystem::exists(path("filtered_stderr.log")));
}

TEST_F(OutputRouterTest, AllLinesOfThirtyTwoWritersArriveWholeWithTheirPrefixes) {
  options.prefix = PrefixMode::kAlways;
  auto ranks = start(router, 32);
  std::map<std::string, int> next;  // line by prefix
  std::string text;
  const auto take = [&] {
    text += out.read();
    for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
      const size_t blank = text.find(' ');
      ASSERT_EQ(text.substr(blank + 1, end - blank - 1), std::to_string(next[text.substr(0, blank)]++));
      text.erase(0, end + 1);
    }
  };
  for (int line = 0; line < 1000; ++line) {
    for (const RankStreams& rank : ranks) {
      say(rank.out, std::to_string(line).substr(0, 1));  // a line comes in two pieces
      if (line % 50 == 0) loop.run_once();
      say(rank.out, std::to_string(line).substr(1) + "\n");
    }
    if (line % 50 == 0) loop.run_once();
    take();
  }
  router.drain();
  while (router.has_backlog()) {
    take();
    loop.run_once();
  }
  take();
  EXPECT_EQ(next.size(), 32U);
  for (const auto& [prefix, lines] : next) EXPECT_EQ(lines, 1000) << prefix;
}

}  // namespace
}  // namespace cxxrun
