#include "launcher/rendezvous/key_value_store.hpp"

#include <gmock/gmock.h>

#include "common/error.hpp"

namespace cxxrun {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(KeyValueStore, AddKeepsDecimalTextAndStartsAtZero) {
  KeyValueStore store(1000);
  EXPECT_EQ(store.add("n", 5), 5);
  EXPECT_EQ(store.add("n", -8), -3);
  EXPECT_EQ(store.get("n"), "-3");
}

TEST(KeyValueStore, AddRefusesWhatIsNotANumber) {
  KeyValueStore store(10'000);
  for (const char* text : {"", "x", "1x", " 1", "9223372036854775808"}) {
    store.set("n", text);
    EXPECT_THAT([&] { store.add("n", 1); }, ThrowsMessage<Error>(HasSubstr("'n'"))) << text;
    EXPECT_EQ(store.get("n"), text);
  }
  store.set("n", "9223372036854775807");
  EXPECT_THAT([&] { store.add("n", 1); }, ThrowsMessage<Error>(HasSubstr("range")));
}

TEST(KeyValueStore, CompareSetFollowsC10d) {
  KeyValueStore store(1000);
  EXPECT_EQ(store.compare_set("k", "expected", "new"), "expected");  // missing: echoed, not set
  EXPECT_FALSE(store.has("k"));
  EXPECT_EQ(store.compare_set("k", "", "first"), "first");
  EXPECT_EQ(store.compare_set("k", "", "second"), "first");
  EXPECT_EQ(store.compare_set("k", "other", "second"), "first");
  EXPECT_EQ(store.compare_set("k", "first", ""), "");
  EXPECT_EQ(store.compare_set("k", "", "third"), "third");
}

TEST(KeyValueStore, AQueueIsFirstInFirstOutAndNotAKey) {
  KeyValueStore store(1000);
  store.queue_push("q", "1");
  store.queue_push("q", "2");
  EXPECT_TRUE(store.has("q"));
  EXPECT_EQ(store.size(), 0u);
  EXPECT_EQ(store.queue_size("q"), 2u);
  EXPECT_EQ(store.queue_pop("q"), "1");
  EXPECT_EQ(store.queue_pop("q"), "2");
  EXPECT_EQ(store.queue_pop("q"), std::nullopt);
  EXPECT_FALSE(store.has("q"));
}

TEST(KeyValueStore, BytesAreGivenBackInFull) {
  KeyValueStore store(10'000);
  store.set("a", "value");
  store.set("a", "a longer value");
  store.append("a", "!");
  store.append("b", "!");
  store.queue_push("q", "element");
  EXPECT_GT(store.bytes(), 0u);
  EXPECT_TRUE(store.remove("a"));
  EXPECT_FALSE(store.remove("a"));
  EXPECT_TRUE(store.remove("b"));
  store.queue_pop("q");
  EXPECT_EQ(store.bytes(), 0u);
}

TEST(KeyValueStore, TheLimitHoldsForEveryWayToGrow) {
  KeyValueStore store(2000);
  store.set("k", std::string(1500, 'x'));
  const std::string more(600, 'y');
  EXPECT_THAT([&] { store.set("l", more); }, ThrowsMessage<Error>(HasSubstr("limit of 2000")));
  EXPECT_THROW(store.append("k", more), Error);
  EXPECT_THROW(store.queue_push("q", more), Error);
  EXPECT_THROW(store.compare_set("c", "", more), Error);
  EXPECT_EQ(store.size(), 1u);
  store.set("k", more);  // smaller than what it replaces
  EXPECT_EQ(store.get("k"), more);
}

TEST(KeyValueStore, EmptyValuesMeetTheLimitToo) {
  KeyValueStore store(10'000);
  EXPECT_THROW(
      {
        for (int i = 0; i < 1000; ++i) store.set(std::to_string(i), "");
      },
      Error);
}

}  // namespace
}  // namespace cxxrun
