#include "common/control_channel.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace cxxrun {
namespace {

TEST(ControlChannel, MessagesArriveWholeAndInOrder) {
  auto [launcher, rank_end] = ControlChannel::make_pair();
  ControlChannel rank(rank_end.release());
  EXPECT_FALSE(launcher.poll());
  rank.beat(7);
  rank.beat(8);
  const auto first = launcher.poll(), second = launcher.poll();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->verb, kBeat);
  EXPECT_EQ(first->value, 7);
  EXPECT_EQ(second->value, 8);
  launcher.send(kPeerFailed, 3);
  const auto answer = rank.poll();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->verb, kPeerFailed);
  EXPECT_EQ(answer->value, 3);
}

TEST(ControlChannel, ChildrenOfTheRankDoNotInheritIt) {
  auto [launcher, rank_end] = ControlChannel::make_pair();
  ::fcntl(rank_end.get(), F_SETFD, 0);
  const ControlChannel rank(rank_end.release());
  EXPECT_TRUE(::fcntl(rank.fd(), F_GETFD) & FD_CLOEXEC);
}

TEST(ControlChannel, WithoutASocketItDoesNothingAndTakesNothing) {
  ControlChannel none;
  none.beat(1);
  EXPECT_FALSE(none.poll());
  const UniqueFd file(::open("/dev/null", O_RDWR));
  {
    ControlChannel foreign(file.get());
    foreign.beat(1);
    EXPECT_TRUE(foreign.closed());
  }
  EXPECT_GE(::fcntl(file.get(), F_GETFD), 0);
}

TEST(ControlChannel, LosingTheOtherSideOrAFullQueueIsNoError) {
  auto [launcher, rank_end] = ControlChannel::make_pair();
  for (int step = 0; step < 100'000; ++step) launcher.beat(step);
  rank_end.reset();
  launcher.beat(1);
  EXPECT_FALSE(launcher.poll());
  EXPECT_TRUE(launcher.closed());
}

}  // namespace
}  // namespace cxxrun
