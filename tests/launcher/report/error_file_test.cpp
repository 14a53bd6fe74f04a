#include "launcher/report/error_file.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

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
    EXPECT_EQ(read_error_file(path).message, message) << text.substr(0, 80);
  }
  EXPECT_EQ(read_error_file(path + ".absent").message, "");
}

class ErrorFileTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = (folder_.path() / name).string();
    std::ofstream(path) << text;
    return path;
  }
  nlohmann::json read(const std::string& path) { return nlohmann::json::parse(std::ifstream(path)); }
  std::string path(const std::string& name) { return (folder_.path() / name).string(); }

 private:
  TempDir folder_;
};

TEST_F(ErrorFileTest, CallstackAndTimeAreReadFromEitherSchema) {
  const ErrorMessage nested = read_error_file(
      write("a", R"({"message": {"message": "m", "extraInfo": {"py_callstack": "stack", "timestamp": "12"}}})"));
  EXPECT_EQ(nested.callstack, "stack");
  EXPECT_EQ(nested.timestamp, 12);
  EXPECT_EQ(read_error_file(write("b", R"({"message": "m", "timestamp": 13})")).timestamp, 13);
  EXPECT_EQ(read_error_file(write("b", R"({"message": "m", "timestamp": "14"})")).timestamp, 14);
  for (const char* bad : {"{}", "-1", "99999999999999", "99999999999999999999", "\"soon\""}) {
    EXPECT_EQ(read_error_file(write("b", R"({"message": "m", "timestamp": )" + std::string(bad) + "}")).timestamp, std::nullopt) << bad;
  }
  EXPECT_EQ(read_error_file(write("c", R"({"message": {"message": "m", "extraInfo": 3}})")).message, "m");
}

TEST_F(ErrorFileTest, ACopyForTheParentHasTheExitCodeWhereTheSchemaHasAPlace) {
  copy_error_file(write("a", R"({"message": {"message": "m", "extraInfo": {}}})"), path("parent"), 7);
  EXPECT_EQ(read(path("parent")).at("message").at("errorCode"), 7);
  copy_error_file(write("b", R"({"message": "plain"})"), path("parent"), 7);
  EXPECT_EQ(read(path("parent")), (nlohmann::json{{"message", "plain"}})) << "overwritten, unchanged";
  copy_error_file(path("absent"), path("none"), 7);
  EXPECT_FALSE(std::filesystem::exists(path("none")));
}

TEST_F(ErrorFileTest, WhatIsWrittenCanBeReadBack) {
  write_error_file(path("own"), "cannot \xff meet");
  EXPECT_THAT(read_error_file(path("own")).message, ::testing::HasSubstr("cannot"));
  EXPECT_TRUE(read_error_file(path("own")).timestamp.has_value());
}

TEST_F(ErrorFileTest, AFifoIsNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_error_file(path("fifo")).message, "");
}

}  // namespace
}  // namespace cxxrun
