#include "worker/start_timing.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>

#include <fmt/format.h>

namespace vla {
namespace {

StartTiming::Clock::time_point process_start() {
  const auto now = StartTiming::Clock::now();
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // The program's name, in parentheses, may contain anything; the start is the 20th word after it.
  std::istringstream words(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string word;
  for (int i = 0; i < 20; ++i) words >> word;
  char* end = nullptr;
  const double ticks = std::strtod(word.c_str(), &end);
  timespec since_boot{};
  if (!words || end == word.c_str() || ::clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) return now;
  const double age = static_cast<double>(since_boot.tv_sec) + static_cast<double>(since_boot.tv_nsec) * 1e-9 -
                     ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return now - std::chrono::duration_cast<StartTiming::Clock::duration>(std::chrono::duration<double>(std::max(0.0, age)));
}

}  // namespace

void StartTiming::mark(const std::string& name, Clock::time_point now) {
  if (!is_open_) return;
  auto phase = std::ranges::find(phases_, name, &Phase::name);
  if (phase == phases_.end()) phase = phases_.insert(phases_.end(), {name});
  phase->seconds += std::chrono::duration<double>(now - last_).count();
  last_ = now;
}

double StartTiming::total() const {
  return std::accumulate(phases_.begin(), phases_.end(), 0.0, [](double sum, const Phase& phase) { return sum + phase.seconds; });
}

StartTiming& start_timing() {
  static StartTiming timing(process_start());
  return timing;
}

std::vector<std::string> timing_lines(const StartTiming& timing) {
  std::vector<std::string> lines{fmt::format("start: {:.2f} s from the start of the process to the end of the first step", timing.total())};
  for (const auto& [name, seconds] : timing.phases()) lines.push_back(fmt::format("  {:<18}{:>8.3f} s", name, seconds));
  return lines;
}

}  // namespace vla
