#include "worker/inference/policy_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <torch/torch.h>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/scope_exit.hpp"

namespace vla {
namespace {

using cxxrun::UniqueFd;
using cxxrun::UsageError;
using nlohmann::json;

constexpr size_t kMostClients = 32;
constexpr size_t kReadBytes = size_t{1} << 20;

UniqueFd new_socket(int domain) {
  UniqueFd fd(::socket(domain, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw cxxrun::errno_error("cannot make a socket");
  return fd;
}

void start_listening(int fd, const sockaddr* address, socklen_t size, const std::string& name) {
  if (::bind(fd, address, size) != 0 || ::listen(fd, SOMAXCONN) != 0) throw cxxrun::errno_error("cannot listen on " + name);
}

// A file that a server left when it was killed is in nobody's way; anything else at this path is somebody's.
void remove_stale_socket(const std::string& path, const sockaddr_un& address) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) throw UsageError("{} exists and is no socket: choose another path", path);
  const UniqueFd probe = new_socket(AF_UNIX);
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno != ECONNREFUSED) {
    throw UsageError("{} is in use by another server: choose another path", path);
  }
  ::unlink(path.c_str());
}

at::Tensor tensor_of(const TensorHeader& header, std::string_view payload) {
  const at::Tensor tensor = torch::empty(header.shape, header.dtype == "uint8" ? torch::kByte : torch::kFloat);
  std::memcpy(tensor.data_ptr(), payload.data() + header.begin, header.bytes);
  return tensor;
}

std::string error_message(const std::string& text) { return encode_message({{"ok", false}, {"error", text}}); }

}  // namespace

void Latencies::add(double milliseconds) {
  if (last_.size() < kKept) last_.push_back(0);
  last_[static_cast<size_t>(count_++) % kKept] = milliseconds;
}

std::string Latencies::text() const {
  std::vector<double> sorted = last_;
  std::ranges::sort(sorted);
  const auto at = [&](double part) { return sorted[static_cast<size_t>(std::ceil(part * static_cast<double>(sorted.size()))) - 1]; };
  if (sorted.empty()) return "no prediction";
  return fmt::format("p50 {:.2f} ms, p95 {:.2f} ms, p99 {:.2f} ms, max {:.2f} ms", at(0.50), at(0.95), at(0.99), sorted.back());
}

PolicyServer::PolicyServer(PolicyRunner& runner, const Options& options) : runner_(runner), report_every_(options.report_every) {
  if (!options.socket.empty()) {
    listen_on_path(options.socket);
  } else {
    listen_on_port(options.port);
  }
}

PolicyServer::~PolicyServer() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void PolicyServer::listen_on_path(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    throw UsageError("the socket's path has {} characters, the system allows {}: {}", path.size(), sizeof address.sun_path - 1, path);
  }
  path.copy(address.sun_path, path.size());
  remove_stale_socket(path, address);
  listener_ = new_socket(AF_UNIX);
  {
    const mode_t before = ::umask(0177);
    const cxxrun::ScopeExit restore([&] { ::umask(before); });
    start_listening(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address, path);
  }
  path_ = address_ = path;
}

void PolicyServer::listen_on_port(int64_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof address;
  listener_ = new_socket(AF_INET);
  const int on = 1;
  ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  start_listening(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size, fmt::format("127.0.0.1:{}", port));
  if (::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) throw cxxrun::errno_error("getsockname");
  address_ = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
}

void PolicyServer::accept_clients() {
  while (clients_.size() < kMostClients) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;  // none waits, or it has gone
    const int on = 1;
    if (path_.empty()) ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    clients_.push_back({.fd = std::move(fd), .number = ++accepted_});
  }
}

