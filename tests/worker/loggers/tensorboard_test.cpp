#include "worker/loggers/tensorboard.hpp"

#include <cstdlib>
#include <cstring>
#include <map>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <protozero/pbf_reader.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using cxxrun::TempDir;
using testing::ElementsAre;
using testing::Pair;

uint32_t crc32c(std::string_view bytes) {  // bit by bit, from the definition
  uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78U : 0);
  }
  return ~crc;
}

template <class Integer>
Integer take(std::string_view& bytes) {
  Integer number{};
  if (bytes.size() < sizeof number) throw std::runtime_error("torn record");
  std::memcpy(&number, bytes.data(), sizeof number);
  bytes.remove_prefix(sizeof number);
  return number;
}

void expect_crc(std::string_view bytes, uint32_t masked) {
  const uint32_t crc = crc32c(bytes);
  EXPECT_EQ(masked, ((crc >> 15) | (crc << 17)) + 0xa282ead8U);
}

// The Event messages of a file whose checksums are right.
std::vector<std::string> records_of(const fs::path& path) {
  const std::string text = cxxrun::read_file(path);
  std::vector<std::string> records;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view length_bytes = rest.substr(0, 8);
    const auto length = take<uint64_t>(rest);
    expect_crc(length_bytes, take<uint32_t>(rest));
    records.emplace_back(rest.substr(0, length));
    rest.remove_prefix(std::min<size_t>(rest.size(), length));
    expect_crc(records.back(), take<uint32_t>(rest));
  }
  return records;
}

struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  bool starts_session = false;
  std::map<std::string, float> scalars;
};

ReadEvent parse(const std::string& record) {
  ReadEvent event;
  for (protozero::pbf_reader reader(record); reader.next();) {
    switch (reader.tag()) {
      case 1: event.wall_time = reader.get_double(); break;
      case 2: event.step = reader.get_int64(); break;
      case 3: event.version = reader.get_string(); break;
      case 5:
        for (protozero::pbf_reader summary = reader.get_message(); summary.next(1);) {
          std::string tag;
          for (protozero::pbf_reader value = summary.get_message(); value.next();) {
            if (value.tag() == 1) tag = value.get_string();
            else if (value.tag() == 2) event.scalars[tag] = value.get_float();
            else value.skip();
          }
        }
        break;
      case 7: {
        protozero::pbf_reader session = reader.get_message();
        event.starts_session = session.next(1) && session.get_enum() == 1;
        break;
      }
      default: reader.skip();
    }
  }
  return event;
}

std::vector<ReadEvent> events_of(const fs::path& path) {
  std::vector<ReadEvent> events;
  for (const std::string& record : records_of(path)) events.push_back(parse(record));
  return events;
}

// Two runs in one folder: the second continues after step 20.
void write_continued_run(const fs::path& output_dir) {
  TensorBoardLogger first(LoggerContext{.output_dir = output_dir, .config_json = R"({"training": {"steps": 40}})"});
  for (const int64_t step : {10, 20, 30, 40}) first.log({.step = step, .loss = 1.0 / static_cast<double>(step), .more = {{"val_loss", 3}}});
  TensorBoardLogger second(LoggerContext{.output_dir = output_dir, .first_step = 20});
  second.log({.step = 30, .loss = 0.5});
}

TEST(TensorBoardLogger, WritesAVersionASessionAndScalarsByTag) {
  const TempDir dir;
  StepMetrics metrics{.step = 10, .total_steps = 40, .epoch = 0.5, .loss = 0.25, .lr = 1e-4, .more = {{"val_loss", 2}, {"l1_loss", 3}}};
  metrics.gpus = {{.utilisation = 97, .memory_gb = 11, .power_w = 400}};
  TensorBoardLogger(LoggerContext{.output_dir = dir.path(), .first_step = 5}).log(metrics);
  const fs::path file = fs::directory_iterator(dir.path() / "tensorboard")->path();
  EXPECT_THAT(file.filename(), testing::StartsWith("events.out.tfevents."));
  const auto events = events_of(file);
  ASSERT_EQ(events.size(), 3);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_TRUE(events[1].starts_session);
  EXPECT_EQ(events[1].step, 6);
  EXPECT_EQ(events[2].step, 10);
  EXPECT_GT(events[2].wall_time, 1.7e9);
  EXPECT_THAT(events[2].scalars,
              testing::IsSupersetOf({Pair("train/loss", 0.25F), Pair("train/lr", 1e-4F), Pair("train/epoch", 0.5F), Pair("train/l1_loss", 3.F),
                                     Pair("val/loss", 2.F), Pair("gpu/util", 97.F), Pair("gpu/mem_gb", 11.F), Pair("gpu/power_w", 400.F)}));
}

TEST(TensorBoardLogger, AFolderThatCannotBeMadeIsAnErrorThatNamesIt) {
  const TempDir dir;
  cxxrun::write_file_atomically(dir.path() / "tensorboard", "in the way");
  try {
    TensorBoardLogger logger(LoggerContext{.output_dir = dir.path()});
    FAIL();
  } catch (const cxxrun::Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr((dir.path() / "tensorboard").string()));
  }
}

// Needs Python's tensorboard: python3, or the program that TENSORBOARD_PYTHON names.
TEST(TensorBoardLogger, TensorBoardReadsItAndForgetsPointsPastTheCheckpoint) {
  const char* chosen = std::getenv("TENSORBOARD_PYTHON");
  const std::string python = chosen ? chosen : "python3";
  if (std::system((python + " -c 'import tensorboard' 2>/dev/null").c_str()) != 0) GTEST_SKIP() << "no tensorboard in " << python;
  const TempDir dir;
  write_continued_run(dir.path());
  const std::string command = fmt::format("{} {}/scripts/reference/read_tensorboard.py {}/tensorboard > {}/read.json 2>{}/errors", python,
                                          PROJECT_DIR, dir.path().string(), dir.path().string(), dir.path().string());
  ASSERT_EQ(std::system(command.c_str()), 0) << cxxrun::read_file(dir.path() / "errors");
  const auto read = nlohmann::json::parse(cxxrun::read_file(dir.path() / "read.json"));
  EXPECT_EQ(read["scalars"]["train/loss"], nlohmann::json::parse("[[10, 0.10000000149011612], [20, 0.05000000074505806], [30, 0.5]]"));
  EXPECT_EQ(read["scalars"]["val/loss"], nlohmann::json::parse("[[10, 3.0], [20, 3.0]]"));
  EXPECT_EQ(read["texts"]["config"], "```\n{\n  \"training\": {\n    \"steps\": 40\n  }\n}\n```");
}

}  // namespace
}  // namespace vla
