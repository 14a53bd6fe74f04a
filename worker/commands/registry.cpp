#include "worker/commands/command.hpp"

namespace vla {

const std::vector<Command>& command_registry() {
  static const std::vector<Command> kCommands = {
      {"train", "--config FILE [--OPTION=VALUE...]", "train a policy; the default when the first argument is an option", &train_command},
      {"eval", "--checkpoint DIR [--dataset DIR] [--OPTION=VALUE...]", "open-loop action error of a checkpoint; its actions can be stored",
       &eval_command},
      {"serve", "--checkpoint DIR [--socket PATH | --port N]", "action chunks for a robot or simulator, over a local socket", &serve_command},
      {"bench", "--config FILE [--json] [--steps N] [--resident] [--OPTION=VALUE...]", "how fast a training runs, and where its time goes", &bench_command},
      {"info", "DATASET|CHECKPOINT", "say what a dataset or a checkpoint holds", &info_command},
      {"data", "VERB DATASET [--OPTION VALUE...]", "look at the samples of a dataset", &data_command},
  };
  return kCommands;
}

}  // namespace vla
