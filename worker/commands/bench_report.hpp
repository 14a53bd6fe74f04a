// What `vla_worker bench` says: a JSON object of what was measured, on what, and the same as text. Pure functions.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "worker/commands/configuration.hpp"
#include "worker/distributed/process_group.hpp"
#include "worker/start_timing.hpp"
#include "worker/trainer.hpp"

namespace vla {

// Of this rank: the caching allocator's high-water marks in GiB, and versions of CUDA, cuDNN and NCCL where they are in use.
nlohmann::ordered_json measured_memory(at::Device device);
nlohmann::ordered_json library_versions(at::Device device);

// Keys hold null where nothing is known. Times in milliseconds, on the slowest rank; phases are means of the measured steps.
nlohmann::ordered_json bench_report(const Configuration& configuration, const cxxrun::World& world, const MeasureOptions& options,
                                    const Measurement& measured);

// Lines for people, from the object above and what bench adds: "memory", "versions", "start".
std::string bench_text(const nlohmann::ordered_json& report);

nlohmann::ordered_json as_json(const StartTiming& timing);

}  // namespace vla
