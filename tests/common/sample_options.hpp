// Options of every type, for the tests of parsing and printing.
#pragma once

#include <string>
#include <vector>

#include "common/option_parse.hpp"
#include "common/option_table.hpp"

namespace cxxrun {

struct SampleTraining {
  int64_t batch_size = 8;
  int64_t num_workers = -1;
  double lr = 1e-4;
  bool shuffle = true;

  void describe(OptionTable& table) {
    table.add("batch_size", batch_size, "Samples a step.").at_least(1).at_most(1024).in("samples");
    table.add("num_workers", num_workers, "Decoding threads.").at_least(0).or_word("auto", -1);
    table.add("lr", lr, "Peak learning rate.").at_least(0);
    table.add("shuffle", shuffle, "Whether the order of samples is random.");
  }
};

struct SampleOptions {
  std::string name;
  std::string device = "auto";
  std::string weights = "none";
  std::string resume;
  std::vector<int64_t> episodes;
  std::vector<double> betas = {0.9, 0.999};
  std::vector<std::string> tags;
  SampleTraining training;

  void describe(OptionTable& table) {
    table.add("name", name, "Free text.");
    table.add("device", device, "Where to compute.").one_of({"auto", "cpu", "cuda"});
    table.add("weights", weights, "Weights to start from.").path().one_of({"none"});
    table.add("resume", resume, "What to continue.").path().one_of({"", "true"}).transient();
    table.add("episodes", episodes, "Episodes to use; empty = all.").at_least(0);
    table.add("betas", betas, "Two factors.").at_most(1);
    table.section("training", training);
    table.add("tags", tags, "Words to find a run by.");
  }
};

// The options and the table that points into them.
struct Sample {
  SampleOptions options;
  OptionTable table;

  Sample() { options.describe(table); }
  void apply(const std::vector<Setting>& settings) {
    for (const Setting& setting : settings) apply_setting(table, setting);
  }
};

}  // namespace cxxrun
