#include "launcher/rendezvous/dynamic_rendezvous.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <utility>

#include "launcher/rendezvous/local_store.hpp"
#include "launcher/rendezvous/socket_io.hpp"
#include "launcher/rendezvous/tcp_store_client.hpp"
#include "launcher/rendezvous/this_machine.hpp"

namespace cxxrun {
namespace {

using namespace std::chrono_literals;

constexpr int kDefaultPort = 29400;
constexpr auto kWaitingTick = 50ms, kRunningTick = 500ms;

}  // namespace

DynamicRendezvous::DynamicRendezvous(RendezvousOptions options)
    : options_(std::move(options)),
      conf_(read_rendezvous_conf(options_.conf)),
      keys_(options_.run_id),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!epoll_ || !timer_) throw errno_error("cannot create the descriptors of the rendezvous");
  epoll_event event{.events = EPOLLIN, .data = {.fd = timer_.get()}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event) != 0) throw errno_error("epoll_ctl for a timer");
  if (options_.min_nodes < 1 || options_.nodes < options_.min_nodes) {
    throw UsageError("--nnodes={}:{}: the minimum must be at least 1 and at most the maximum", options_.min_nodes,
                     options_.nodes);
  }
  if (options_.port.port == 0) options_.port.port = kDefaultPort;
  const bool ours = is_this_machine(options_.master_addr);
  if (!conf_.is_host.value_or(ours)) return;
  const std::string address = !options_.local_addr.empty() ? options_.local_addr
                              : ours                       ? options_.master_addr
                                                           : host_name();
  try {
    host_ = std::make_unique<MeetingHost>(options_, conf_, address, epoll_.get());
  } catch (const PortInUse&) {
    if (conf_.is_host) throw;
    return;
  }
  store_ = std::make_unique<LocalStore>(host_->store());
  number_ = store_->add(keys_.nodes(), 1);
  host_->step();
}

std::optional<RendezvousResult> DynamicRendezvous::join(int64_t, int cancel_fd) {
  const WaitLimit limit = WaitLimit::within(conf_.join_timeout, cancel_fd);
  try {
    connect(limit);
    store_->set_limit(WaitLimit::within(conf_.heartbeat_timeout));
    const NodeInfo info{.join = ++joins_,
                        .role = options_.role,
                        .local_world_size = options_.local_world_size,
                        .address = options_.local_addr.empty() ? host_name() : options_.local_addr};
    store_->set(keys_.of("node", number_), to_text(info));
    wake_every(kWaitingTick);
    const std::string place = keys_.place(number_, joins_);
    while (!is_set(place)) {
      poll_until(epoll_.get(), POLLIN, limit, "waiting for other nodes");
      serve();
    }
    return take_place(place);
  } catch (const WaitCancelled&) {
    return std::nullopt;
  } catch (const StoreClosed& error) {
    throw RendezvousError("c10d rendezvous '{}': the node that hosts it has left: {}", options_.run_id, error.what());
  } catch (const StoreTimeout& error) {
    throw RendezvousError("c10d rendezvous '{}' at {}:{} gave up after {} s: {}{}", options_.run_id,
                          options_.master_addr, options_.port.port, conf_.join_timeout.count(), error.what(),
                          who_came());
  }
}

void DynamicRendezvous::connect(const WaitLimit& limit) {
  if (store_) return;
  auto store = std::make_unique<TcpStoreClient>(options_.master_addr, options_.port.port, limit);
  if (!store->check({keys_.state()})) {
    throw RendezvousError(
        "{}:{} is in use, but not by a cxxrun rendezvous '{}': for a job of its own choose another port, to join one "
        "give the same --rdzv-id; with torchrun nodes cxxrun meets by --rdzv-backend=static only",
        options_.master_addr, options_.port.port, options_.run_id);
  }
  number_ = store->add(keys_.nodes(), 1);
  store_ = std::move(store);
}

RendezvousResult DynamicRendezvous::take_place(const std::string& key) {
  const Place place = read_place(key, store_->get(key));
  if (!place.error.empty()) {
    store_->set(keys_.of("seen", number_), "");
    over_ = true;
    throw RendezvousError("c10d rendezvous: {}", place.error);
  }
  round_ = place.round;
  interruption_ = Interruption::kNone;
  wake_every(kRunningTick);
  return place.result;
}

// "; 1 of at least 2 nodes came; …", as far as the host can be asked.
std::string DynamicRendezvous::who_came() try {
  if (!store_) return "";
  const MeetingState state = read_meeting_state(keys_.state(), store_->get(keys_.state()));
  if (state.phase != Phase::kJoining) {
    return fmt::format("; the job already has its {} nodes; raise the maximum of --nnodes", state.nodes);
  }
  return fmt::format(
      "; {} of at least {} nodes came; start the others with the same --rdzv-endpoint and --rdzv-id, lower the minimum "
      "of --nnodes, or raise --rdzv-conf=join_timeout",
      state.nodes, options_.min_nodes);
} catch (const Error&) {
  return "";
}

