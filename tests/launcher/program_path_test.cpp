#include "launcher/program_path.hpp"

#include <filesystem>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temp_dir.hpp"

namespace cxxrun {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

class ProgramPath : public ::testing::Test {
 protected:
  ProgramPath() {
    file("bin/python3", "#!/bin/sh\n", true);
    file("bin/tool",
         "\x7f"
         "ELF…",
         true);
    file("beside/vla_worker",
         "\x7f"
         "ELF…",
         true);
  }

  std::string file(const std::string& name, const std::string& text, bool executable) {
    const fs::path path = folder_.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    if (executable) fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  ResolvedProgram resolve(const std::string& program) {
    options.program = program;
    const auto environment = [&](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    return resolve_program(options, environment, (folder_.path() / "beside").string());
  }
  std::string in(const std::string& name) const { return (folder_.path() / name).string(); }

  TempDir folder_;
  LauncherOptions options;
  std::map<std::string, std::string> variables{{"PATH", in("bin")}};
};

TEST_F(ProgramPath, NativeCodeRunsDirectly) {
  const ResolvedProgram program = resolve(file("native",
                                               "\x7f"
                                               "ELF…",
                                               true));
  EXPECT_EQ(program.path, in("native"));
  EXPECT_EQ(program.leading_args, Strings{in("native")});
}

TEST_F(ProgramPath, IsSoughtAsAFileThenInPathThenBesideTheLauncher) {
  EXPECT_EQ(resolve("tool").path, in("bin/tool"));
  EXPECT_EQ(resolve("vla_worker").path, in("beside/vla_worker"));
  file("bin/vla_worker",
       "\x7f"
       "ELF…",
       true);
  EXPECT_EQ(resolve("vla_worker").path, in("bin/vla_worker"));
  EXPECT_EQ(resolve("vla_worker").leading_args, Strings{"vla_worker"});
}

TEST_F(ProgramPath, EverythingElseIsAPythonScript) {
  const std::string script = file("train.py", "print(1)\n", false);
  EXPECT_EQ(resolve(script).path, in("bin/python3"));
  EXPECT_EQ(resolve(script).leading_args, (Strings{in("bin/python3"), "-u", script}));
  EXPECT_EQ(resolve(file("notes.sh", "#!/bin/sh\n", false)).path, in("bin/python3"))
      << "not executable, so it names no interpreter";
  EXPECT_EQ(resolve(file("run.sh", "#!/bin/sh\n", true)).path, in("run.sh"));
  EXPECT_EQ(resolve(file("tool.py", "#!/usr/bin/env python3\n", true)).path, in("bin/python3"))
      << "as under torchrun: unbuffered, with PYTHON_EXEC";
}

TEST_F(ProgramPath, PythonExecAndModulesAreHonoured) {
  variables["PYTHON_EXEC"] = file("other/python", "#!/bin/sh\n", true);
  options.module = true;
  EXPECT_EQ(resolve("pkg.mod").leading_args, (Strings{in("other/python"), "-u", "-m", "pkg.mod"}));
  variables["PYTHON_EXEC"] = in("absent");
  EXPECT_THAT(message_of<Error>([&] { resolve("pkg.mod"); }), ::testing::HasSubstr("PYTHON_EXEC=" + in("absent")));
  variables = {{"PATH", in("beside")}};
  EXPECT_THAT(message_of<Error>([&] { resolve("pkg.mod"); }), ::testing::HasSubstr("no python3 in PATH"));
}

TEST_F(ProgramPath, WhatIsMissingOrCannotRunIsSaidBeforeAnythingStarts) {
  EXPECT_THAT(message_of<Error>([&] { resolve("absent"); }),
              ::testing::AllOf(::testing::HasSubstr("'absent' not found"), ::testing::HasSubstr(in("beside"))));
  EXPECT_THAT(message_of<Error>([&] { resolve(in("bin")); }), ::testing::HasSubstr("is a folder"));
  options.no_python = true;
  EXPECT_THAT(message_of<Error>([&] { resolve(file("data.txt", "x", false)); }),
              ::testing::HasSubstr("not executable: chmod +x"));
}

}  // namespace
}  // namespace cxxrun
