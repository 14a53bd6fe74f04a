// What is on the console when several ranks write.
#include <csignal>

#include <gmock/gmock.h>

#include "tests/support/output_fixture.hpp"

namespace cxxrun {
namespace {

using ::testing::HasSubstr;

class OutputLinesTest : public testing::OutputTest {
 protected:
  // Passes on what there is, without the end of any stream.
  std::string now(const Ends& console) {
    loop.run_once();
    return console.read();
  }
};

TEST_F(OutputLinesTest, AreWholeWhenSeveralRanksWrite) {
  OutputRouter router(loop, options, "default", out.writer.get(), err.writer.get());
  auto ranks = start(router, 2);
  EXPECT_EQ(shown(ranks[0].out, "one\ntw", out), "one\n");
  EXPECT_EQ(shown(ranks[1].out, "ONE\n", out), "ONE\n");
  EXPECT_EQ(shown(ranks[0].out, "o\n", out), "two\n");
  EXPECT_EQ(shown(ranks[0].err, "other\n", err), "other\n");
}

TEST_F(OutputLinesTest, KeepEveryByteAndGetTheirPrefixOnce) {
  options.prefix = PrefixMode::kAlways;
  OutputRouter router(loop, options, "default", out.writer.get(), err.writer.get());
  const auto ranks = start(router, 2);
  const std::string odd("\r10%\r20%\0\xff\xc3\x28\r\n\n", 15);
  EXPECT_EQ(shown(ranks[1].out, odd.substr(0, 6), out), "");
  EXPECT_EQ(shown(ranks[1].out, odd.substr(6), out), "[rank11] " + odd.substr(0, 14) + "[rank11] \n");
  const std::string megabyte(1'000'000, 'm');
  std::string text;
  for (size_t at = 0; at < megabyte.size(); at += 50'000) text += shown(ranks[0].out, megabyte.substr(at, 50'000), out);
  EXPECT_EQ(text, "");
  EXPECT_EQ(shown(ranks[1].out, "between\n", out), "[rank11] between\n");
  say(ranks[0].out, "\n");
  for (loop.run_once(); router.has_backlog(); loop.run_once()) text += out.read();
  EXPECT_EQ(text + out.read(), "[rank10] " + megabyte + "\n");
}

TEST_F(OutputLinesTest, ThatNeverEndDoNotFillTheMemory) {
  OutputRouter router(loop, options, "default", out.writer.get(), err.writer.get());
  const auto ranks = start(router, 2);
  const std::string piece(1 << 17, 'x');
  size_t sent = 0, received = 0;
  while (received == 0) {
    ASSERT_LT(sent, 65U << 20);
    received += shown(ranks[0].out, piece, out).size();
    sent += piece.size();
  }
  EXPECT_GT(sent, 64U << 20);
  router.drain();
  for (; router.has_backlog(); loop.run_once()) received += out.read().size();
  EXPECT_EQ(received + out.read().size(), sent);
}

TEST_F(OutputLinesTest, OfOneRankHaveTheirPrefixAndPassAtOnceAllTheSame) {
  options.prefix = PrefixMode::kAlways;
  OutputRouter router(loop, options, "default", out.writer.get(), err.writer.get());
  const auto ranks = start(router, 1);
  EXPECT_EQ(shown(ranks[0].out, "par", out), "[rank10] par");
  EXPECT_EQ(shown(ranks[0].out, "tial\nnext", out), "tial\n[rank10] next");
}

TEST_F(OutputLinesTest, WithoutAnEndStayThatWayUntilSomebodyElseWrites) {
  OutputRouter router(loop, options, "default", out.writer.get(), err.writer.get());
  auto ranks = start(router, 3);
  say(ranks[0].out, "no end");
  ranks[0].out.reset();
  loop.run_once();
  EXPECT_EQ(now(out), "no end");
  EXPECT_EQ(shown(ranks[1].out, "mine\n", out), "\nmine\n");
  say(ranks[2].out, "the last");
  router.drain();
  EXPECT_EQ(out.read(), "the last");
}

TEST_F(OutputLinesTest, HaveTheTemplateOfTheUserWhereTeedOrPrefixed) {
  options.line_prefix_template = "<${role_name}-${local_rank}:$rank $$ ${unknown}> ";
  OutputRouter router(loop, options, "ps", out.writer.get(), err.writer.get());
  const auto ranks = start(router, 1, {.console = true, .file = path("log"), .teed = true});
  EXPECT_EQ(shown(ranks[0].out, "x\n", out), "<ps-0:10 $ ${unknown}> x\n");
  EXPECT_EQ(shown(ranks[0].err, "x\n", err), "x\n") << "neither teed nor prefixed";
  options.prefix = PrefixMode::kNever;
  const auto bare = start(router, 1, {.console = true, .file = path("log"), .teed = true});
  EXPECT_EQ(shown(bare[0].out, "x\n", out), "x\n");
}

TEST_F(OutputLinesTest, OfOursWaitForTheEndOfARanksLine) {
  OutputRouter router(loop, options, "default", err.writer.get(), err.writer.get());
  const auto ranks = start(router, 1);
  EXPECT_EQ(shown(ranks[0].out, "half a ", err), "half a ");
  router.write("cxxrun: news");
  EXPECT_EQ(err.read(), "");
  EXPECT_EQ(shown(ranks[0].out, "line\nnext", err), "line\ncxxrun: news\nnext");
  router.write("cxxrun: more\n");
  EXPECT_EQ(now(err), "\ncxxrun: more\n") << "but not for ever";
  router.write("cxxrun: at once\n");
  EXPECT_EQ(err.read(), "cxxrun: at once\n");
  EXPECT_EQ(shown(ranks[0].err, "open", err), "open");
  router.drain();
  router.write("");
  EXPECT_EQ(err.read(), "");
  router.write("report\n");
  EXPECT_EQ(err.read(), "\nreport\n");
}

class OutputTerminalTest : public OutputLinesTest {
 protected:
  OutputTerminalTest() {
    ::unsetenv("NO_COLOR");
    ::setenv("TERM", "xterm", 1);
    loop.watch(terminal.reader.get(), EPOLLIN, [this] { screen += terminal.read(); });
  }
  // The same terminal for both streams, as it is for most users.
  std::unique_ptr<OutputRouter> make_router() {
    return std::make_unique<OutputRouter>(loop, options, "default", terminal.writer.get(), terminal.writer.get());
  }

