#include "worker/loggers/console.hpp"

#include <cmath>

#include "common/log.hpp"

namespace vla {
namespace {

std::string duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "?";
  const auto s = std::llround(seconds);
  if (s >= 3600) return fmt::format("{}h {:02}m", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{}m {:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

}  // namespace

std::string console_line(const StepMetrics& m) {
  std::string line = fmt::format(
      "step {}/{} | epoch {:.2f} | loss {:.4g} | lr {:.1e} | grad {:.3g} | {:.3g} samples/s | data wait {:.0f}%",
      m.step, m.total_steps, m.epoch, m.loss, m.lr, m.grad_norm, m.samples_per_s, 100 * m.data_wait);
  for (const auto& [name, value] : m.more) line += fmt::format(" | {} {:.4g}", name, value);
  return line + " | ETA " + duration(static_cast<double>(m.total_steps - m.step) * m.seconds_per_step);
}

void ConsoleLogger::log(const StepMetrics& metrics) { cxxrun::log_info("{}", console_line(metrics)); }

}  // namespace vla
