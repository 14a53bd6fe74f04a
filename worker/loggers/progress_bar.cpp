#include "worker/loggers/progress_bar.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace vla {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr double kMemorySeconds = 20;

std::string interval(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "?";
  const auto s = static_cast<int64_t>(seconds);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60) : fmt::format("{:02}:{:02}", s / 60, s % 60);
}

std::string rate(std::optional<double> steps_per_s) {
  if (!steps_per_s || *steps_per_s <= 0) return "?it/s";
  return *steps_per_s < 1 ? fmt::format("{:5.2f}s/it", 1 / *steps_per_s) : fmt::format("{:5.2f}it/s", *steps_per_s);
}

// `width` columns, the last filled one in eighths (UTF-8) or tenths.
std::string bar(double fraction, int64_t width, bool unicode) {
  static const std::vector<std::string> blocks = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  static const std::vector<std::string> digits = {" ", "1", "2", "3", "4", "5", "6", "7", "8", "9", "#"};
  const auto& symbols = unicode ? blocks : digits;
  const auto parts = static_cast<int64_t>(symbols.size()) - 1;
  const auto filled = static_cast<int64_t>(fraction * static_cast<double>(width * parts));
  std::string text;
  for (int64_t column = 0; column < width; ++column)
    text += symbols[static_cast<size_t>(std::clamp<int64_t>(filled - column * parts, 0, parts))];
  return text;
}

}  // namespace

std::string progress_text(const ProgressText& p, size_t columns, bool unicode) {
  const double fraction = p.total > 0 ? std::clamp(static_cast<double>(p.step) / static_cast<double>(p.total), 0.0, 1.0) : 0;
  const std::string left = fmt::format("Steps: {:3.0f}%|", 100 * fraction);
  const double remaining = p.steps_per_s && *p.steps_per_s > 0 ? static_cast<double>(p.total - p.step) / *p.steps_per_s : NAN;
  const std::string right = fmt::format("| {}/{} [{}<{}, {}{}{}]", p.step, p.total, interval(p.elapsed_s), interval(remaining),
                                        rate(p.steps_per_s), p.postfix.empty() ? "" : ", ", p.postfix);
  if (columns <= left.size()) return left.substr(0, columns);
  const size_t words = left.size() + right.size(), width = columns > words ? columns - words : 1;
  return left + bar(fraction, static_cast<int64_t>(width), unicode) + right.substr(0, columns - left.size() - width);
}

std::optional<ProgressText> ProgressBar::update(int64_t step, int64_t total, TimePoint now) {
  if (drawn_step_ && now - drawn_ < kRedraw && step < total) return std::nullopt;
  using Seconds = std::chrono::duration<double>;
  if (drawn_step_) {
    const double passed = Seconds(now - drawn_).count();
    const double kept = std::exp(-passed / kMemorySeconds);
    steps_ = kept * steps_ + static_cast<double>(step - *drawn_step_);
    seconds_ = kept * seconds_ + passed;
  }
  drawn_ = now;
  drawn_step_ = step;
  ProgressText text{.step = step, .total = total, .elapsed_s = Seconds(now - start_).count()};
  if (steps_ > 0 && seconds_ > 0) text.steps_per_s = steps_ / seconds_;
  return text;
}

}  // namespace vla
