#include "launcher/output/output_router.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "common/error.hpp"
#include "launcher/output/line_prefix.hpp"
#include "launcher/output/pty.hpp"

namespace cxxrun {
namespace {

constexpr size_t kReadSize = 1 << 18;  // and the pipes'; fits a core's cache
constexpr size_t kDrainLimit = 1 << 20;  // a process that escaped and writes for ever must not hold us

bool same_file(int a, int b) {
  struct stat first {
  }, second{};
  if (::fstat(a, &first) != 0 || ::fstat(b, &second) != 0) return false;
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino && first.st_rdev == second.st_rdev;
}

}  // namespace

OutputRouter::OutputRouter(EventLoop& loop, const OutputOptions& options, std::string role, int stdout_fd,
                           int stderr_fd)
    : loop_(loop), options_(options), role_(std::move(role)), buffer_(new char[kReadSize]) {
  own_out_ = std::make_unique<Console>(loop, stdout_fd, [this] { react(*out_); });
  if (!same_file(stdout_fd, stderr_fd)) own_err_ = std::make_unique<Console>(loop, stderr_fd, [this] { react(*err_); });
  out_ = own_out_.get();
  err_ = own_err_ ? own_err_.get() : out_;
}

OutputRouter::~OutputRouter() { drain(); }

void OutputRouter::start_attempt(const std::vector<RankPlan>& plans) {
  drain();
  sources_.clear();
  several_ranks_ = std::count_if(plans.begin(), plans.end(),
                                 [](const RankPlan& plan) { return plan.out.console || plan.err.console; }) > 1;
  for (Console* console : {out_, err_}) {
    console->set_manner(several_ranks_, options_.prefix == PrefixMode::kAuto);
  }
  const std::filesystem::path error_file = plans.empty() ? "" : plans[0].error_file;
  if (error_file.empty()) return;
  const std::string folder = error_file.parent_path().parent_path();
  const auto open_filtered = [&](std::optional<LogFile>& file, const std::vector<std::string>& texts,
                                 const char* name) {
    if (texts.empty()) return;
    std::error_code ignored;  // what cannot be written will be said
    std::filesystem::create_directories(folder, ignored);
    file.emplace(folder + "/" + name, [this](const std::string& problem) { write("cxxrun: " + problem); });
  };
  open_filtered(filtered_out_, options_.duplicate_stdout_filters, "filtered_stdout.log");
  open_filtered(filtered_err_, options_.duplicate_stderr_filters, "filtered_stderr.log");
}

RankStreams OutputRouter::open(const RankPlan& plan) {
  return {.out = open_stream(plan, STDOUT_FILENO), .err = open_stream(plan, STDERR_FILENO)};
}

UniqueFd OutputRouter::open_stream(const RankPlan& plan, int fd) {
  const bool is_out = fd == STDOUT_FILENO;
  const StreamPlan& stream = is_out ? plan.out : plan.err;
  Source& source = sources_[{plan.local_rank, fd}];
  source.keeps_tail = !is_out;
  bool console = stream.console;
  if (!stream.file.empty()) {
    source.file.emplace(stream.file, [this](const std::string& problem) { write("cxxrun: " + problem); });
    if (!console) {
      UniqueFd own_end = source.file->release();
      source.file.reset();
      source.written_by_rank = stream.file;
      if (own_end) return own_end;
      console = true;  // rather than lose it
    }
  } else if (!console && is_out) {
    return UniqueFd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  }
  if (console) {
    source.console = is_out ? out_ : err_;
    std::string prefix = prefix_of(plan, stream);
    auto& filtered = is_out ? filtered_out_ : filtered_err_;
    if (stream.teed && filtered) {
      source.filter.emplace(*filtered, is_out ? options_.duplicate_stdout_filters : options_.duplicate_stderr_filters,
                            prefix);
    }
    if (source.console->has_colours() && !prefix.empty()) prefix = coloured(prefix, plan.rank);
    source.writer = &source.console->open(std::move(prefix));
  }
  return connect(source);
}

std::string OutputRouter::prefix_of(const RankPlan& plan, const StreamPlan& stream) const {
  const Console& console = &stream == &plan.out ? *out_ : *err_;
  const bool automatic = stream.teed || (console.is_terminal() && several_ranks_);
  if (options_.prefix == PrefixMode::kNever || (options_.prefix == PrefixMode::kAuto && !automatic)) return "";
  const std::string& own = options_.line_prefix_template;
  const char* standard = stream.teed ? "[${role_name}${local_rank}]:" : "[rank${rank}] ";
  return line_prefix(own.empty() ? standard : own, role_, plan.rank, plan.local_rank);
}

UniqueFd OutputRouter::connect(Source& source) {
  UniqueFd rank_end;
  auto pty = source.console && source.console->is_terminal() ? open_pty(source.console->sink().fd()) : std::nullopt;
  if (pty) {
    source.fd = std::move(pty->master);
    source.is_pty = true;
    rank_end = std::move(pty->slave);
  } else {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw errno_error("cannot create a pipe for a rank's output");
    source.fd.reset(ends[0]);
    rank_end.reset(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    ::fcntl(ends[0], F_SETPIPE_SZ, kReadSize);  // where the user may have no more, the usual size does as well
  }
  watch(source, !source.console || !source.console->sink().full());
  return rank_end;
}

size_t OutputRouter::read_some(Source& source) {
  const ssize_t size = ::read(source.fd.get(), buffer_.get(), kReadSize);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (size <= 0) {
    close(source);
    return 0;
  }
  const std::string_view bytes(buffer_.get(), static_cast<size_t>(size));
  if (source.keeps_tail) source.tail.add(bytes);
  if (source.file) source.file->write(bytes);
  if (source.filter) source.filter->add(bytes);
  if (source.writer) source.console->write(*source.writer, bytes);
  if (source.console) react(*source.console);
  return bytes.size();
}

void OutputRouter::close(Source& source) {
  watch(source, false);
  source.fd.reset();
  if (source.filter) source.filter->finish();
  source.filter.reset();
  source.file.reset();
  if (source.writer) source.console->close(*std::exchange(source.writer, nullptr));
}

void OutputRouter::watch(Source& source, bool wanted) {
  if (wanted == source.watched || !source.fd) return;
  source.watched = wanted;
  if (!wanted) return loop_.forget(source.fd.get());
  loop_.watch(source.fd.get(), EPOLLIN, [this, &source] { read_some(source); });
}

void OutputRouter::react(Console& console) {
  OutputSink& sink = console.sink();
  if (const int error = sink.take_error()) {
    write(fmt::format("cxxrun: cannot write to {}: {}; output is lost", &console == out_ ? "stdout" : "stderr",
                      std::strerror(error)));
  }
  for (auto& [key, source] : sources_) {
    if (source.console != &console) continue;
    const bool is_needed = source.keeps_tail || source.file || source.filter;
    if (sink.broken() && !is_needed && source.fd) close(source);
    watch(source, !sink.full());
  }
}

void OutputRouter::write(std::string_view text) { err_->say(text); }

void OutputRouter::resize() {
  for (auto& [key, source] : sources_) {
    if (source.fd && source.is_pty) copy_window_size(source.console->sink().fd(), source.fd.get());
  }
}

void OutputRouter::drain() {
  for (auto& [key, source] : sources_) {
    if (!source.fd) continue;
    for (size_t total = 0; source.fd && total < kDrainLimit;) {
      const size_t size = read_some(source);
      if (size == 0) break;
      total += size;
    }
    if (source.fd) close(source);
  }
  for (Console* console : {out_, err_}) console->flush_words();
}

bool OutputRouter::has_backlog() const { return !out_->sink().empty() || !err_->sink().empty(); }

void OutputRouter::wait_for_readers() {
  for (Console* console : {out_, err_}) console->sink().wait_until_empty();
}

std::vector<std::string> OutputRouter::last_lines(int local_rank, size_t count) const {
  const auto found = sources_.find({local_rank, STDERR_FILENO});
  if (found == sources_.end()) return {};
  LineTail tail = found->second.tail;
  if (!found->second.written_by_rank.empty()) tail.read_file(found->second.written_by_rank);
  return tail.lines(count);
}

}  // namespace cxxrun
