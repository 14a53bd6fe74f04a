#include "launcher/watchdog_fifo.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/error.hpp"

namespace cxxrun {
namespace {

constexpr size_t kMostDeadlines = 10'000;
constexpr double kLongestWait = 1e6;  // seconds

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

WatchdogFifo::WatchdogFifo(EventLoop& loop, std::string path, std::function<void(const Overrun&)> on_overrun)
    : loop_(loop), path_(std::move(path)), on_overrun_(std::move(on_overrun)), timer_(loop, [this] { check(); }) {
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0 && S_ISFIFO(status.st_mode)) ::unlink(path_.c_str());  // of an earlier job
  if (::mkfifo(path_.c_str(), 0600) != 0) throw errno_error(fmt::format("cannot make the FIFO '{}'", path_));
  fd_.reset(::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));  // as a writer too, so that it never ends
  if (!fd_) throw errno_error(fmt::format("cannot open the FIFO '{}'", path_));
  loop_.watch(fd_.get(), EPOLLIN, [this] { read(); });
}

WatchdogFifo::~WatchdogFifo() {
  loop_.forget(fd_.get());
  ::unlink(path_.c_str());
}

void WatchdogFifo::read() {
  char buffer[PIPE_BUF];
  const ssize_t size = ::read(fd_.get(), buffer, sizeof buffer);
  if (size <= 0) return;
  held_.append(buffer, static_cast<size_t>(size));
  for (size_t newline = held_.find('\n'); newline != held_.npos; newline = held_.find('\n')) {
    take(held_.substr(0, newline));
    held_.erase(0, newline + 1);
  }
  if (held_.size() > PIPE_BUF) held_.clear();  // announcements are shorter
  check();
}

void WatchdogFifo::take(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto number = [&](const char* key) {
    const auto value = json.is_object() ? json.find(key) : json.end();
    return value != json.end() && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
  };
  const auto pid = number("pid"), signo = number("signal"), time = number("expiration_time");
  if (!time || !(pid > 1 && pid < 1 << 30 && signo > 0 && signo < NSIG)) return;
  const auto scope = json.find("scope_id");
  if (scope == json.end() || !scope->is_string()) return;
  const std::pair key{static_cast<pid_t>(*pid), scope->get<std::string>()};
  if (*time < 0) {
    deadlines_.erase(key);
  } else if (deadlines_.size() < kMostDeadlines || deadlines_.contains(key)) {
    deadlines_[key] = {*time, static_cast<int>(*signo)};
  }
}

void WatchdogFifo::check() {
  const double time = now();
  std::vector<Overrun> overruns;
  double next = kLongestWait;
  for (const auto& [key, deadline] : deadlines_) {
    if (deadline.time <= time) {
      overruns.push_back({key.first, key.second, deadline.signo});
    } else {
      next = std::min(next, deadline.time - time);
    }
  }
  for (const Overrun& overrun : overruns) {
    std::erase_if(deadlines_, [&](const auto& entry) { return entry.first.first == overrun.pid; });
    on_overrun_(overrun);
  }
  if (!deadlines_.empty()) {
    timer_.arm(std::chrono::nanoseconds(static_cast<int64_t>(next * 1e9)));
  } else {
    timer_.disarm();
  }
}

}  // namespace cxxrun