void PolicyServer::serve(int stop_fd) {
  for (;;) {
    std::vector<pollfd> fds{{stop_fd, POLLIN, 0}, {clients_.size() < kMostClients ? listener_.get() : -1, POLLIN, 0}};
    // A client that does not take its replies gets no further ones.
    for (const Client& client : clients_) fds.push_back({client.fd.get(), static_cast<short>(client.out.empty() ? POLLIN : POLLOUT), 0});
    if (::poll(fds.data(), fds.size(), -1) < 0) {
      if (errno == EINTR) continue;
      throw cxxrun::errno_error("poll");
    }
    if (fds[0].revents) return;
    auto ready = fds.begin() + 2;
    for (auto client = clients_.begin(); client != clients_.end();) {
      const bool goes_on = (ready++)->revents == 0 || (client->out.empty() ? receive(*client) : flush(*client) && handle_messages(*client));
      client = goes_on ? std::next(client) : clients_.erase(client);
    }
    if (fds[1].revents) accept_clients();
  }
}

bool PolicyServer::receive(Client& client) {
  const size_t before = client.in.size();
  client.in.resize(before + kReadBytes);
  const ssize_t size = ::recv(client.fd.get(), client.in.data() + before, kReadBytes, 0);
  client.in.resize(before + static_cast<size_t>(std::max<ssize_t>(size, 0)));
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  return size > 0 && handle_messages(client);
}

bool PolicyServer::flush(Client& client) {
  const ssize_t size = ::send(client.fd.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  client.out.erase(0, static_cast<size_t>(size));
  return true;
}

// The whole messages among what has arrived, until a reply has to wait for its client.
bool PolicyServer::handle_messages(Client& client) {
  while (client.out.empty() && client.in.size() >= kPrefixBytes) {
    MessagePrefix prefix;
    try {
      prefix = read_prefix(client.in);
    } catch (const cxxrun::Error& e) {
      cxxrun::log_warning("client {}: {}: its connection is closed", client.number, e.what());
      client.out = error_message(e.what());
      flush(client);
      return false;
    }
    if (client.in.size() < prefix.message_bytes()) return true;
    const std::string_view message(client.in.data() + kPrefixBytes, prefix.header_bytes + prefix.payload_bytes);
    client.out = reply(client, message.substr(0, prefix.header_bytes), message.substr(prefix.header_bytes));
    client.in.erase(0, prefix.message_bytes());
    if (!flush(client)) return false;
  }
  return true;
}

std::string PolicyServer::reply(Client& client, std::string_view header, std::string_view payload) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    const Request request = parse_request(header, payload.size());
    if (request.op == Request::Op::kInfo) return encode_message(info());
    Observation observation{.values = {}, .task = request.task};
    for (const TensorHeader& tensor : request.tensors) observation.values[tensor.key] = tensor_of(tensor, payload);
    if (request.reset) client.session = {};
    runner_.observe(client.session, std::move(observation));
    if (request.op == Request::Op::kObserve) return encode_message({{"ok", true}});
    const at::Tensor actions = runner_.predict(client.session);
    const double latency = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    latencies_.add(latency);
    if (latencies_.count() % report_every_ == 0) cxxrun::log_info("{} predictions: {}", latencies_.count(), latencies_.text());
    const json action = {{"key", "action"}, {"dtype", "float32"}, {"shape", actions.sizes().vec()}};
    return encode_message({{"ok", true}, {"latency_ms", latency}, {"tensors", json::array({action})}},
                          {static_cast<const char*>(actions.const_data_ptr()), actions.nbytes()});
  } catch (const std::exception& e) {
    // c10's errors carry a stack trace behind their first line.
    const std::string text(std::string_view(e.what()).substr(0, std::string_view(e.what()).find('\n')));
    cxxrun::log_warning("client {}: {}", client.number, text);
    return error_message(text);
  }
}

json PolicyServer::info() const {
  json inputs = json::array();
  for (const PolicyFeature* feature : runner_.inputs()) {
    const bool is_image = feature->type == data::FeatureType::kVisual;
    const auto shape = is_image ? std::vector<int64_t>{feature->shape.at(1), feature->shape.at(2), feature->shape.at(0)} : feature->shape;
    inputs.push_back({{"key", feature->key}, {"dtype", is_image ? "uint8" : "float32"}, {"shape", shape}});
  }
  return {{"ok", true},
          {"policy", runner_.loaded().type},
          {"checkpoint", runner_.loaded().folder.string()},
          {"inputs", inputs},
          {"n_obs_steps", runner_.history()},
          {"n_action_steps", runner_.action_steps()},
          {"needs_task", runner_.needs_task()}};
}

}  // namespace vla
