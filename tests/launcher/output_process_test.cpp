// What a user sees of the ranks' output: in files, through pipes, on a terminal.
#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "launcher/dry_run.hpp"
#include "tests/support/launched.hpp"

namespace cxxrun {
namespace {

using ::testing::AllOf;
using testing::count;
using testing::eventually;
using ::testing::HasSubstr;
using testing::Launched;
using ::testing::Not;
using testing::shell_ranks;
namespace fs = std::filesystem;

std::string for_shell(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) line += shell_quote(word) + ' ';
  return line;
}

// cxxrun with stdin, stdout and stderr on a terminal of its own, 30 x 97.
class OnTerminal {
 public:
  explicit OnTerminal(const std::vector<std::string>& command, const std::vector<std::string>& environment = {}) {
    winsize size{.ws_row = 30, .ws_col = 97, .ws_xpixel = 0, .ws_ypixel = 0};
    int master = -1;
    pid_ = ::forkpty(&master, nullptr, nullptr, &size);
    if (pid_ == 0) {
      ::unsetenv("NO_COLOR");
      ::setenv("TERM", "xterm", 1);
      for (const std::string& entry : environment) ::putenv(const_cast<char*>(entry.c_str()));
      std::vector<char*> argv;
      for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      ::execvp(argv[0], argv.data());
      ::_exit(98);
    }
    master_.reset(master);
    ::fcntl(master, F_SETFL, O_NONBLOCK);
  }
  ~OnTerminal() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  bool waits_for(const std::string& text) {
    return eventually([&] { return screen().find(text) != std::string::npos; });
  }
  std::string wait() {  // all that was shown
    EXPECT_TRUE(eventually([&] {
      screen();
      return ::waitpid(pid_, nullptr, WNOHANG) == pid_;
    }));
    pid_ = -1;
    return screen();
  }
  void resize(unsigned short columns) {
    winsize size{.ws_row = 30, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(master_.get(), TIOCSWINSZ, &size);
  }
  void type(const std::string& text) {
    EXPECT_EQ(::write(master_.get(), text.data(), text.size()), ssize_t(text.size()));
  }

 private:
  std::string screen() {
    char buffer[4096];
    for (ssize_t size; (size = ::read(master_.get(), buffer, sizeof buffer)) > 0;) screen_.append(buffer, size_t(size));
    return screen_;
  }

  pid_t pid_ = -1;
  UniqueFd master_;
  std::string screen_;
};

TEST(Output, RedirectsAndTeesMixPerRank) {
  const TempDir folder;
  Launched job(shell_ranks(4, "echo out$RANK; echo err$RANK >&2",
                           {"--redirects=0:3,1:1,2:2", "--tee=1:2,2:1", "--log-dir=" + folder.path().string()}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.out(), AllOf(Not(HasSubstr("out0")), Not(HasSubstr("out1")), HasSubstr("[default2]:out2\n"),
                               HasSubstr("out3\n"), Not(HasSubstr(":out3"))));
  EXPECT_THAT(job.err(), AllOf(Not(HasSubstr("err0")), HasSubstr("[default1]:err1\n"), Not(HasSubstr("err2")),
                               HasSubstr("err3\n"), Not(HasSubstr(":err3"))));
  std::set<std::string> logs;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.path().extension() == ".log") logs.insert(entry.path().filename().string()[3] + read_file(entry.path()));
  }
  EXPECT_EQ(logs, (std::set<std::string>{"oout0\n", "eerr0\n", "oout1\n", "eerr1\n", "oout2\n", "eerr2\n"}));
}

TEST(Output, OfThirtyTwoRanksArrivesWholeWithThePrefixOfTheUser) {
  const TempDir folder;
  Launched job(
      shell_ranks(32, "seq 1000",
                  {"--tee=1", "--role=trainer", "--log-line-prefix-template=[${role_name}-${local_rank}:${rank}]:",
                   "--duplicate-stdout-filters=99", "--log-dir=" + folder.path().string()}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  std::map<std::string, int> last;
  std::istringstream lines(job.out());
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find("]:");
    ASSERT_NE(colon, line.npos) << line;
    ASSERT_EQ(line.substr(colon + 2), std::to_string(++last[line.substr(0, colon)])) << line;
  }
  EXPECT_EQ(last.size(), 32U);
  for (const auto& [prefix, lines_seen] : last) EXPECT_EQ(lines_seen, 1000) << prefix;
  EXPECT_EQ(last.count("[trainer-31:31"), 1U);
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.path().filename() != "filtered_stdout.log") continue;
    EXPECT_EQ(count(read_file(entry.path()), "]:99\n"), 32U);
    EXPECT_EQ(count(read_file(entry.path()), "\n"), 32U * 19);  // 99, 199, …, 990 to 999
    return;
  }
  FAIL() << "no filtered_stdout.log";
}

