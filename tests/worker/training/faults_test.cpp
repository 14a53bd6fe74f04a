// What users read when a training fails: cause, place and remedy, in one message.
#include <csignal>
#include <thread>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "tests/support/temp_dir.hpp"
#include "worker/commands/failure.hpp"

namespace vla {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const TrainingPosition kPosition{.rank = 1,
                                 .step = 13,
                                 .total_steps = 20,
                                 .phase = "backward pass",
                                 .samples = {3, 5, 8},
                                 .sizes = {.batch_size = 12, .per_gpu = 6, .accumulation = 1, .effective = 12, .world_size = 2, .num_workers = 4,
                                           .precision = "float32", .device = "cuda:1"}};

c10::OutOfMemoryError cuda_out_of_memory() {
  return {{__func__, __FILE__, __LINE__}, "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.11 GiB of which 10.00 GiB is free."};
}

TEST(Failure, NamesRankStepPhaseAndSamples) {
  const Failure failure = describe_failure(std::runtime_error("boom"), kPosition);
  EXPECT_EQ(failure.exit_code, kTrainingFailed);
  EXPECT_EQ(failure.message, "boom [rank 1, step 13 of 20, backward pass, samples 3 5 8]");
}

TEST(Failure, OutOfGpuMemoryNamesTheSizesInForceAndTheOptionsThatHelp) {
  const Failure failure = describe_failure(cuda_out_of_memory(), kPosition);
  EXPECT_EQ(failure.exit_code, kOutOfMemory);
  EXPECT_THAT(failure.message,
              AllOf(HasSubstr("CUDA out of memory"), HasSubstr("79.11 GiB"), HasSubstr("batch_size=12 (6 per rank on 2 ranks)"), HasSubstr("float32 on cuda:1"),
                    HasSubstr("--training.batch_size=6 --training.gradient_accumulation_steps=2"), HasSubstr("same 12 samples"),
                    HasSubstr("--training.num_workers"), HasSubstr("CUDA_VISIBLE_DEVICES"), HasSubstr("step 13")));
}

TEST(Failure, OutOfMemoryWithASingleSampleDoesNotAdviseASmallerBatch) {
  TrainingPosition position = kPosition;
  position.sizes.per_gpu = 1;
  EXPECT_THAT(describe_failure(cuda_out_of_memory(), position).message, AllOf(HasSubstr("a smaller policy"), Not(HasSubstr("--training.batch_size"))));
}

TEST(Failure, OutOfMemoryBeforeTheSizesAreKnownStillHasTheAdvice) {
  EXPECT_THAT(describe_failure(cuda_out_of_memory(), {}).message, AllOf(HasSubstr("--training.batch_size"), Not(HasSubstr("per rank on")), Not(HasSubstr("["))));
}

TEST(Failure, EveryAllocatorThatFailsIsOutOfMemory) {
  const auto code = [](const std::exception& exception) { return describe_failure(exception, kPosition).exit_code; };
  EXPECT_EQ(code(std::bad_alloc()), kOutOfMemory);
  EXPECT_EQ(code(std::runtime_error("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.")), kOutOfMemory);
  EXPECT_EQ(code(c10::AcceleratorError({__func__, __FILE__, __LINE__}, 2, "CUDA error: out of memory")), kOutOfMemory);
  EXPECT_EQ(code(std::runtime_error("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")), kOutOfMemory);
}

TEST(Failure, KindsOfErrorsHaveTheirExitCodes) {
  EXPECT_EQ(describe_failure(cxxrun::UsageError("x"), kPosition).exit_code, kUsage);
  EXPECT_EQ(describe_failure(cxxrun::UsageError("x"), kPosition).message, "x");
  EXPECT_EQ(describe_failure(cxxrun::RendezvousError("x"), kPosition).exit_code, kRendezvousFailed);
  const Failure data = describe_failure(cxxrun::DataError("videos/a.mp4: frame 7 cannot be decoded"), kPosition);
  EXPECT_EQ(data.exit_code, kBadData);
  EXPECT_THAT(data.message, AllOf(HasSubstr("videos/a.mp4: frame 7"), HasSubstr("rank 1, step 13")));
}

TEST(Failure, ACollectivesTimeOutNamesTheLateRankWhereItSaysSo) {
  const std::string timeout = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=60000) ran for 60012 milliseconds before timing out.";
  EXPECT_THAT(late_ranks(timeout), IsEmpty());
  const std::string missing = timeout + "\n\t - To our best knowledge, ranks [1, 3] are the lagging ranks that caused this timeout. They never joined any collectives";
  EXPECT_THAT(late_ranks(missing), ElementsAre(1, 3));
  const std::string lagging = timeout + "\n\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n\t   - [2] joined but didn't finish collective #5";
  EXPECT_THAT(late_ranks(lagging), ElementsAre(2));
  const Failure failure = describe_failure(c10::DistBackendError({__func__, __FILE__, __LINE__}, missing), kPosition);
  EXPECT_EQ(failure.exit_code, kTrainingFailed);
  EXPECT_THAT(failure.message, AllOf(testing::StartsWith("waited for rank 1, 3: "), EndsWith("samples 3 5 8]")));
}

TEST(Failure, TheErrorFileHoldsTheMessageAndThePosition) {
  const cxxrun::TempDir folder;
  write_error_file(folder.path() / "error.json", "boom", kPosition);
  const auto json = nlohmann::json::parse(cxxrun::read_file(folder.path() / "error.json"));
  EXPECT_EQ(json["message"]["message"], "boom");
  const auto& training = json["message"]["extraInfo"]["training"];
  EXPECT_EQ(training["rank"], 1);
  EXPECT_EQ(training["step"], 13);
  EXPECT_EQ(training["samples"], (std::vector<int>{3, 5, 8}));
  EXPECT_EQ(training["sizes"]["batch_size"], 12);
}

TEST(Failure, AnErrorFileThatCannotBeWrittenIsNoFurtherFailure) {
  write_error_file("/no/such/folder/error.json", "boom", kPosition);
}

TEST(Failure, AnExceptionThatEndsAThreadIsReportedLikeAnyOther) {
  const cxxrun::TempDir folder;
  const std::string file = folder.path() / "error.json";
  const auto fail = [&] {
    report_uncaught_exceptions(file);
    training_context().begin_step(13, 20);
    std::thread([] { throw c10::DistBackendError({"f", "f.cpp", 1}, "Watchdog caught collective operation timeout"); }).join();
  };
  EXPECT_EXIT(fail(), testing::ExitedWithCode(kTrainingFailed), "Watchdog caught collective operation timeout \\[rank 0, step 13 of 20\\]");
  EXPECT_EQ(nlohmann::json::parse(cxxrun::read_file(file))["message"]["extraInfo"]["training"]["step"], 13);
}

}  // namespace
}  // namespace vla
