#include "worker/loggers/event_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include <boost/crc.hpp>
#include <fmt/format.h>
#include <protozero/pbf_writer.hpp>

#include "common/error.hpp"

namespace vla {
namespace {

using protozero::pbf_writer;

// Numbers of the fields in event.proto, summary.proto and tensor.proto.
namespace event {
enum : uint32_t { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
}
namespace session_log {
enum : uint32_t { kStatus = 1 };
enum : int32_t { kStart = 1 };
}  // namespace session_log
namespace summary {
enum : uint32_t { kValue = 1 };
}
namespace value {
enum : uint32_t { kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9 };
}
namespace metadata {
enum : uint32_t { kPluginData = 1, kPluginName = 1 };
}
namespace tensor {
enum : uint32_t { kDtype = 1, kShape = 2, kStringValue = 8 };
enum : int32_t { kString = 7 };
}  // namespace tensor

constexpr char kFileVersion[] = "brain.Event:2";  // from 2 on, readers heed session logs

uint32_t masked_crc(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc32c;
  crc32c.process_bytes(bytes.data(), bytes.size());
  const uint32_t crc = crc32c.checksum();
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

template <class Integer>
std::string little_endian(Integer number) {
  std::string bytes(sizeof number, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(number & 0xFF);
    number >>= 8;
  }
  return bytes;
}

std::string event_at(int64_t step) {
  std::string bytes;
  pbf_writer writer(bytes);
  writer.add_double(event::kWallTime, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  writer.add_int64(event::kStep, step);
  return bytes;
}

std::filesystem::path file_in(const std::filesystem::path& folder) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return folder / fmt::format("events.out.tfevents.{:010}.{}.{}", ::time(nullptr), host, ::getpid());
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw cxxrun::Error("cannot create {}: {}", folder.string(), error.message());
  path_ = file_in(folder);
  for (int copy = 1;; ++copy) {  // another of this process in this second
    fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    if (fd_ || errno != EEXIST) break;
    path_ = file_in(folder).string() + fmt::format(".{}", copy);
  }
  if (!fd_) throw cxxrun::errno_error("cannot create " + path_.string());

  std::string version = event_at(0);
  pbf_writer(version).add_string(event::kFileVersion, kFileVersion);
  append(version);
  std::string start = event_at(first_step);
  {
    pbf_writer writer(start);
    pbf_writer(writer, event::kSessionLog).add_enum(session_log::kStatus, session_log::kStart);
  }
  append(start);
}

void EventFile::add_scalars(int64_t step, const std::vector<std::pair<std::string, double>>& tags_and_values) {
  std::string bytes = event_at(step);
  {
    pbf_writer writer(bytes);
    pbf_writer values(writer, event::kSummary);
    for (const auto& [tag, number] : tags_and_values) {
      pbf_writer one(values, summary::kValue);
      one.add_string(value::kTag, tag);
      one.add_float(value::kSimpleValue, static_cast<float>(number));
    }
  }
  append(bytes);
}

void EventFile::add_text(int64_t step, std::string_view tag, std::string_view markdown) {
  std::string bytes = event_at(step);
  {
    pbf_writer writer(bytes);
    pbf_writer values(writer, event::kSummary);
    pbf_writer one(values, summary::kValue);
    one.add_string(value::kTag, tag.data(), tag.size());
    {
      pbf_writer text(one, value::kTensor);
      text.add_enum(tensor::kDtype, tensor::kString);
      text.add_message(tensor::kShape, std::string());  // a scalar
      text.add_bytes(tensor::kStringValue, markdown.data(), markdown.size());
    }
    pbf_writer about(one, value::kMetadata);
    pbf_writer(about, metadata::kPluginData).add_string(metadata::kPluginName, "text");
  }
  append(bytes);
}

void EventFile::append(const std::string& event) {
  const std::string length = little_endian(uint64_t{event.size()});
  const std::string record = length + little_endian(masked_crc(length)) + event + little_endian(masked_crc(event));
  if (::write(fd_.get(), record.data(), record.size()) != static_cast<ssize_t>(record.size())) {
    throw cxxrun::errno_error("cannot append to " + path_.string());
  }
}

}  // namespace vla
