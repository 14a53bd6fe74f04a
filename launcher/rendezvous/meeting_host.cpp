#include "launcher/rendezvous/meeting_host.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "launcher/rendezvous/static_rendezvous.hpp"

namespace cxxrun {
namespace {

constexpr size_t kMostMembers = size_t{1} << 16;
constexpr std::chrono::seconds kLongestPatience{1'000'000'000};  // fits into nanoseconds

std::string name_of(int64_t number, const std::string& address) { return fmt::format("node {} ({})", number, address); }

void watch(int epoll, int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) throw errno_error("epoll_ctl for a rendezvous store");
}

}  // namespace

MeetingHost::MeetingHost(const RendezvousOptions& options, const RendezvousConf& conf, std::string address, int epoll)
    : options_(options),
      last_call_timeout_(conf.last_call_timeout),
      patience_(std::min(conf.keep_alive_interval * conf.keep_alive_max_attempt, kLongestPatience)),
      address_(std::move(address)),
      keys_(options.run_id),
      epoll_(epoll),
      store_(std::make_unique<TcpStoreServer>(StoreServerOptions{.address = listen_address(options.master_addr),
                                                                 .port = {options.port.port, true},
                                                                 .limit_bytes = size_t{1} << 26,
                                                                 .report = options.log})) {
  watch(epoll_, store_->fd());
  publish();
}

void MeetingHost::on_ready() {
  store_->on_ready();
  if (ranks_store_) ranks_store_->on_ready();
}

void MeetingHost::step() {
  meet_newcomers();
  for (Member& member : members_) listen_to(member);
  if (!is_over(state_.phase)) judge_round();
  if (state_.phase == Phase::kJoining) begin_round_when_complete();
  if (is_over(state_.phase)) refuse_those_who_wait();
  publish();
}

void MeetingHost::meet_newcomers() {
  const std::string& text = store_->get(keys_.nodes());
  size_t count = 0;
  std::from_chars(text.data(), text.data() + text.size(), count);
  count = std::min(count, kMostMembers);
  while (members_.size() < count) {
    members_.push_back({.number = static_cast<int64_t>(members_.size()) + 1, .heard = Clock::now()});
  }
}

void MeetingHost::listen_to(Member& member) {
  if (member.left) return;
  const auto changed = [](std::string& seen, const std::string& now) { return seen != now && (seen = now, true); };
  bool heard = changed(member.beat, store_->get(keys_.of("beat", member.number)));
  if (const std::string key = keys_.of("node", member.number); changed(member.text, store_->get(key))) {
    heard = true;
    try {
      member.info = read_node_info(key, member.text);
    } catch (const Error& error) {
      if (options_.log) options_.log(error.what());
      member.left = true;
    }
  }
  heard |= changed(member.again, store_->get(keys_.of("again", member.number)));
  if (const std::string& end = store_->get(keys_.of("end", member.number)); !end.empty()) {
    heard |= !member.success;
    member.success = end == "1";
    member.left = !*member.success;
  }
  if (heard) member.heard = Clock::now();
  member.alive = !member.left && Clock::now() - member.heard < patience_;
}

// Whether the round of those who were together last can go on, or its nodes can meet again.
void MeetingHost::judge_round() {
  int64_t size = 0, succeeded = 0, remaining = 0, newcomers = 0;
  bool lost = false;
  std::string trouble;
  for (Member& member : members_) {
    const std::string name = name_of(member.number, member.info.address);
    if (!member.in_round) {
      newcomers += member.waits();
      continue;
    }
    ++size;
    if (member.success) {
      if (!*member.success) return close(Phase::kFailed, name + " has failed");
      ++succeeded;
    } else if (!member.alive) {
      lost = true;
      member.in_round = false;
      trouble = fmt::format("{} has not been heard of for {} s", name,
                            std::chrono::floor<std::chrono::seconds>(Clock::now() - member.heard).count());
    } else {
      ++remaining;
      if (member.starts_again()) trouble = name + " starts again";
    }
  }
  if (!members_.empty() && members_[0].left) return close(Phase::kFailed, name_of(1, address_) + " has ended");
  if (size > 0 && succeeded == size) return close(Phase::kSucceeded, "");
  if (size > 0 && newcomers > 0 && size < options_.nodes && succeeded == 0 && trouble.empty()) {
    trouble = "another node has come";
  }
  if (trouble.empty()) return;
  if (succeeded > 0) return close(Phase::kFailed, trouble + ", but others have succeeded already");
  if (lost && remaining + newcomers < options_.min_nodes) {
    return close(Phase::kFailed, fmt::format("{}; {} left of at least {} nodes", trouble, remaining + newcomers,
                                             options_.min_nodes));
  }
  if (state_.phase == Phase::kRunning) {
    ++state_.round;
    state_.phase = Phase::kJoining;
    state_.reason = trouble;
  }
}

void MeetingHost::begin_round_when_complete() {
  std::vector<Member*> nodes;
  bool all_back = true, again = false;
  for (Member& member : members_) {
    if (member.waits()) nodes.push_back(&member);
    again |= member.in_round;
    all_back &= !member.in_round || member.waits();
  }
  const auto count = static_cast<int64_t>(nodes.size());
  state_.nodes = count;
  if (count < options_.min_nodes) last_call_.reset();
  if (count < options_.min_nodes || !all_back) return;
  if (!last_call_) last_call_ = Clock::now() + last_call_timeout_;
  // Once nodes have met, nobody else is waited for: who comes later causes another round.
  if (count < options_.nodes && !again && Clock::now() < *last_call_) return;
  std::ranges::stable_partition(nodes, [](const Member* node) { return node->in_round; });  // a place is kept
  if (count > options_.nodes) nodes.resize(static_cast<size_t>(options_.nodes));
  give_places(nodes);
}

void MeetingHost::give_places(const std::vector<Member*>& nodes) {
  const int port = open_ranks_port();
  std::vector<NodeRole> roles;
  for (const Member* node : nodes) roles.push_back({node->info.role, node->info.local_world_size});
  const auto ranks = assign_ranks(roles);
  for (Member& member : members_) member.in_round = false;
  for (size_t i = 0; i < nodes.size(); ++i) {
    Member& node = *nodes[i];
    node.in_round = true;
    node.answered_join = node.info.join;
    const RendezvousResult result{.group_rank = static_cast<int64_t>(i),
                                  .group_world_size = static_cast<int64_t>(nodes.size()),
                                  .base_global_rank = ranks[i].base_global_rank,
                                  .global_world_size = ranks[i].global_world_size,
                                  .base_role_rank = ranks[i].base_role_rank,
                                  .role_world_size = ranks[i].role_world_size,
                                  .master_addr = address_,
                                  .master_port = port,
                                  .use_agent_store = options_.agent_store == AgentStore::kOn};
    store_->set(keys_.place(node.number, node.info.join),
                to_text(Place{.round = state_.round, .result = result}));
  }
  state_ = {.round = state_.round, .phase = Phase::kRunning, .nodes = static_cast<int64_t>(nodes.size())};
}

int MeetingHost::open_ranks_port() {
  const std::string address = listen_address(address_);
  if (options_.agent_store == AgentStore::kOff) {
    reserved_ = reserve_port(address, {}, options_.log);
    return reserved_.port;
  }
  // Before the old one is closed, so that the port is another one and stragglers meet nobody.
  auto store = std::make_unique<TcpStoreServer>(StoreServerOptions{.address = address, .report = options_.log});
  if (ranks_store_) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, ranks_store_->fd(), nullptr);
  watch(epoll_, store->fd());
  ranks_store_ = std::move(store);
  return ranks_store_->port();
}

void MeetingHost::refuse_those_who_wait() {
  Place place;
  place.error = fmt::format("the job '{}' has already ended{}{}", options_.run_id, state_.reason.empty() ? "" : ": ",
                            state_.reason);
  for (Member& member : members_) {
    if (!member.waits()) continue;
    store_->set(keys_.place(member.number, member.info.join), to_text(place));
    member.answered_join = member.info.join;
  }
}

bool MeetingHost::others_know_the_end() const {
  return std::ranges::all_of(members_, [&](const Member& member) {
    return member.number == 1 || !member.alive || store_->has(keys_.of("seen", member.number));
  });
}

void MeetingHost::close(Phase phase, std::string reason) {
  state_.phase = phase;
  state_.reason = std::move(reason);
}

void MeetingHost::publish() {
  if (published_ != state_) store_->set(keys_.state(), to_text(state_));
  published_ = state_;
}

}  // namespace cxxrun
