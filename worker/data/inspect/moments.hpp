// Count, mean, variance, least and largest of numbers that come one by one or in groups.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace vla::data {

struct Moments {
  int64_t count = 0;
  double mean = 0, squares = 0;  // sum of squared differences from the mean
  double min = std::numeric_limits<double>::infinity(), max = -min;

  void add(double value) {
    ++count;
    const double difference = value - mean;
    mean += difference / static_cast<double>(count);
    squares += difference * (value - mean);
    min = std::min(min, value);
    max = std::max(max, value);
  }

  // Chan, Golub, LeVeque: Updating Formulae and a Pairwise Algorithm for Computing Sample Variances (1979).
  void merge(const Moments& other) {
    if (other.count == 0) return;
    const double difference = other.mean - mean;
    const auto own = static_cast<double>(count), theirs = static_cast<double>(other.count);
    mean += difference * theirs / (own + theirs);
    squares += other.squares + difference * difference * own * theirs / (own + theirs);
    count += other.count;
    min = std::min(min, other.min);
    max = std::max(max, other.max);
  }

  double std() const { return count > 0 ? std::sqrt(squares / static_cast<double>(count)) : 0; }
  bool is_constant() const { return count > 0 && min == max; }
};

}  // namespace vla::data
