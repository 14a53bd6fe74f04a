#include "common/atomic_file.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temp_dir.hpp"

namespace cxxrun {
namespace {

using testing::HasSubstr;

size_t count_files(const std::filesystem::path& folder) {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST(AtomicFile, ReplacesTheFileOnlyAtCommit) {
  const TempDir folder;
  const auto path = folder.path() / "a";
  write_file_atomically(path, "old");
  AtomicFile file(path);
  file.write("new ");
  file.write("text");
  EXPECT_EQ(read_file(path), "old");
  file.commit();
  EXPECT_EQ(read_file(path), "new text");
  EXPECT_EQ(count_files(folder.path()), 1u);
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  const TempDir folder;
  { AtomicFile(folder.path() / "a").write("x"); }
  EXPECT_EQ(count_files(folder.path()), 0u);
}

TEST(AtomicFile, WhatAKilledWriterLeftIsRemovedAndNothingElse) {
  const TempDir folder;
  const auto path = folder.path() / "a";
  const pid_t writer = ::fork();
  if (writer == 0) {
    AtomicFile file(path);
    file.write("half");
    ::raise(SIGKILL);
  }
  ::waitpid(writer, nullptr, 0);
  EXPECT_EQ(count_files(folder.path()), 1u);
  const std::vector<std::string> others{"a", "a.tmp", "a.tmp-", "a.tmp-1234567", "ab.tmp-123456", "b.tmp-123456"};
  for (const std::string& other : others) write_file_atomically(folder.path() / other, "kept");
  remove_leftovers_of(path);
  EXPECT_EQ(count_files(folder.path()), others.size());
  for (const std::string& other : others) EXPECT_EQ(read_file(folder.path() / other), "kept") << other;
  remove_leftovers_of(folder.path() / "missing" / "a");  // nothing can be left there
}

TEST(AtomicFile, GivesTheFileTheUsualPermissions) {
  const TempDir folder;
  const mode_t mask = ::umask(022);
  write_file_atomically(folder.path() / "a", "x");
  ::umask(mask);
  struct stat info = {};
  ASSERT_EQ(::stat((folder.path() / "a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);
}

TEST(AtomicFile, AFailureNamesThePath) {
  EXPECT_THAT(message_of<Error>([] { write_file_atomically("/nowhere/a", "x"); }),
              HasSubstr("/nowhere/a: No such file"));
  const TempDir folder;  // a folder cannot be replaced by a file
  EXPECT_THAT(message_of<Error>([&] { write_file_atomically(folder.path(), "x"); }), HasSubstr(folder.path().string()));
  EXPECT_FALSE(std::filesystem::is_regular_file(folder.path()));
}

TEST(AtomicFile, AFailingWriteIsAnErrorAndLeavesTheOldFile) {
  const TempDir folder;
  const auto path = folder.path() / "a";
  write_file_atomically(path, "old");
  rlimit before = {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {.rlim_cur = 1000, .rlim_max = before.rlim_max};  // stands for a full disk
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = message_of<Error>([&] { write_file_atomically(path, std::string(2000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(count_files(folder.path()), 1u);
}

TEST(ReadFile, GivesEveryByteAndNamesAMissingFile) {
  const TempDir folder;
  const std::string bytes = std::string(100000, 'x') + std::string("\0\xff\n", 3);
  write_file_atomically(folder.path() / "a", bytes);
  EXPECT_EQ(read_file(folder.path() / "a"), bytes);
  EXPECT_THAT(message_of<Error>([] { read_file("/nowhere/b"); }), HasSubstr("/nowhere/b"));
  EXPECT_THAT(message_of<Error>([&] { read_file(folder.path()); }), HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace cxxrun
