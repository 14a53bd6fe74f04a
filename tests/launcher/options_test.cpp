#include "launcher/options.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "tests/support/message_of.hpp"

namespace cxxrun {
namespace {

using Strings = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

LauncherOptions parse(Strings args, const Variables& variables = {}) {
  args.push_back("s.py");
  return parse_options(args, [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(Options, HaveTorchrunsDefaults) {
  const LauncherOptions options = parse({});
  EXPECT_EQ(options.nproc_per_node, "1");
  EXPECT_EQ(options.max_nodes, 1);
  EXPECT_EQ(options.max_restarts, 0);
  EXPECT_EQ(options.role, "default");
  EXPECT_EQ(options.master_addr, "127.0.0.1");
  EXPECT_EQ(options.shutdown_timeout, std::chrono::seconds(30));
  EXPECT_TRUE(options.agent_store);
  EXPECT_EQ(options.program, "s.py");
}

TEST(Options, CommandLineBeatsVariableBeatsDefault) {
  EXPECT_EQ(parse({}, {{"PET_NPROC_PER_NODE", "3"}}).nproc_per_node, "3");
  EXPECT_EQ(parse({"--nproc-per-node=2"}, {{"PET_NPROC_PER_NODE", "3"}}).nproc_per_node, "2");
  EXPECT_EQ(parse({"--max-restarts=1", "--max_restarts=2"}).max_restarts, 2);
  EXPECT_TRUE(parse({}, {{"PET_NO_PYTHON", "7"}}).no_python);
  EXPECT_FALSE(parse({}, {{"PET_NO_PYTHON", "0"}}).no_python);
  EXPECT_EQ(parse({}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5"}}).shutdown_timeout, std::chrono::seconds(5));
  EXPECT_EQ(parse({"--shutdown-timeout=0"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5"}}).shutdown_timeout,
            std::chrono::seconds(0));
}

TEST(Options, IntegersAreWrittenAsInPython) {
  EXPECT_EQ(parse({"--max-restarts= 1_0 "}).max_restarts, 10);
  EXPECT_EQ(parse_python_int("-3"), -3);
  EXPECT_EQ(parse_python_int("+4"), 4);
  for (const char* text : {"", "_1", "1_", "1__0", "+-1", "- 1", "1.0", "0x1", "99999999999"})
    EXPECT_EQ(parse_python_int(text), std::nullopt) << text;
}

TEST(Options, NodesAreANumberOrARange) {
  EXPECT_EQ(parse({"--nnodes=2", "--master-addr=h"}).min_nodes, 2);
  const LauncherOptions range = parse({"--nnodes=2:4", "--node-rank=3"});
  EXPECT_EQ(range.min_nodes, 2);
  EXPECT_EQ(range.max_nodes, 4);
  EXPECT_EQ(range.node_rank, 3);
}

struct PortCase {
  Strings args;
  Variables variables;
  int port;
  bool hard;
};

TEST(Options, APortThatTheUserNamedIsHardAnInheritedOneIsAWish) {
  const PortCase kCases[] = {
      {{}, {}, 0, false},
      {{"--standalone"}, {}, 0, false},
      {{"--master-port=1234"}, {}, 1234, true},
      {{"--master-port=0"}, {}, 0, false},
      {{}, {{"PET_MASTER_PORT", "1234"}}, 1234, true},
      {{}, {{"MASTER_PORT", "1234"}}, 1234, false},
      {{}, {{"MASTER_PORT", "nonsense"}}, 0, false},
      {{"--master-port=1"}, {{"MASTER_PORT", "1234"}}, 1, true},
      {{"--rdzv-endpoint=localhost:1234"}, {}, 1234, true},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"}, {}, 0, false},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=localhost"}, {}, 0, false},
      {{"--standalone", "--master-port=1234"}, {{"MASTER_PORT", "5"}}, 0, false},
      {{"--nnodes=2"}, {{"MASTER_PORT", "1234"}}, 29500, true},
      {{"--nnodes=2", "--master-port=77"}, {}, 77, true},
  };
  for (const PortCase& expected : kCases) {
    SCOPED_TRACE(::testing::PrintToString(expected.args) + ::testing::PrintToString(expected.variables));
    const LauncherOptions options = parse(expected.args, expected.variables);
    EXPECT_EQ(options.master_port, expected.port);
    EXPECT_EQ(options.port_is_hard, expected.hard);
  }
}

TEST(Options, AnEndpointGivesTheAddressToo) {
  EXPECT_EQ(parse({"--rdzv-endpoint=node-1.example:1234"}).master_addr, "node-1.example");
  EXPECT_EQ(parse({"--rdzv-endpoint=[::1]:1234"}).master_addr, "::1");
}

TEST(Options, AnExplicitRunIdIsKeptAndAMissingOneIsMadeUpOnOneMachine) {
  EXPECT_EQ(parse({"--rdzv-id=job"}).run_id, "job");
  EXPECT_NE(parse({}).run_id, parse({}).run_id);
  EXPECT_EQ(parse({"--nnodes=2"}).run_id, "none");
  EXPECT_EQ(parse({"--master-port=1234"}).run_id, "none");
  EXPECT_NE(parse({"--nnodes=2", "--rdzv-id="}).run_id, "");
}

TEST(Options, BadValuesAreNamedWithTheirOption) {
  struct Case {
    Strings args;
    Variables variables;
    std::string message;
  };
  const Case kCases[] = {
      {{"--nnodes=1:2:3"}, {}, "--nnodes=1:2:3 is not N or MIN:MAX"},
      {{"--nnodes=a"}, {}, "--nnodes: 'a' is not an integer"},
      {{"--nnodes=2:1"}, {}, "the minimum must be"},
      {{"--nnodes=0"}, {}, "the minimum must be"},
      {{"--nnodes=2", "--node-rank=2"}, {}, "--node-rank=2 must be from 0 to 1"},
      {{"--max-restarts=-1"}, {}, "--max-restarts=-1 must be at least 0"},
      {{"--max-restarts=x"}, {}, "--max-restarts: 'x' is not an integer"},
      {{}, {{"PET_MAX_RESTARTS", ""}}, "PET_MAX_RESTARTS: '' is not an integer"},
      {{}, {{"PET_STANDALONE", "true"}}, "PET_STANDALONE: 'true' is not an integer"},
      {{}, {{"PET_LOG_DIR", "x"}}, "cxxrun does not support PET_LOG_DIR"},
      {{"--monitor-interval=0"}, {}, "--monitor-interval must be above 0"},
      {{"--shutdown-timeout=-1"}, {}, "--shutdown-timeout=-1"},
      {{"--shutdown-timeout=x"}, {}, "--shutdown-timeout"},
      {{"--master-port=66660"}, {}, "--master-port=66660 is not a port"},
      {{"--rdzv-endpoint=h:66660"}, {}, "is not a port"},
      {{"--rdzv-endpoint=h"}, {}, "the port is missing"},
      {{"--rdzv-endpoint=h/x:1"}, {}, "is not HOST:PORT"},
      {{"--rdzv-endpoint=:1"}, {}, "is not HOST:PORT"},
      {{"--rdzv-endpoint=h:x"}, {}, "is not HOST:PORT"},
      {{"--rdzv-endpoint=[::1:2"}, {}, "is not HOST:PORT"},
      {{"--rdzv-backend=etcd"}, {}, "cxxrun does not support --rdzv-backend=etcd"},
      {{"--rdzv-backend=c10d", "--nnodes=2"}, {}, "cxxrun does not support --rdzv-backend=c10d on several machines"},
      {{"--standalone", "--nnodes=2"}, {}, "--standalone is for one machine"},
      {{"--agent-store=maybe"}, {}, "--agent-store=maybe must be on or off"},
      {{"--no-python", "-m"}, {}, "exclude each other"},
  };
  for (const Case& bad : kCases) {
    SCOPED_TRACE(::testing::PrintToString(bad.args) + ::testing::PrintToString(bad.variables));
    EXPECT_THAT(message_of<UsageError>([&] { parse(bad.args, bad.variables); }), ::testing::HasSubstr(bad.message));
  }
  EXPECT_THROW(parse_options({}, [](const std::string&) { return std::nullopt; }), UsageError);
}

TEST(Options, HelpIsGivenWhateverElseIsWrong) {
  EXPECT_TRUE(parse({"-h"}, {{"PET_LOG_DIR", "x"}}).help);
  EXPECT_TRUE(parse_options({"--version", "--bogus"}, [](const std::string&) { return std::nullopt; }).version);
}

TEST(Options, HelpListsWhatIsSupportedAndNothingElse) {
  const std::string help = help_text();
  for (const char* name : {"--nproc-per-node", "--max-restarts", "--dry-run", "-m [ --module ]"})
    EXPECT_THAT(help, ::testing::HasSubstr(name));
  EXPECT_THAT(help, ::testing::Not(::testing::HasSubstr("--tee")));
}

}  // namespace
}  // namespace cxxrun
