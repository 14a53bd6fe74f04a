#include "launcher/options/options.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "launcher/options/option_rows.hpp"
#include "launcher/options/usage_text.hpp"
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
      {{"--tee=4"}, {}, "--tee='4' must be 0 (none), 1 (stdout), 2 (stderr) or 3 (both)"},
      {{}, {{"PET_REDIRECTS", "0:3,"}}, "--redirects='0:3,'"},
      {{"--local-ranks-filter=a"}, {}, "--local-ranks-filter=a must be local ranks"},
      {{"--event-log-handler=x"}, {}, "--event-log-handler=x must be null or console"},
      {{"--logs-specs=mine"}, {}, "--logs-specs=mine names a Python class"},
      {{"--hang-timeout=0"}, {}, "--hang-timeout=0 must be seconds above 0"},
      {{"--hang-timeout=0.0001"}, {}, "to the millisecond"},
      {{"--json"}, {}, "--json goes with --dry-run"},
      {{"--use-env"}, {}, "--use-env goes with --launch-compat"},
      {{"--launch-compat", "--no-python"}, {}, "also needs --use-env"},
      {{"--rdzv-conf=a"}, {}, "'a' has no value"},
      {{"--rdzv-conf==v"}, {}, "is not KEY=VALUE"},
      {{"--rdzv-conf=run_id=x"}, {}, "'run_id' is an option of its own"},
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
      {{"--rdzv-backend=c10d", "--nnodes=2", "--rdzv-endpoint=h:0"}, {}, "a port that all of them know"},
      {{"--rdzv-backend=c10"}, {}, "did you mean 'c10d'?"},
      {{"--standalone", "--nnodes=2"}, {}, "--standalone is for one machine"},
      {{"--agent-store=maybe"}, {}, "--agent-store=maybe must be one of on,off"},
      {{"--start-method=x"}, {}, "--start-method=x must be one of spawn,fork,forkserver"},
      {{"--no-python", "-m"}, {}, "exclude each other"},
  };
  for (const Case& bad : kCases) {
    SCOPED_TRACE(::testing::PrintToString(bad.args) + ::testing::PrintToString(bad.variables));
    EXPECT_THAT(message_of<UsageError>([&] { parse(bad.args, bad.variables); }), ::testing::HasSubstr(bad.message));
  }
  EXPECT_THROW(parse_options({}, [](const std::string&) { return std::nullopt; }), UsageError);
}

TEST(Options, HelpIsGivenWhateverElseIsWrong) {
  EXPECT_TRUE(parse({"-h"}, {{"PET_MAX_RESTARTS", "x"}}).help);
  EXPECT_TRUE(parse_options({"--version", "--bogus"}, [](const std::string&) { return std::nullopt; }).version);
  EXPECT_EQ(parse({"--print-completion=zsh", "--bogus"}).completion, "zsh");
}

TEST(Options, ChoicesInVariablesAreNotAskedForAsInArgparse) {
  EXPECT_EQ(parse({}, {{"PET_START_METHOD", "bogus"}}).program, "s.py");
}

TEST(Options, StreamsAreChosenForAllRanksOrForEachOne) {
  const OutputOptions all = parse({"-r", "1", "-t3"}).output;
  EXPECT_EQ(all.redirects.of(7), 1);
  EXPECT_EQ(all.tee.of(0), 3);
  const StdMap some = parse({"--redirects=0:1,12:3,0:2"}).output.redirects;
  EXPECT_EQ(some.of(0), 2) << "the last one counts";
  EXPECT_EQ(some.of(1), 0);
  EXPECT_EQ(some.of(12), 3) << "torchrun cannot name rank 12";
  for (const char* bad : {"", "0:1,", "11", "0:1,1", "1,0:1", "-1", "0:4", "a:1", "0:"})
    EXPECT_THROW(parse_std_map(bad, "-r"), UsageError) << bad;
}

TEST(Options, FiltersAreListsInWhichADoubleCommaIsOne) {
  const OutputOptions output =
      parse({"--duplicate-stdout-filters=a,b,,c", "--local-ranks-filter", "0, 3", "--prefix=always"}).output;
  EXPECT_EQ(output.duplicate_stdout_filters, (Strings{"a", "b,c"}));
  EXPECT_EQ(output.shown_ranks, (std::set<int>{0, 3}));
  EXPECT_EQ(output.prefix, PrefixMode::kAlways);
}

