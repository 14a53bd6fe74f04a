#include "launcher/error_file.hpp"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.hpp"

namespace cxxrun {
namespace {

TEST(ErrorFile, BothSchemasGiveTheirMessageAndAnythingElseNone) {
  const std::pair<std::string, std::string> kCases[] = {
      {R"({"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "…", "timestamp": "1"}}})",
       "ValueError: no"},
      {R"({"message": "plain", "timestamp": 1})", "plain"},
      {R"({"message": "plain"})", "plain"},
      {R"({"message": {"text": "x"}})", ""},
      {R"({"message": 3})", ""},
      {R"({"other": "x"})", ""},
      {R"(["message"])", ""},
      {R"({"message": "cut)", ""},
      {"", ""},
      {R"({"message": ")" + std::string(2 << 20, 'x') + R"("})", ""},
  };
  const TempDir folder;
  const std::string path = (folder.path() / "error.json").string();
  for (const auto& [text, message] : kCases) {
    std::ofstream(path) << text;
    EXPECT_EQ(read_error_file(path), message) << text.substr(0, 80);
  }
  EXPECT_EQ(read_error_file(path + ".absent"), "");
}

}  // namespace
}  // namespace cxxrun
