// The text of a progress bar in the manner of Python's tqdm, and when it is time to draw it again. Knows no terminal. Pure
// but for its memory of the rate.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace vla {

struct ProgressText {
  int64_t step = 0, total = 0;
  double elapsed_s = 0;
  std::optional<double> steps_per_s = {};
  std::string postfix = {};  // "loss=0.83, lr=0.0001"
};

// "Steps:  12%|█▏        | 2400/20000 [01:23<10:12, 28.70it/s, loss=0.83]", cut to `columns`; the bar fills what is free.
std::string progress_text(const ProgressText& progress, size_t columns, bool unicode);

class ProgressBar {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit ProgressBar(TimePoint start) : start_(start), drawn_(start) {}

  // What to draw, at most ten times a second and always for the first and the last step. The rate is that of about the last
  // twenty seconds, so that the time that is left neither jumps with each step nor remembers a slow start for hours.
  std::optional<ProgressText> update(int64_t step, int64_t total, TimePoint now);

 private:
  TimePoint start_, drawn_;
  std::optional<int64_t> drawn_step_;
  double steps_ = 0, seconds_ = 0;  // recent ones, older ones fading
};

}  // namespace vla
