#include "launcher/output/line_prefix.hpp"

#include <gtest/gtest.h>

namespace cxxrun {
namespace {

TEST(LinePrefix, FollowsPythonsSafeSubstitute) {
  const struct {
    const char *text, *result;
  } cases[] = {
      {"[${role_name}${local_rank}]:", "[role3]:"},
      {"[$role_name-$local_rank:$rank]", "[role-3:7]"},
      {"$rank$rank", "77"},
      {"$$rank $$$rank", "$rank $7"},
      {"${unknown} $ranks ${rank", "${unknown} $ranks ${rank"},
      {"$ $1 ${} ${1} 5$", "$ $1 ${} ${1} 5$"},
      {"", ""},
  };
  for (const auto& [text, result] : cases) EXPECT_EQ(line_prefix(text, "role", 7, 3), result) << text;
}

TEST(LinePrefix, NamesTheHostWithoutItsDomain) {
  const std::string host = line_prefix("${hostname}", "", 0, 0);
  EXPECT_FALSE(host.empty());
  EXPECT_EQ(host.find('.'), host.npos);
}

}  // namespace
}  // namespace cxxrun
