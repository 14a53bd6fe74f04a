#include "launcher/rendezvous/listen_socket.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace cxxrun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr char kLoopback[] = "127.0.0.1";

BoundSocket any_port() { return open_listener(kLoopback, {}, {}); }

// Two neighbouring ports that were free a moment ago; the first one is taken.
BoundSocket taken_port_with_free_neighbour() {
  while (true) {
    BoundSocket taken = any_port();
    try {
      if (taken.port < 65000 && open_listener(kLoopback, {taken.port + 1, true}, {}).fd) return taken;
    } catch (const PortInUse&) {
    }
  }
}

TEST(OpenListener, AcceptsConnectionsAtOnce) {
  const BoundSocket listener = any_port();
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{.sin_family = AF_INET,
                      .sin_port = htons(static_cast<uint16_t>(listener.port)),
                      .sin_addr = {htonl(INADDR_LOOPBACK)},
                      .sin_zero = {}};
  EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

TEST(OpenListener, AHardPortInUseFailsWithAddressPortAndOwner) {
  const BoundSocket taken = any_port();
  EXPECT_THAT(
      [&] {
        open_listener(kLoopback, {taken.port, true}, {});
      },
      ThrowsMessage<PortInUse>(AllOf(HasSubstr(fmt::format("127.0.0.1:{}", taken.port)), HasSubstr("EADDRINUSE"),
                                     HasSubstr(fmt::format("pid {} (rendezvous_test", ::getpid())),
                                     HasSubstr("--master_port"))));
}

TEST(OpenListener, ASoftPortInUseMovesToTheNextAndSaysSo) {
  const BoundSocket taken = taken_port_with_free_neighbour();
  std::string line;
  const BoundSocket moved =
      open_listener(kLoopback, {taken.port, false}, [&](const std::string& text) { line = text; });
  EXPECT_GT(moved.port, taken.port);
  EXPECT_LE(moved.port, taken.port + kSoftPortRange);
  EXPECT_THAT(line, AllOf(HasSubstr(fmt::format("port {} is in use by pid {}", taken.port, ::getpid())),
                          HasSubstr(fmt::format("using port {}", moved.port))));
}

TEST(OpenListener, ASoftPortThatIsFreeIsUsedSilently) {
  int port = taken_port_with_free_neighbour().port + 1;
  const BoundSocket listener =
      open_listener(kLoopback, {port, false}, [](const std::string& line) { ADD_FAILURE() << line; });
  EXPECT_EQ(listener.port, port);
}

TEST(OpenListener, TheSearchForASoftPortEnds) {
  std::vector<BoundSocket> taken;
  constexpr int kFirst = 65535 - 5;  // shorter than the range, so that it also shows the end of all ports
  for (int port = kFirst; port <= 65535; ++port) {
    try {
      taken.push_back(open_listener(kLoopback, {port, true}, {}));
    } catch (const PortInUse&) {  // by somebody else: as good
    }
  }
  EXPECT_THAT(
      [&] {
        open_listener(kLoopback, {kFirst, false}, {});
      },
      ThrowsMessage<PortInUse>(HasSubstr("no free port from 65530 to 65535")));
}

TEST(OpenListener, AnAddressOfAnotherMachineIsAnError) {
  EXPECT_THAT([] { open_listener("192.0.2.1", {}, {}); }, ThrowsMessage<Error>(HasSubstr("192.0.2.1")));
  EXPECT_THAT([] { open_listener("a name", {}, {}); }, ThrowsMessage<Error>(HasSubstr("numeric")));
}

TEST(OpenListener, APortInTimeWaitCanBeOpenedAgain) {
  BoundSocket listener = any_port();
  {
    const UniqueFd client(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{.sin_family = AF_INET,
                        .sin_port = htons(static_cast<uint16_t>(listener.port)),
                        .sin_addr = {htonl(INADDR_LOOPBACK)},
                        .sin_zero = {}};
    ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    UniqueFd server_side(::accept(listener.fd.get(), nullptr, nullptr));
    server_side.reset();  // the end that closes first goes to TIME_WAIT
  }
  listener.fd.reset();
  EXPECT_EQ(open_listener(kLoopback, {listener.port, true}, {}).port, listener.port);
}

TEST(ReservePort, KeepsOthersAwayButNotAServerWithReuse) {
  const BoundSocket reserved = reserve_port(kLoopback, {}, {});
  EXPECT_NE(reserve_port(kLoopback, {reserved.port, false}, {}).port, reserved.port);
  EXPECT_EQ(open_listener(kLoopback, {reserved.port, true}, {}).port, reserved.port);
}

}  // namespace
}  // namespace cxxrun