void DynamicRendezvous::wake_every(std::chrono::milliseconds interval) {
  const timespec time{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(interval).count()};
  const itimerspec spec{.it_interval = time, .it_value = time};
  if (::timerfd_settime(timer_.get(), 0, &spec, nullptr) != 0) throw errno_error("cannot set a timer");
}

// True when the timer has expired. Throws StoreClosed when the host does not answer.
bool DynamicRendezvous::serve() {
  if (host_) host_->on_ready();
  uint64_t expirations = 0;
  if (::read(timer_.get(), &expirations, sizeof expirations) < 0) return false;
  store_->set_limit(WaitLimit::within(conf_.heartbeat_timeout));
  beat();
  if (host_) host_->step();
  return true;
}

bool DynamicRendezvous::is_set(const std::string& key) try {
  return store_->check({key});
} catch (const StoreTimeout& error) {
  throw StoreClosed(error.what());
}

void DynamicRendezvous::beat() try {
  if (Clock::now() < next_beat_) return;
  store_->add(keys_.of("beat", number_), 1);
  next_beat_ = Clock::now() + conf_.keep_alive_interval / 4;  // one that is late is not one that is missed
} catch (const StoreTimeout& error) {
  throw StoreClosed(error.what());
}

void DynamicRendezvous::on_ready() {
  if (over_ && !host_) return wake_every(0ms);
  try {
    if (serve()) observe();
  } catch (const Error& error) {
    lose_host(error);
  }
}

void DynamicRendezvous::lose_host(const Error& error) {
  over_ = true;
  if (success_ == false) return;  // it knows that, and has ended
  if (options_.log) options_.log(fmt::format("the node that hosts the rendezvous is lost: {}", error.what()));
  interruption_ = Interruption::kPeerFailed;
}

void DynamicRendezvous::announce_failure(bool restarts) {
  if (over_ || !store_) return;
  if (!restarts) success_ = false;
  try {
    store_->set_limit(WaitLimit::within(conf_.heartbeat_timeout));
    store_->set(keys_.of(restarts ? "again" : "end", number_), restarts ? std::to_string(joins_) : "0");
  } catch (const Error&) {  // the next heartbeat says it
  }
}

// What the host says about the round that this node is in.
void DynamicRendezvous::observe() try {
  if (over_) return;
  const MeetingState state = read_meeting_state(keys_.state(), store_->get(keys_.state()));
  Interruption now = state.round == round_ ? Interruption::kNone : Interruption::kRestart;
  if (is_over(state.phase)) {
    over_ = true;
    store_->set(keys_.of("seen", number_), "");
    now = success_ == (state.phase == Phase::kSucceeded) ? Interruption::kNone : Interruption::kPeerFailed;
  }
  if (now != interruption_ && !state.reason.empty() && options_.log) options_.log("rendezvous: " + state.reason);
  interruption_ = now;
} catch (const StoreTimeout& error) {
  throw StoreClosed(error.what());
}

Ending DynamicRendezvous::finish(bool success, int cancel_fd) {
  Ending ending = Ending::kTogether;
  try {
    if (store_) wait_for_the_end(success, WaitLimit::within(options_.exit_barrier_timeout, cancel_fd));
  } catch (const StoreClosed& error) {
    lose_host(error);
  } catch (const Error& error) {
    if (options_.log) options_.log(fmt::format("exit barrier: {}", error.what()));
    ending = Ending::kUnknown;
  }
  if (interruption_ == Interruption::kPeerFailed) ending = Ending::kPeerFailed;
  store_.reset();
  host_.reset();
  return ending;
}

void DynamicRendezvous::wait_for_the_end(bool success, const WaitLimit& limit) {
  const auto pause = [&](const WaitLimit& until) {
    poll_until(epoll_.get(), POLLIN, until, "waiting for the other nodes");
    return serve();
  };
  wake_every(kWaitingTick);
  if (!over_) {
    store_->set_limit(WaitLimit::within(conf_.heartbeat_timeout));
    success_ = success;
    store_->set(keys_.of("end", number_), success ? "1" : "0");
    is_set(keys_.state());  // when it answers it has got the above
    if (host_) host_->step();
    while (success && !over_) {
      if (pause(limit)) observe();
    }
  }
  if (!host_) return;
  const WaitLimit rest{std::min(limit.deadline, Clock::now() + conf_.close_timeout), limit.cancel_fd};
  while (!host_->others_know_the_end()) pause(rest);
}

}  // namespace cxxrun
