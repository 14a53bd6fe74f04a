#include "worker/loggers/console.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

#include "common/log.hpp"
#include "common/worker_env.hpp"
#include "worker/loggers/metric_values.hpp"

namespace vla {
namespace {

constexpr double kTooMuchWaiting = 0.2;
constexpr int64_t kPatienceSteps = 100;

std::string duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "?";
  const auto s = std::llround(seconds);
  if (s >= 3600) return fmt::format("{}h {:02}m", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{}m {:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

// One less than the terminal has: in the last column some wrap at once.
size_t usable_columns() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - 1U : 80;
}

}  // namespace

std::string console_line(const StepMetrics& m) {
  std::string line = fmt::format(
      "step {}/{} | epoch {:.2f} | loss {:.4g} | lr {:.1e} | grad {:.3g} | {:.3g} samples/s | data wait {:.0f}%",
      m.step, m.total_steps, m.epoch, m.loss, m.lr, m.grad_norm, m.samples_per_s, 100 * m.data_wait);
  if (!m.gpus.empty()) line += fmt::format(" | GPU {:.0f}% {:.1f} GiB", together(m.gpus).utilisation, together(m.gpus).memory_gb);
  if (m.mfu) line += fmt::format(" | MFU {:.1f}%", 100 * *m.mfu);
  for (const auto& [name, value] : m.more) line += fmt::format(" | {} {:.4g}", name, value);
  return line + " | ETA " + duration(static_cast<double>(m.total_steps - m.step) * m.seconds_per_step);
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const auto value = cxxrun::environment_variable(name);
    if (!value || value->empty()) continue;
    for (const char* spelling : {"UTF-8", "utf-8", "UTF8", "utf8"}) {
      if (value->find(spelling) != std::string::npos) return true;
    }
    return false;
  }
  return false;
}

ConsoleLogger::ConsoleLogger(const LoggerContext& context) : unicode_(locale_is_utf8()), starving_since_(context.first_step) {
  const std::string& wish = context.options.progress;
  if (wish == "bar" || (wish == "auto" && ::isatty(STDOUT_FILENO) == 1)) bar_.emplace(std::chrono::steady_clock::now());
}

ConsoleLogger::~ConsoleLogger() { cxxrun::set_status_line(""); }

void ConsoleLogger::log(const StepMetrics& metrics) {
  postfix_ = fmt::format("loss={:.3g}, lr={:.3g}", metrics.loss, metrics.lr);
  cxxrun::log_info("{}", console_line(metrics));
  if (!starving_since_) return;
  if (metrics.data_wait <= kTooMuchWaiting) {
    starving_since_ = metrics.step;
  } else if (metrics.step - *starving_since_ >= kPatienceSteps) {
    starving_since_.reset();  // said once
    cxxrun::log_info("hint: {:.0f}% of the time goes into waiting for data: raise training.num_workers if cores are free, raise "
                     "training.batch_size, or move the dataset to a faster disk", 100 * metrics.data_wait);
  }
}

void ConsoleLogger::progress(int64_t step, int64_t total_steps) {
  if (!bar_) return;
  auto text = bar_->update(step, total_steps, std::chrono::steady_clock::now());
  if (!text) return;
  text->postfix = postfix_;
  cxxrun::set_status_line(progress_text(*text, usable_columns(), unicode_));
}

}  // namespace vla
