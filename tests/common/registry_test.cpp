#include "common/registry.hpp"

#include <gtest/gtest.h>

#include "tests/support/message_of.hpp"

namespace cxxrun {
namespace {

struct Row {
  const char* name;
  int value;
};
constexpr Row kRows[] = {{"act", 1}, {"diffusion", 2}, {"pi0", 3}};

TEST(Registry, FindsARowByName) { EXPECT_EQ(find_in_registry(kRows, "diffusion", "policy").value, 2); }

TEST(Registry, AMissListsAllNamesAndTheNearest) {
  EXPECT_EQ(message_of<UsageError>([] { find_in_registry(kRows, "actt", "policy"); }),
            "unknown policy 'actt' (known: act, diffusion, pi0); did you mean 'act'?");
  EXPECT_EQ(message_of<UsageError>([] { find_in_registry(kRows, "transformer", "policy"); }),
            "unknown policy 'transformer' (known: act, diffusion, pi0)");
}

TEST(NearestName, CountsASwapOnceAndPrefersTheNearest) {
  EXPECT_EQ(nearest_name("setps", {"stages", "steps"}), "steps");
  EXPECT_EQ(nearest_name("steps", {"stepz", "steps"}), "steps");
  EXPECT_EQ(nearest_name("batch_siez", {"batch_size_mode", "batch_size"}), "batch_size");
}

TEST(NearestName, GivesNothingWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("learning_rate", {"seed", "steps"}), "");
  EXPECT_EQ(nearest_name("", {"a"}), "");
  EXPECT_EQ(nearest_name("x", {}), "");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

}  // namespace
}  // namespace cxxrun
