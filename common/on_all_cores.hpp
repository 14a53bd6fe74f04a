// Short work on every core that the process may use. Launchers leave LibTorch's own pool one thread a rank; while a process starts, the
// others are idle.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace cxxrun {

// Calls f(0) … f(count - 1), each once, on this thread and up to `most_threads` - 1 others. The first exception is thrown here, after all
// threads have ended; calls that had not begun are left out.
template <class F>
void on_all_cores(size_t count, const F& f, size_t most_threads = SIZE_MAX) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) f(i);
    } catch (...) {
      next = count;
      const std::scoped_lock lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (size_t i = 1; i < std::min({count, most_threads, size_t{std::thread::hardware_concurrency()}}); ++i) helpers.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace cxxrun
