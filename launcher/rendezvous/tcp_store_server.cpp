#include "launcher/rendezvous/tcp_store_server.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "common/error.hpp"
#include "launcher/rendezvous/socket_io.hpp"

namespace cxxrun {
namespace {

// A client with this much unread output is not read from until it has taken it.
constexpr size_t kOutputHighWater = size_t{1} << 16;

size_t connection_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  constexpr size_t kReserved = 64;  // for the rest of the launcher
  return limit.rlim_cur <= 2 * kReserved ? kReserved : limit.rlim_cur - kReserved;
}

}  // namespace

struct TcpStoreServer::Connection {
  Connection(UniqueFd socket, StoreLimits limits) : fd(std::move(socket)), decoder(limits) {}

  size_t unsent() const { return output.size() - sent; }

  UniqueFd fd;
  StoreDecoder decoder;
  std::string input;  // received but not decoded, while output is above the high water mark
  std::string output;
  size_t sent = 0;
  size_t held_bytes = 0;
  uint32_t events = 0;
};

TcpStoreServer::TcpStoreServer(StoreServerOptions options)
    : options_(std::move(options)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      listener_(open_listener(options_.address, options_.port, options_.report)),
      data_(options_.limit_bytes) {
  if (!epoll_) throw errno_error("epoll_create1 for the store");
  if (options_.max_connections == 0) options_.max_connections = connection_limit();
  set_accepting(true);
}

TcpStoreServer::~TcpStoreServer() = default;

void TcpStoreServer::on_ready() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    if (fd == listener_.fd.get()) {
      accept_clients();
      continue;
    }
    const auto found = connections_.find(fd);
    if (found == connections_.end()) continue;
    Connection& connection = *found->second;
    try {
      serve(connection, events[i].events);
    } catch (const Error& error) {
      if (options_.report) {
        options_.report(
            fmt::format("store: {}; connection of {} closed", error.what(), peer_name(connection.fd.get())));
      }
      close(connection);
    }
  }
}

void TcpStoreServer::reset() {
  while (UniqueFd(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC))) continue;  // waiting in the backlog
  while (!connections_.empty()) close(*connections_.begin()->second);
  data_ = KeyValueStore(options_.limit_bytes);
}

void TcpStoreServer::keep_only(const std::vector<std::string>& prefixes) {
  KeyValueStore kept(options_.limit_bytes);
  for (const std::string& key : data_.keys()) {
    if (std::ranges::any_of(prefixes, [&](const auto& prefix) { return key.starts_with(prefix); }))
      kept.set(key, data_.get(key));
  }
  data_ = std::move(kept);
}

void TcpStoreServer::set(const std::string& key, std::string value) {
  data_.set(key, std::move(value));
  end_waits(waits_.on_key(key));
}

int64_t TcpStoreServer::add(const std::string& key, int64_t delta) {
  const int64_t sum = data_.add(key, delta);
  end_waits(waits_.on_key(key));
  return sum;
}

void TcpStoreServer::accept_clients() {
  while (connections_.size() < options_.max_connections) {
    UniqueFd socket(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      break;  // out of descriptors or memory
    }
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    const int fd = socket.get();
    Connection& connection = *(connections_[fd] = std::make_unique<Connection>(
                                   std::move(socket), StoreLimits{.request_bytes = options_.limit_bytes}));
    epoll_event event{.events = connection.events = EPOLLIN, .data = {.fd = fd}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) close(connection);
  }
  // Clients that wait in the backlog must not keep the owner's loop spinning; the next close() admits them.
  set_accepting(false);
  if (options_.report) {
    options_.report(fmt::format("store: {} connections are open and no more are possible ({}); raise 'ulimit -n'",
                                connections_.size(), std::strerror(EMFILE)));
  }
}

void TcpStoreServer::set_accepting(bool accepting) {
  if (accepting == accepting_) return;
  epoll_event event{.events = EPOLLIN, .data = {.fd = listener_.fd.get()}};
  if (::epoll_ctl(epoll_.get(), accepting ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_.fd.get(), &event) != 0) {
    throw errno_error("epoll_ctl for the store's listening socket");
  }
  accepting_ = accepting;
}

void TcpStoreServer::serve(Connection& connection, uint32_t events) {
  if (events & (EPOLLHUP | EPOLLERR)) return close(connection);
  if (events & EPOLLOUT) flush(connection);
  if (events & EPOLLIN) {
    std::array<char, size_t{1} << 16> chunk;
    const ssize_t received = ::recv(connection.fd.get(), chunk.data(), chunk.size(), 0);
    if (received == 0 || (received < 0 && errno != EAGAIN && errno != EINTR)) return close(connection);
    if (received > 0) connection.input.append(chunk.data(), static_cast<size_t>(received));
  }
  process_input(connection);
}

void TcpStoreServer::process_input(Connection& connection) {
  std::string_view input = connection.input;
  while (!input.empty() && connection.unsent() < kOutputHighWater) {
    if (auto request = connection.decoder.decode(input)) answer(connection, std::move(*request));
    if (input.empty() || connection.unsent() >= kOutputHighWater) flush(connection);
  }
  connection.input.erase(0, connection.input.size() - input.size());
  charge(connection);
}