TEST(Options, TheLinePrefixTemplateOfTheCommandLineBeatsTheVariable) {
  const Variables variable = {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "v"}};
  EXPECT_EQ(parse({}, variable).output.line_prefix_template, "v");
  EXPECT_EQ(parse({"--log-line-prefix-template=o"}, variable).output.line_prefix_template, "o");
}

TEST(Options, SignalsToHandleAreNamedAndUnknownOnesOnlyWarn) {
  const LauncherOptions options = parse({"--signals-to-handle=SIGTERM,SIGUSR1,BOGUS,SIGKILL"});
  EXPECT_EQ(options.stop_signals, (std::set<int>{SIGTERM, SIGUSR1}));
  EXPECT_EQ(options.warnings.size(), 2U);
  EXPECT_EQ(parse({}).stop_signals, (std::set<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT}));
}

TEST(Options, AcceleratesSpellingsMeanTheSameFields) {
  const LauncherOptions options =
      parse({"--num_processes=8", "--num_machines", "2", "--machine_rank=1", "--main_process_ip=h",
             "--main_process_port=77", "--gpu_ids=2,3", "--mixed_precision=bf16", "--multi_gpu"});
  EXPECT_EQ(options.nproc_per_node, "4");
  EXPECT_EQ(options.max_nodes, 2);
  EXPECT_EQ(options.node_rank, 1);
  EXPECT_EQ(options.master_addr, "h");
  EXPECT_EQ(options.master_port, 77);
  EXPECT_TRUE(options.port_is_hard);
  EXPECT_EQ(options.more_environment,
            (std::vector<std::pair<std::string, std::string>>{{"CUDA_VISIBLE_DEVICES", "2,3"},
                                                              {"ACCELERATE_MIXED_PRECISION", "bf16"}}));
  EXPECT_EQ(parse({"--multi_gpu"}).nproc_per_node, "gpu");
  EXPECT_EQ(parse({"--multi_gpu", "--nproc_per_node=2"}).nproc_per_node, "2");
  EXPECT_EQ(parse({"--num-processes=2", "--cpu", "--gpu_ids=all"}).more_environment.back().second, "");
  for (const Strings& bad :
       {Strings{"--num_processes=5", "--num_machines=2"}, {"--num_processes=0"}, {"--num_machines=0"},
        {"--num_processes=2", "--nproc_per_node=2"}, {"--mixed_precision=int4"}, {"--cpu", "--gpu_ids=0"}})
    EXPECT_THROW(parse(bad), UsageError) << ::testing::PrintToString(bad);
}

TEST(Options, RunPathWinsOverTheOtherWaysToRunPython) {
  const LauncherOptions options = parse({"--run-path", "--no-python", "-m"});
  EXPECT_TRUE(options.run_path);
  EXPECT_FALSE(options.no_python);
  EXPECT_FALSE(options.module);
}

TEST(Options, TheOldLauncherIsAFlagOrAName) {
  const auto no_variables = [](const std::string&) { return std::nullopt; };
  EXPECT_TRUE(parse({"--launch-compat"}).launch_compat);
  EXPECT_FALSE(parse({"--launch-compat", "--use_env", "--no-python"}).launch_compat);
  EXPECT_TRUE(parse_options({"s.py"}, no_variables, "cxxlaunch").launch_compat);
  EXPECT_FALSE(parse_options({"--use-env", "s.py"}, no_variables, "cxxlaunch").launch_compat);
}

TEST(Options, C10dKeepsItsEndPointForSeveralNodesAndWarnsOfWhatItIgnores) {
  const LauncherOptions options = parse({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:77", "--node-rank=5",
                                         "--rdzv-conf='join_timeout=5,last_call_timeout=1'"});
  EXPECT_EQ(options.master_addr, "h");
  EXPECT_EQ(options.master_port, 77);
  EXPECT_EQ(options.rdzv_conf,
            (std::map<std::string, std::string>{{"join_timeout", "5"}, {"last_call_timeout", "1"}}));
  EXPECT_EQ(options.warnings.size(), 1U);
}

TEST(Options, HelpAndCompletionListEveryOption) {
  const std::string help = help_text();
  for (const OptionSpec& spec : option_specs()) {
    const std::string name(spec.name);
    EXPECT_THAT(help, ::testing::HasSubstr(name)) << name;
    for (const char* shell : {"bash", "zsh", "tcsh"}) EXPECT_THAT(completion_script(shell), ::testing::HasSubstr(name));
  }
}

}  // namespace
}  // namespace cxxrun