  // Terminals pass bytes on in their own time.
  std::string seen(size_t size) {
    bool patient = true;
    Timer patience(loop, [&] { patient = false; });
    patience.arm(std::chrono::seconds(20));
    while (screen.size() < size && patient) loop.run_once();
    return std::exchange(screen, "");
  }
  void expect(const UniqueFd& rank, const std::string& text, const std::string& expected) {
    say(rank, text);
    EXPECT_EQ(seen(expected.size()), expected);
  }

  Ends terminal = make_terminal();
  std::string screen;
  const std::string zero = "\x1b[2;34m[rank10] \x1b[0m", one = "\x1b[2;31m[rank11] \x1b[0m";
};

TEST_F(OutputTerminalTest, PrefixesAreForSeveralRanksAndColoured) {
  const auto router = make_router();
  auto alone = start(*router, 1);
  expect(alone[0].out, "x\n", "x\n");
  alone.clear();
  auto ranks = start(*router, 2);
  expect(ranks[0].out, "x\n", zero + "x\n");
  expect(ranks[1].err, "crlf\r\n", one + "crlf\r\n");
  options.prefix = PrefixMode::kNever;
  ranks = start(*router, 2);
  expect(ranks[0].out, "x\n", "x\n");
}

TEST_F(OutputTerminalTest, NoColorAndDumbTerminalsAreRespected) {
  ::setenv("NO_COLOR", "1", 1);
  const auto router = make_router();
  expect(start(*router, 2)[0].out, "x\n", "[rank10] x\n");
  ::setenv("NO_COLOR", "", 1);
  ::setenv("TERM", "dumb", 1);
  const auto dumb = make_router();
  expect(start(*dumb, 2)[0].out, "x\n", "[rank10] x\n");
}

TEST_F(OutputTerminalTest, TheProgressBarOfOneRankLivesAmongTheLinesOfOthers) {
  const auto router = make_router();
  const auto ranks = start(*router, 2);
  expect(ranks[0].err, "\r 10%|#", "\r 10%|#");
  expect(ranks[0].err, "\r 20%|##", "\r 20%|##");
  expect(ranks[1].out, "line\n", "\r\x1b[K" + one + "line\n");
  expect(ranks[0].err, "\r 30%|###", "\r 30%|###");
  expect(ranks[0].err, "\r100%|####\ndone\n", "\r100%|####\n" + zero + "done\n");
}

TEST_F(OutputTerminalTest, ProgressBarsOfSeveralRanksTellWhoseTheyAre) {
  const auto router = make_router();
  const auto ranks = start(*router, 2);
  expect(ranks[0].err, "\r 10%", "\r 10%");
  expect(ranks[1].err, "\r 11%", "\r\x1b[K\r" + one + " 11%");
  expect(ranks[1].err, "\r 22%\r 33%", "\r" + one + " 22%\r" + one + " 33%");
  expect(ranks[0].err, "\r 20%", "\r\x1b[K\r" + zero + " 20%");
}

TEST_F(OutputTerminalTest, APromptIsShownWhenItsWriterPausesAndIsNeverLost) {
  const auto router = make_router();
  const auto ranks = start(*router, 2);
  expect(ranks[0].out, "name? ", zero + "name? ");
  expect(ranks[1].out, "line\n", "\n" + one + "line\n");
  expect(ranks[0].out, "thanks\n", zero + "thanks\n");
}

TEST_F(OutputTerminalTest, RanksGetATerminalOfTheSameSizeThatPassesBytesAsTheyAre) {
  const auto router = make_router();
  const auto ranks = start(*router, 1);
  ASSERT_TRUE(::isatty(ranks[0].out.get()) && ::isatty(ranks[0].err.get()));
  winsize size{};
  ::ioctl(ranks[0].err.get(), TIOCGWINSZ, &size);
  EXPECT_EQ(size.ws_row, 33);
  EXPECT_EQ(size.ws_col, 111);
  size.ws_col = 44;
  ::ioctl(terminal.reader.get(), TIOCSWINSZ, &size);
  router->resize();
  ::ioctl(ranks[0].err.get(), TIOCGWINSZ, &size);
  EXPECT_EQ(size.ws_col, 44);
  const std::string bytes("a\nb\r\t\0\x1b[1m\x04\x03\xff", 14);
  expect(ranks[0].out, bytes, bytes);
}

TEST_F(OutputTerminalTest, RedirectedStreamsAreNoTerminals) {
  const auto router = make_router();
  const auto ranks = start(*router, 1, {.console = false, .file = path("log")}, {.console = false});
  EXPECT_FALSE(::isatty(ranks[0].out.get()));
  EXPECT_FALSE(::isatty(ranks[0].err.get()));
}

}  // namespace
}  // namespace cxxrun
