#include "common/unique_fd.hpp"

#include <fcntl.h>

#include <gtest/gtest.h>

namespace cxxrun {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
UniqueFd open_null() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(UniqueFd, ClosesAtTheEndOfItsScope) {
  int fd = -1;
  {
    const UniqueFd owner = open_null();
    fd = owner.get();
    EXPECT_TRUE(is_open(fd));
  }
  EXPECT_FALSE(is_open(fd));
}

TEST(UniqueFd, MovingHandsTheDescriptorOver) {
  UniqueFd first = open_null();
  const int fd = first.get();
  UniqueFd second = open_null();
  const int replaced = second.get();
  second = std::move(first);
  EXPECT_EQ(second.get(), fd);
  EXPECT_FALSE(first);
  EXPECT_FALSE(is_open(replaced));
  EXPECT_TRUE(is_open(fd));
}

TEST(UniqueFd, ReleaseGivesUpOwnership) {
  UniqueFd owner = open_null();
  const UniqueFd released(owner.release());
  owner.reset();
  EXPECT_TRUE(is_open(released.get()));
}

}  // namespace
}  // namespace cxxrun
