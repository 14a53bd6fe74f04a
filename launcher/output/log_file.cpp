#include "launcher/output/log_file.hpp"

#include <fcntl.h>

#include "common/error.hpp"

namespace cxxrun {

LogFile::LogFile(std::string path, Complain complain)
    : path_(std::move(path)),
      complain_(std::move(complain)),
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666)) {
  if (!fd_) give_up(errno);
}

void LogFile::write(std::string_view bytes) {
  while (fd_ && !bytes.empty()) {
    const ssize_t size = ::write(fd_.get(), bytes.data(), bytes.size());
    if (size >= 0) {
      bytes.remove_prefix(static_cast<size_t>(size));
    } else if (errno != EINTR) {
      give_up(errno);
    }
  }
}

void LogFile::give_up(int error_number) {
  fd_.reset();
  complain_(fmt::format("cannot write '{}': {}; output goes on without it", path_, std::strerror(error_number)));
}

}  // namespace cxxrun
