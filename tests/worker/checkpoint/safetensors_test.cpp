#include "worker/checkpoint/safetensors.hpp"

#include <cstring>
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace vla {
namespace {

using cxxrun::read_file;
using cxxrun::TempDir;
using testing::AllOf;
using testing::HasSubstr;

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string file_of(const std::string& header, const std::string& data) {
  uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + data;
}

std::string error_of(const std::filesystem::path& path) {
  try {
    load_safetensors(path);
  } catch (const cxxrun::Error& e) {
    return e.what();
  }
  return "no error";
}

TensorMap one_of_each_dtype() {
  TensorMap tensors{{"empty", torch::empty({0, 3})}, {"scalar", torch::tensor(1.5)}};
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar,
                          at::kByte, at::kBool}) {
    tensors[std::string("t.") + c10::toString(type)] = torch::randint(0, 2, {3, 5}).to(type);
  }
  return tensors;
}

TEST(Safetensors, RoundTripKeepsEveryDtypeShapeAndValue) {
  const TempDir dir;
  const TensorMap saved = one_of_each_dtype();
  save_safetensors(dir.path() / "a.safetensors", saved);
  const TensorMap loaded = load_safetensors(dir.path() / "a.safetensors");
  ASSERT_EQ(loaded.size(), saved.size());
  for (const auto& [name, tensor] : saved) {
    EXPECT_EQ(loaded.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(torch::equal(loaded.at(name), tensor)) << name;
  }
}

TEST(Safetensors, WritesTheBytesThatThePythonLibraryWrites) {
  const TempDir dir;
  const std::filesystem::path original =
      TEST_DATA_DIR "/lerobot_checkpoint/policy_preprocessor_step_3_normalizer_processor.safetensors";
  save_safetensors(dir.path() / "copy", load_safetensors(original), {});
  EXPECT_EQ(read_file(dir.path() / "copy"), read_file(original));
}

TEST(Safetensors, SavesNonContiguousTensorsByValue) {
  const TempDir dir;
  const torch::Tensor x = torch::arange(12).reshape({3, 4});
  save_safetensors(dir.path() / "a",
                   {{"t", x.t()}, {"slice", x.select(1, 2)}, {"grad", torch::ones({2}).requires_grad_()}});
  const TensorMap loaded = load_safetensors(dir.path() / "a");
  EXPECT_TRUE(torch::equal(loaded.at("t"), x.t()));
  EXPECT_TRUE(torch::equal(loaded.at("slice"), x.select(1, 2)));
}

TEST(Safetensors, RefusesToSaveDtypesOfNoName) {
  const TempDir dir;
  try {
    save_safetensors(dir.path() / "a", {{"fine", torch::ones(1)}, {"z", torch::ones({2}, at::kComplexFloat)}});
    FAIL();
  } catch (const cxxrun::Error& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("'z'"), HasSubstr("ComplexFloat")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Safetensors, EveryTruncationIsAnErrorThatNamesTheFile) {
  const TempDir dir;
  save_safetensors(dir.path() / "whole",
                   {{"a", torch::arange(5)}, {"b", torch::ones({2, 3})}, {"c", torch::ones({3}, at::kByte)}});
  const std::string whole = read_file(dir.path() / "whole");
  const auto path = dir.path() / "cut.safetensors";
  for (size_t size = 0; size < whole.size(); ++size) {
    write_file(path, whole.substr(0, size));
    EXPECT_THAT(error_of(path), AllOf(HasSubstr("cut.safetensors"), HasSubstr("is truncated"))) << size;
  }
  write_file(path, whole.substr(0, whole.size() - 1));
  EXPECT_THAT(error_of(path),
              AllOf(HasSubstr("'c'"), HasSubstr("the file ends at " + std::to_string(whole.size() - 1))));
  write_file(path, whole + "x");
  EXPECT_THAT(error_of(path), HasSubstr("1 bytes after the last tensor"));
}

TEST(Safetensors, FlippedBytesNeverDoWorseThanAnError) {
  const TempDir dir;
  save_safetensors(dir.path() / "whole", one_of_each_dtype());
  const std::string whole = read_file(dir.path() / "whole");
  std::mt19937 random(7);
  int errors = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    const size_t header = whole.find("}}") + 2;
    for (int k = 0; k < 1 + i % 3; ++k) damaged[random() % header] = static_cast<char>(random());
    write_file(dir.path() / "damaged", damaged);
    errors += error_of(dir.path() / "damaged") != "no error";
  }
  EXPECT_GT(errors, 2000);  // the rest changed a name or the metadata, or nothing
}

struct Hostile {
  const char* what;
  std::string bytes;
  const char* message;
};

TEST(Safetensors, HostileHeadersAreErrorsThatSayWhatIsWrong) {
  const std::string eight(8, 'x');
  const auto tensor = [](const char* fields) { return std::string(R"({"t":{)") + fields + "}}"; };
  const Hostile rows[] = {
      {"huge length", "\xff\xff\xff\xff\xff\xff\xff\x7f{}", "the header's length"},
      {"length beyond the file", std::string("\x10\0\0\0\0\0\0\0{}", 10), "is truncated"},
      {"not JSON", file_of("hello", ""), "not valid JSON"},
      {"not UTF-8", file_of("{\"\xff\":1}", ""), "not valid JSON"},
      {"a list", file_of("[1]", ""), "not a JSON object"},
      {"deep nesting", file_of(std::string(100'000, '['), ""), "nested too deeply"},
      {"nested objects", file_of(R"({"a":{"b":{"c":{"d":1}}}})", ""), "nested too deeply"},
      {"not an object", file_of(R"({"t":1})", ""), "'dtype' is missing"},
      {"unknown dtype", file_of(tensor(R"("dtype":"F8","shape":[8],"data_offsets":[0,8])"), eight),
       "dtype \"F8\" is not supported"},
      {"dtype of another kind", file_of(tensor(R"("dtype":[1],"shape":[8],"data_offsets":[0,8])"), eight),
       "dtype [1] is not supported"},
      {"no shape", file_of(tensor(R"("dtype":"U8","data_offsets":[0,8])"), eight), "'shape' is missing"},
      {"negative size", file_of(tensor(R"("dtype":"U8","shape":[-8],"data_offsets":[0,8])"), eight),
       "-8 is not a non-negative integer"},
      {"fraction", file_of(tensor(R"("dtype":"U8","shape":[8.0],"data_offsets":[0,8])"), eight),
       "8.0 is not a non-negative integer"},
      {"overflowing shape",
       file_of(tensor(R"("dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8])"), eight), "too large"},
      {"overflow behind a zero",
       file_of(tensor(R"("dtype":"F64","shape":[0,4294967296,4294967296],"data_offsets":[0,0])"), ""), "too large"},
      {"wrong span", file_of(tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), eight),
       "do not span the 12 bytes"},
      {"reversed", file_of(tensor(R"("dtype":"U8","shape":[8],"data_offsets":[8,0])"), eight), "do not span"},
      {"far away",
       file_of(tensor(R"("dtype":"U8","shape":[0],"data_offsets":[9223372036854775807,9223372036854775807])"), ""),
       "too large"},
      {"beyond 64 bits", file_of(tensor(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,8])"), eight),
       "not a non-negative integer"},
      {"leading gap", file_of(tensor(R"("dtype":"U8","shape":[4],"data_offsets":[4,8])"), eight),
       "the one before it ends at"},
      {"overlap",
       file_of(
           R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           eight),
       "tensor 'b' starts at byte"},
      {"named twice",
       file_of(
           R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
           eight),
       "names 'a' twice"},
      {"beyond the end",
       file_of(tensor(R"("dtype":"U8","shape":[1000000000000],"data_offsets":[0,1000000000000])"), eight),
       "is truncated"},
      {"trailing bytes", file_of("{}", eight), "8 bytes after the last tensor"},
  };
  const TempDir dir;
  for (const Hostile& row : rows) {
    write_file(dir.path() / "bad.safetensors", row.bytes);
    EXPECT_THAT(error_of(dir.path() / "bad.safetensors"), AllOf(HasSubstr("bad.safetensors"), HasSubstr(row.message)))
        << row.what;
  }
}

TEST(Safetensors, MissingFilesAndFoldersAreErrors) {
  const TempDir dir;
  EXPECT_THAT(error_of(dir.path() / "nowhere"), HasSubstr("nowhere: No such file"));
  EXPECT_THAT(error_of(dir.path()), HasSubstr("is not a file"));
}

}  // namespace
}  // namespace vla
