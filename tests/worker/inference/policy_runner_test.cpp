#include "worker/inference/policy_runner.hpp"

#include <limits>

#include <gmock/gmock.h>

#include "common/error.hpp"
#include "tests/support/message_of.hpp"
#include "tests/worker/inference/fake_policy.hpp"

namespace vla {
namespace {

using cxxrun::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

// The first action, which says what the policy saw.
std::vector<float> first_action(PolicyRunner& runner, PolicyRunner::Session& session) {
  const at::Tensor chunk = runner.predict(session);
  EXPECT_EQ(chunk.sizes(), at::IntArrayRef({3, 6}));
  return {chunk.const_data_ptr<float>(), chunk.const_data_ptr<float>() + 6};
}

std::string refusal(PolicyRunner& runner, const Observation& wrong) {
  PolicyRunner::Session session;
  return message_of<cxxrun::DataError>([&] { runner.observe(session, wrong); });
}

TEST(PolicyRunner, GivesThePolicyItsHistoryWithTheFirstObservationRepeated) {
  PolicyRunner runner = fake_runner();
  EXPECT_EQ(runner.history(), 2);
  PolicyRunner::Session session;
  runner.observe(session, observation(10));
  EXPECT_THAT(first_action(runner, session), ElementsAre(10, 10, 1, 0, 0, 0));
  runner.observe(session, observation(11));
  runner.observe(session, observation(12, 4, 6, 0));
  EXPECT_THAT(first_action(runner, session), ElementsAre(11, 12, 0, 0, 1, 0));
}

TEST(PolicyRunner, SessionsDoNotSeeEachOther) {
  PolicyRunner runner = fake_runner();
  PolicyRunner::Session first, second;
  runner.observe(first, observation(10));
  runner.predict(first);
  runner.observe(second, observation(20));
  EXPECT_THAT(first_action(runner, second), ElementsAre(20, 20, 1, 0, 0, 0));
  runner.observe(first, observation(11));
  EXPECT_THAT(first_action(runner, first), ElementsAre(10, 11, 1, 0, 1, 0));
}

TEST(PolicyRunner, ExecutesNoMoreActionsThanTheCheckpointSays) { EXPECT_EQ(fake_runner().action_steps(), 2); }

TEST(PolicyRunner, TellsThePolicyNewTextsAndFindsOldOnes) {
  PolicyRunner runner = fake_runner("exact", true);
  auto& policy = dynamic_cast<FakePolicy&>(*runner.loaded().policy);
  const auto task_seen = [&](const std::string& text) {
    PolicyRunner::Session session;
    Observation with_text = observation(0);
    with_text.task = text;
    runner.observe(session, with_text);
    return first_action(runner, session)[3];
  };
  EXPECT_EQ(task_seen("push"), 0);
  EXPECT_EQ(task_seen("reach"), 1);
  EXPECT_EQ(task_seen("push"), 0);
  EXPECT_THAT(policy.told, ElementsAre("push", "reach"));
  for (int i = 0; i < 1000; ++i) task_seen(std::to_string(i));
  EXPECT_LE(policy.told.size(), 256u);
  EXPECT_THAT(refusal(runner, observation(0)), HasSubstr("'task' is missing"));
}

TEST(PolicyRunner, NamesTheInputThatDoesNotFit) {
  PolicyRunner runner = fake_runner();
  EXPECT_THAT(refusal(runner, observation(0, 5, 6)), HasSubstr("'observation.image' is Byte [5, 6, 3] instead of Byte [4, 6, 3]"));
  EXPECT_THAT(refusal(runner, observation(std::numeric_limits<float>::quiet_NaN())), HasSubstr("'observation.state' has a value that is not finite"));
  Observation wrong = observation(0);
  wrong.values["observation.stat"] = torch::zeros({1});
  EXPECT_THAT(refusal(runner, wrong), HasSubstr("no input 'observation.stat'"));
  wrong = observation(0);
  wrong.values["observation.state"] = torch::zeros({2});
  EXPECT_THAT(refusal(runner, wrong), HasSubstr("'observation.state' is Float [2] instead of Float [1]"));
  wrong.values.erase("observation.state");
  EXPECT_THAT(refusal(runner, wrong), HasSubstr("'observation.state' is missing"));
}

TEST(PolicyRunner, ResizesImagesOnlyWhenToldTo) {
  PolicyRunner resizing = fake_runner("resize"), passing = fake_runner("any");
  PolicyRunner::Session session;
  resizing.observe(session, observation(0, 8, 12, 51));
  EXPECT_FLOAT_EQ(first_action(resizing, session)[2], 0.2f);
  PolicyRunner::Session other;
  passing.observe(other, observation(0, 8, 12));
  EXPECT_ANY_THROW(passing.predict(other));  // of this policy
}

TEST(PolicyRunner, RefusesActionsThatAreNotFinite) {
  PolicyRunner runner = fake_runner();
  dynamic_cast<FakePolicy&>(*runner.loaded().policy).is_broken = true;
  PolicyRunner::Session session;
  runner.observe(session, observation(0));
  EXPECT_THAT(message_of<cxxrun::Error>([&] { runner.predict(session); }), HasSubstr("not finite"));
}

}  // namespace
}  // namespace vla