void TcpStoreServer::answer(Connection& connection, StoreRequest request) {
  const int client = connection.fd.get();
  const std::string key = request.keys.empty() ? "" : request.keys.front();
  std::string& out = connection.output;
  switch (request.op) {
    case StoreOp::kValidate:  // the decoder has compared the magic number
      return;
    case StoreOp::kPing:
      return append_number(out, static_cast<uint32_t>(request.number));
    case StoreOp::kSet:
      return set(key, std::move(request.values.front()));
    case StoreOp::kMultiSet:
      for (size_t i = 0; i < request.keys.size(); ++i) set(request.keys[i], std::move(request.values[i]));
      return;
    case StoreOp::kCompareSet:
      append_text(out, data_.compare_set(key, request.values[0], request.values[1]));
      return end_waits(waits_.on_key(key));
    case StoreOp::kAppend:
      data_.append(key, request.values.front());
      return end_waits(waits_.on_key(key));
    case StoreOp::kAdd:
      return append_number(out, add(key, request.number));
    case StoreOp::kGet:
      return append_text(out, data_.get(key));
    case StoreOp::kMultiGet:
      return multi_get(connection, request);
    case StoreOp::kCheck: {
      const bool ready = std::ranges::all_of(request.keys, [&](const auto& name) { return data_.has(name); });
      return append_number(out, ready ? kCheckReady : kCheckNotReady);
    }
    case StoreOp::kWait:
      if (waits_.wait(client, std::move(request.keys))) append_number(out, kStopWaiting);
      return;
    case StoreOp::kCancelWait:
      waits_.forget(client);
      return append_number(out, kWaitCancelled);
    case StoreOp::kNumKeys:
      return append_number(out, static_cast<int64_t>(data_.size()));
    case StoreOp::kDeleteKey:
      return append_number(out, int64_t{data_.remove(key)});
    case StoreOp::kListKeys:
      append_number(out, uint64_t{data_.size()});
      for (const auto& name : data_.keys()) append_text(out, name);
      return;
    case StoreOp::kQueuePush:
      data_.queue_push(key, std::move(request.values.front()));
      if (const auto woken = waits_.on_queue_element(key)) end_waits({*woken});
      return;
    case StoreOp::kQueuePop:
      append_number(out, static_cast<int64_t>(data_.queue_size(key)));
      if (const auto value = data_.queue_pop(key)) append_text(out, *value);
      return;
    case StoreOp::kQueueLen:
      return append_number(out, static_cast<int64_t>(data_.queue_size(key)));
    case StoreOp::kBarrier:
      return barrier(connection, request);
  }
}

void TcpStoreServer::multi_get(Connection& connection, const StoreRequest& request) {
  size_t total = 0;  // the same large value may be asked for a hundred thousand times
  for (const auto& key : request.keys) total += data_.get(key).size();
  if (total > options_.limit_bytes)
    throw Error("MULTI_GET of {} bytes is above the store's limit of {}", total, options_.limit_bytes);
  for (const auto& key : request.keys) append_text(connection.output, data_.get(key));
}

void TcpStoreServer::barrier(Connection& connection, const StoreRequest& request) {
  const std::string& key = request.keys.front();
  if (add(key, 1) < request.number) return waits_.wait_in_barrier(connection.fd.get(), key);
  append_number(connection.output, kStopWaiting);
  end_waits(waits_.on_barrier_complete(key));
}

void TcpStoreServer::end_waits(const std::vector<int>& clients) {
  for (const int client : clients) {
    Connection& connection = *connections_.at(client);
    append_number(connection.output, kStopWaiting);
    flush(connection);
  }
}

void TcpStoreServer::flush(Connection& connection) {
  while (connection.unsent() > 0) {
    const ssize_t sent =
        ::send(connection.fd.get(), connection.output.data() + connection.sent, connection.unsent(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
      connection.sent = connection.output.size();  // epoll reports the hang-up
    if (sent < 0) break;
    connection.sent += static_cast<size_t>(sent);
  }
  if (connection.unsent() == 0) {
    connection.output.clear();
    connection.output.shrink_to_fit();
    connection.sent = 0;
  }
  const uint32_t events =
      (connection.unsent() < kOutputHighWater ? EPOLLIN : 0u) | (connection.unsent() > 0 ? EPOLLOUT : 0u);
  if (events == connection.events) return;
  connection.events = events;
  epoll_event event{.events = events, .data = {.fd = connection.fd.get()}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), &event);
}

// Many clients with large unfinished requests must not fill the memory either.
void TcpStoreServer::charge(Connection& connection) {
  const size_t held = connection.decoder.held_bytes() + waits_.held_bytes(connection.fd.get());
  held_bytes_ += held - connection.held_bytes;
  connection.held_bytes = held;
  if (held_bytes_ > options_.limit_bytes) {
    throw Error("unfinished requests of {} bytes are above the limit of {}", held_bytes_, options_.limit_bytes);
  }
}

void TcpStoreServer::close(Connection& connection) {
  waits_.forget(connection.fd.get());
  held_bytes_ -= connection.held_bytes;
  // Closing is not enough while a process that was forked meanwhile holds a copy of the descriptor.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.fd.get(), nullptr);
  connections_.erase(connection.fd.get());
  set_accepting(true);
}

}  // namespace cxxrun
