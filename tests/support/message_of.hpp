// The message of the exception of type E that `action` throws; a failure of the test if it throws none.
#pragma once

#include <string>

#include <gtest/gtest.h>

namespace cxxrun {

template <class E, class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace cxxrun
