#include "worker/inference/policy_server.hpp"

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include <gmock/gmock.h>

#include "common/error.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/worker/inference/client.hpp"
#include "tests/worker/inference/fake_policy.hpp"

namespace vla {
namespace {

using testing::HasSubstr;

// A server on a thread, stopped at the end.
class Serving : public testing::Test {
 protected:
  Serving() : server_(runner_, {.socket = path_.string()}), thread_([this] { server_.serve(stop_.get()); }) {}
  ~Serving() override { stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    EXPECT_EQ(::write(stop_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    thread_.join();
  }

  cxxrun::TempDir folder_;
  std::filesystem::path path_ = folder_.path() / "policy.sock";
  cxxrun::UniqueFd stop_{::eventfd(0, EFD_CLOEXEC)};
  PolicyRunner runner_ = fake_runner();
  PolicyServer server_;
  std::thread thread_;
};

float seen(const Reply& reply, int64_t what) { return reply.actions()[0][what].item<float>(); }

TEST_F(Serving, AnswersObservationsWithChunksAndLatency) {
  TestClient client(path_);
  const Reply info = client.ask(encode_message({{"op", "info"}}));
  EXPECT_EQ(info.header.at("policy"), "fake");
  EXPECT_EQ(info.header.at("n_obs_steps"), 2);
  EXPECT_EQ(info.header.at("n_action_steps"), 2);
  EXPECT_EQ(info.header.at("inputs").at(0).dump(), R"({"dtype":"uint8","key":"observation.image","shape":[4,6,3]})");
  const Reply reply = client.ask(request("predict", observation(5)));
  EXPECT_EQ(reply.actions().sizes(), at::IntArrayRef({3, 6}));
  EXPECT_EQ(seen(reply, 1), 5);
  EXPECT_GT(reply.header.at("latency_ms").get<double>(), 0);
  stop();
  EXPECT_EQ(server_.latencies().count(), 1);
}

TEST_F(Serving, RemembersWhatWasObservedUntilAReset) {
  TestClient client(path_);
  EXPECT_EQ(client.ask(request("observe", observation(5))).header.dump(), R"({"ok":true})");
  EXPECT_EQ(seen(client.ask(request("predict", observation(6))), 0), 5);
  EXPECT_EQ(seen(client.ask(request("predict", observation(7), true)), 0), 7);
}

TEST_F(Serving, KeepsSessionsOfClientsApart) {
  TestClient first(path_), second(path_);
  first.ask(request("predict", observation(1)));
  second.ask(request("predict", observation(2)));
  EXPECT_EQ(seen(first.ask(request("predict", observation(3))), 0), 1);
  EXPECT_EQ(seen(second.ask(request("predict", observation(4))), 0), 2);
}

TEST_F(Serving, NamesWhatIsWrongAndGoesOn) {
  TestClient client(path_);
  Observation wrong = observation(1);
  wrong.values["observation.stat"] = torch::zeros({1});
  EXPECT_THAT(client.ask(request("predict", wrong)).error(), HasSubstr("'observation.stat'"));
  EXPECT_THAT(client.ask(request("predict", observation(1, 40, 60))).error(), HasSubstr("'observation.image'"));
  EXPECT_THAT(client.ask(encode_message({{"op", "dance"}})).error(), HasSubstr("'dance'"));
  EXPECT_THAT(client.ask(encode_message({{"op", "predict"}})).error(), HasSubstr("is missing"));
  EXPECT_TRUE(client.ask(request("predict", observation(1))).header.at("ok"));
}

TEST_F(Serving, SurvivesGarbageHalfMessagesAndTooLargeOnes) {
  TestClient garbage(path_), too_large(path_), good(path_);
  garbage.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(garbage.receive().error(), HasSubstr("VLA1"));
  EXPECT_TRUE(garbage.is_closed());
  std::string header = encode_message({{"op", "info"}}).substr(0, kPrefixBytes);
  header[15] = 1;  // 2^56 bytes of payload
  EXPECT_THAT(too_large.ask(header).error(), HasSubstr("above the limit"));
  EXPECT_TRUE(too_large.is_closed());
  {
    TestClient half(path_);
    half.send(request("predict", observation(1)).substr(0, 40));
    EXPECT_EQ(seen(good.ask(request("predict", observation(8))), 1), 8);  // while the other dawdles
  }
  EXPECT_EQ(seen(good.ask(request("predict", observation(9))), 1), 9);
}

TEST_F(Serving, AnswersRequestsThatWereSentInOnePieceOrByteByByte) {
  TestClient client(path_);
  const std::string one = request("predict", observation(1)), two = request("predict", observation(2));
  client.send(one + two);
  EXPECT_EQ(seen(client.receive(), 1), 1);
  EXPECT_EQ(seen(client.receive(), 1), 2);
  for (const char byte : one) client.send({byte});
  EXPECT_EQ(seen(client.receive(), 0), 2);
}

TEST_F(Serving, ClientsThatTakeNoRepliesWaitAloneAndLoseNone) {
  TestClient slow(path_), good(path_);
  constexpr int kRequests = 2000;
  std::jthread sender([&] {
    for (int i = 0; i < kRequests; ++i) slow.send(request("predict", observation(static_cast<float>(i))));
  });
  EXPECT_EQ(seen(good.ask(request("predict", observation(3))), 1), 3);
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(seen(slow.receive(), 1), i);
}

TEST_F(Serving, SocketIsTheOwnersAndGoesAway) {
  struct stat status = {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_THAT(cxxrun::message_of<cxxrun::UsageError>([&] { PolicyServer(runner_, {.socket = path_.string()}); }), HasSubstr("in use"));
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST(PolicyServer, TakesOverWhatAKilledServerLeftAndNothingElse) {
  const cxxrun::TempDir folder;
  const std::string path = (folder.path() / "s").string();
  PolicyRunner runner = fake_runner();
  {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, path.size());
    const cxxrun::UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  { const PolicyServer server(runner, {.socket = path}); }
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream(path) << "precious";
  EXPECT_THAT(cxxrun::message_of<cxxrun::UsageError>([&] { PolicyServer(runner, {.socket = path}); }), HasSubstr("no socket"));
  EXPECT_THAT(cxxrun::message_of<cxxrun::UsageError>([&] { PolicyServer(runner, {.socket = path + std::string(200, 'x')}); }), HasSubstr("characters"));
}

TEST(PolicyServer, ListensOnAFreePortOfThisMachineAlone) {
  PolicyRunner runner = fake_runner();
  const PolicyServer server(runner, {.port = 0});
  EXPECT_THAT(server.address(), testing::StartsWith("127.0.0.1:"));
  EXPECT_NO_THROW(TestClient(std::stoi(server.address().substr(10))));
}

TEST(Latencies, AreThoseOfTheLastPredictions) {
  Latencies latencies;
  EXPECT_EQ(latencies.text(), "no prediction");
  for (int i = 0; i < 4096; ++i) latencies.add(1e6);
  for (int i = 1; i <= 4096; ++i) latencies.add(i <= 100 ? i : 50);
  EXPECT_EQ(latencies.count(), 8192);
  EXPECT_EQ(latencies.text(), "p50 50.00 ms, p95 50.00 ms, p99 60.00 ms, max 100.00 ms");
}

}  // namespace
}  // namespace vla
