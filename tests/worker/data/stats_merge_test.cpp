#include "worker/data/stats_merge.hpp"

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"

namespace vla::data {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

DatasetStats numbers(double mean, double std, double min, double max, double count) {
  const auto one = [](double value) { return StatTensor{{1}, {value}}; };
  return {{"x", {{"mean", one(mean)}, {"std", one(std)}, {"min", one(min)}, {"max", one(max)}, {"count", one(count)}}}};
}

TEST(StatsMerger, GivesTheStatisticsOfAllValuesTogether) {
  // {0, 2} and {1, 5, 6}
  StatsMerger merger;
  merger.add(numbers(1, 1, 0, 2, 2), 0, "a");
  merger.add(numbers(4, std::sqrt(14.0 / 3), 1, 6, 3), 0, "b");
  const auto& x = merger.merged().at("x");
  EXPECT_THAT(x.at("mean").values, ElementsAre(DoubleEq(2.8)));
  EXPECT_THAT(x.at("std").values, ElementsAre(DoubleNear(std::sqrt(66.0 / 5 - 2.8 * 2.8), 1e-15)));
  EXPECT_THAT(x.at("min").values, ElementsAre(0));
  EXPECT_THAT(x.at("max").values, ElementsAre(6));
  EXPECT_THAT(x.at("count").values, ElementsAre(5));
}

TEST(StatsMerger, CountsFramesWhereNoCountIsGiven) {
  StatsMerger merger;
  DatasetStats part = numbers(1, 0, 1, 1, 9);
  part["x"].erase("count");
  merger.add(part, 30, "a");
  merger.add(numbers(2, 0, 2, 2, 10), 0, "b");
  EXPECT_THAT(merger.merged().at("x").at("mean").values, ElementsAre(DoubleEq(1.25)));
}

TEST(StatsMerger, KeepsFeaturesOfSomePartsAndDropsStatisticsOfSome) {
  StatsMerger merger;
  DatasetStats with = numbers(1, 0, 1, 1, 1);
  with["x"]["q01"] = {{1}, {1}};
  with["y"] = with["x"];
  merger.add(with, 0, "a");
  merger.add(numbers(1, 0, 1, 1, 1), 0, "b");
  EXPECT_FALSE(merger.merged().at("x").contains("q01"));
  EXPECT_TRUE(merger.merged().at("y").contains("q01"));
}

TEST(StatsMerger, NamesThePartThatDoesNotFit) {
  StatsMerger merger;
  merger.add(numbers(1, 0, 1, 1, 1), 0, "a");
  DatasetStats other = numbers(1, 0, 1, 1, 1);
  other["x"]["mean"] = {{2}, {1, 2}};
  EXPECT_THAT(
      message_of<cxxrun::DataError>([&] { merger.add(other, 0, "line 7"); }),
      testing::AllOf(HasSubstr("line 7"), HasSubstr("'x'"), HasSubstr("'mean' has 2 values"), HasSubstr("have 1")));
  EXPECT_THAT(message_of<cxxrun::DataError>([&] { merger.add(numbers(1, 0, 1, 1, 0), 5, "line 8"); }),
              HasSubstr("line 8: statistics of 'x' has a count of 0"));
}

}  // namespace
}  // namespace vla::data