TEST(Output, OfATeeReachesAPipeBeforeTheRankEnds) {
  const TempDir folder;
  Launched job(
      {"sh", "-c",
       for_shell(shell_ranks(2, "echo ready; while [ ! -e " + folder.path().string() + "/go ]; do sleep 0.01; done",
                          {"--tee=3", "--log-dir=" + folder.path().string()})) +
           " | cat"});
  EXPECT_TRUE(eventually([&] { return count(job.out(), "ready\n") == 2; }));
  std::ofstream(folder.path() / "go") << "";
  EXPECT_EQ(job.wait(), 0);
}

TEST(Output, ThatNobodyReadsAnyMoreEndsTheRanksAsInAnyPipeline) {
  Launched job({"sh", "-c", for_shell(shell_ranks(2, "while :; do echo line; done")) + " | head -1"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "line\n");
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Output, IsAllThereForAReaderThatTakesItsTimeAfterTheRanksHaveEnded) {
  const TempDir folder;
  const std::string go = (folder.path() / "go").string();
  Launched job({"sh", "-c",
                for_shell(shell_ranks(2, "head -c 299999 /dev/zero; echo; touch " + go + "-$RANK")) + " | (while [ ! -e " +
                    go + " ]; do sleep 0.01; done; wc -c)"});
  for (const char* rank : {"-0", "-1"}) EXPECT_TRUE(eventually([&] { return fs::exists(go + rank); }));
  std::ofstream(go) << "";
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(std::stoi(job.out()), 600000);
}

TEST(Output, LastLinesOfARedirectedOrHiddenStderrAreInTheReport) {
  const TempDir folder;
  for (const char* option : {"--redirects=3", "--local-ranks-filter=0"}) {
    Launched job(shell_ranks(2, "[ $RANK = 0 ] && sleep 100; echo boom >&2; exit 3",
                             {option, "--log-dir=" + folder.path().string()}));
    EXPECT_EQ(job.wait(), 3);
    EXPECT_THAT(job.err(), HasSubstr("| boom\n")) << option;
  }
}

TEST(Output, OnATerminalIsATerminalOfTheSameSizeAndBytesStay) {
  OnTerminal job(shell_ranks(1, "test -t 1 && test -t 2 && stty size <&1; printf '10%%\\r20%%\\033[1m\\n'"));
  EXPECT_EQ(job.wait(), "30 97\r\n10%\r20%\x1b[1m\r\n");  // the screen itself turns \n into \r\n
}

TEST(Output, OnATerminalFollowsItsSize) {
  OnTerminal job(shell_ranks(2, "trap 'stty size <&1; exit' WINCH; echo ready$RANK; while :; do sleep 0.01; done"));
  ASSERT_TRUE(job.waits_for("ready0") && job.waits_for("ready1"));
  job.resize(55);
  EXPECT_EQ(count(job.wait(), "30 55\r\n"), 2U);
}

TEST(Output, OnATerminalIsPrefixedAndColouredForSeveralRanks) {
  OnTerminal plain(shell_ranks(2, "echo x"), {"NO_COLOR=1"});
  EXPECT_THAT(plain.wait(), AllOf(HasSubstr("[rank0] x\r\n"), HasSubstr("[rank1] x\r\n"), Not(HasSubstr("\x1b"))));
  OnTerminal coloured(shell_ranks(2, "echo x"));
  EXPECT_THAT(coloured.wait(), AllOf(HasSubstr("\x1b[2;36m[rank0] \x1b[0mx\r\n"), HasSubstr("m[rank1] \x1b[0mx\r\n")));
  OnTerminal never(shell_ranks(2, "echo x", {"--prefix=never"}));
  EXPECT_EQ(never.wait(), "x\r\nx\r\n");
  OnTerminal filtered(shell_ranks(2, "echo x$RANK", {"--local-ranks-filter=1"}));
  EXPECT_EQ(filtered.wait(), "x1\r\n");
}

TEST(Output, OnATerminalShowsAPromptThatWaits) {
  OnTerminal job(shell_ranks(2, "[ $RANK = 1 ] || printf 'name? '; [ $RANK = 1 ] || { read name; echo hi $name; }"),
                 {"NO_COLOR=1"});
  ASSERT_TRUE(job.waits_for("[rank0] name? "));
  job.type("you\n");
  EXPECT_THAT(job.wait(), HasSubstr("hi you\r\n"));
}

}  // namespace
}  // namespace cxxrun
