#include "worker/data/hub_cache.hpp"

#include <cstdlib>

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"

namespace vla::data {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// A folder of models and datasets, and an environment in which only what a test sets points to one.
class HubCache : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HF_LEROBOT_HOME"}) ::unsetenv(name);
    ::setenv("HOME", folder_.path().c_str(), 1);
  }

  std::string add(const std::string& place) {
    const fs::path path = fs::path(folder_.path()) / place;
    fs::create_directories(path.parent_path());
    cxxrun::write_file_atomically(path, "{}");
    return path;
  }
  std::string add_snapshot(const std::string& hub, const std::string& commit) {
    return add(hub + "/models--org--model/snapshots/" + commit + "/tokenizer.json");
  }
  void set(const char* name, const std::string& below) { ::setenv(name, (folder_.path() + "/" + below).c_str(), 1); }
  static std::string find() { return find_pretrained_file("org/model", "tokenizer.json"); }

  const TempDir folder_;
};
using PretrainedFile = HubCache;
using DatasetFolder = HubCache;

TEST_F(PretrainedFile, IsThatOfAFolder) {
  const std::string path = add("here/tokenizer.json");
  EXPECT_EQ(find_pretrained_file(folder_.path() + "/here", "tokenizer.json"), path);
  EXPECT_EQ(find_pretrained_file("~/here", "tokenizer.json"), path);
  EXPECT_THAT(message_of<cxxrun::UsageError>([&] { find_pretrained_file("~/here", "config.json"); }),
              HasSubstr("here has no config.json"));
}

TEST_F(PretrainedFile, IsInTheFirstCacheThatIsSet) {
  const std::string home = add_snapshot(".cache/huggingface/hub", "1"), xdg = add_snapshot("xdg/huggingface/hub", "1"),
                    hf = add_snapshot("hf/hub", "1"), old = add_snapshot("old", "1"), hub = add_snapshot("new", "1");
  EXPECT_EQ(find(), home);
  set("XDG_CACHE_HOME", "xdg");
  EXPECT_EQ(find(), xdg);
  set("HF_HOME", "hf");
  EXPECT_EQ(find(), hf);
  set("HUGGINGFACE_HUB_CACHE", "old");
  EXPECT_EQ(find(), old);
  set("HF_HUB_CACHE", "new");
  EXPECT_EQ(find(), hub);
}

TEST_F(PretrainedFile, IsThatOfTheMainBranchElseTheNewest) {
  set("HF_HUB_CACHE", "hub");
  const std::string first = add_snapshot("hub", "aaa"), second = add_snapshot("hub", "bbb");
  fs::last_write_time(fs::path(first).parent_path(), fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(find(), second);
  const std::string reference = add("hub/models--org--model/refs/main");
  cxxrun::write_file_atomically(reference, "aaa\n");
  EXPECT_EQ(find(), first);
  fs::remove(first);
  EXPECT_EQ(find(), second);
}

TEST_F(PretrainedFile, SaysWhereItLookedAndHowToGetIt) {
  set("HF_HUB_CACHE", "hub");
  EXPECT_THAT(message_of<cxxrun::UsageError>(find),
              AllOf(HasSubstr("org/model/tokenizer.json"), HasSubstr(folder_.path() + "/hub/models--org--model"),
                    HasSubstr("huggingface-cli download org/model")));
}

TEST_F(PretrainedFile, IsNotLookedForOutsideTheCache) {
  set("HF_HUB_CACHE", "hub");
  for (const char* name : {"../secret", "a/../../b", "/no/such/folder", "a/b/c", "", "./x", "a/.."}) {
    EXPECT_THAT(message_of<cxxrun::UsageError>([&] { find_pretrained_file(name, "tokenizer.json"); }),
                HasSubstr("neither a folder nor the name"))
        << name;
  }
}

TEST_F(DatasetFolder, IsTheFolderItselfThenLeRobotsThenADownload) {
  const auto folder_of = [](const std::string& info) { return fs::path(info).parent_path().parent_path().string(); };
  const std::string here = folder_of(add("here/meta/info.json")), downloaded = folder_of(add("lerobot/hub/datasets--org--set/snapshots/1/meta/info.json"));
  set("HF_LEROBOT_HOME", "lerobot");
  EXPECT_EQ(find_dataset_folder("~/here"), here);
  EXPECT_EQ(find_dataset_folder("org/set"), downloaded);
  const std::string own = folder_of(add("lerobot/org/set/meta/info.json"));
  EXPECT_EQ(find_dataset_folder("org/set"), own);
}

TEST_F(DatasetFolder, SaysWhereItLookedAndHowToGetIt) {
  set("HF_HOME", "hf");
  EXPECT_THAT(message_of<cxxrun::UsageError>([] { find_dataset_folder("org/set"); }),
              AllOf(HasSubstr(folder_.path() + "/hf/lerobot/org/set"), HasSubstr("download --repo-type dataset org/set")));
  EXPECT_THAT(message_of<cxxrun::UsageError>([] { find_dataset_folder("../secret"); }), HasSubstr("neither a folder nor the name"));
}

}  // namespace
}  // namespace vla::data
