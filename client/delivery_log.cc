// Writes one line of JSON for each batch that was handed over, and a header when the stream is
// opened (docs/delivery_log.md). A line is written by one call, so that a program that is killed
// leaves at most one torn line, at the end.
#include "client/delivery_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <span>
#include <utility>

namespace forebay::internal {
namespace {

// Lines are put together by hand: a line has an id for each sample of a batch, and is written in
// the trainer's thread, where a JSON library's tree would cost an allocation for each of them.
void AppendNumber(std::string& line, std::uint64_t number) {
  std::array<char, 20> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  line.append(digits.data(), end.ptr);
}

void AppendMember(std::string& line, const char* name, std::uint64_t number) {
  line += ",\"";
  line += name;
  line += "\":";
  AppendNumber(line, number);
}

void AppendHex(std::string& line, std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  for (const std::byte byte : bytes) {
    line += kDigits[std::to_integer<unsigned>(byte) >> 4];
    line += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
}

void AppendMember(std::string& line, const char* name, const std::string& text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  line += ",\"";
  line += name;
  line += "\":\"";
  // JSON allows every byte of UTF-8 but these as they are. Names of data sets and selections come
  // from outside and may have quotes or line breaks, which would make two lines of one.
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (code < 0x20) {
      line += "\\u00";
      line += kDigits[code >> 4];
      line += kDigits[code & 15];
    } else {
      line += c;
    }
  }
  line += '"';
}

// A pipe or a device has no end to look at.
bool EndsWithHalfALine(int fd) {
  struct stat info {};
  char last = '\n';
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return false;
  return pread(fd, &last, 1, info.st_size - 1) == 1 && last != '\n';
}

}  // namespace

Result<DeliveryLog> DeliveryLog::Open(const std::string& path, const DeliveryLogHeader& header) {
  // O_APPEND lets a restarted run continue the file. O_NOFOLLOW and 0600: a log in a shared folder
  // is neither redirected by a link nor read by others.
  constexpr int kFlags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
  UniqueFd file(::open(path.c_str(), kFlags, 0600));
  if (!file.valid()) return Error::FromErrno(errno, "opening the delivery log " + path);
  const bool is_torn = EndsWithHalfALine(file.get());
  DeliveryLog log(std::move(file), path);
  std::string& line = log.line_;
  // A run that was killed, or found the disk full, may have left half a line. The header must not
  // become a part of it; the audit passes over half a line that a header follows.
  line = is_torn ? "\n" : "";
  line += "{\"forebay_delivery_log\":1";
  AppendMember(line, "opened_unix_ns", static_cast<std::uint64_t>(header.opened_unix_ns));
  AppendMember(line, "dataset", header.dataset);
  AppendMember(line, "stream", header.stream);
  AppendMember(line, "selection", header.selection);
  AppendMember(line, "catalog_fingerprint", header.catalog_fingerprint);
  AppendMember(line, "samples", header.order.sample_count);
  AppendMember(line, "global_batch", header.global_batch);
  AppendMember(line, "ranks", header.ranks);
  AppendMember(line, "rank", header.rank);
  AppendMember(line, "first_epoch", header.first_epoch.value());
  AppendMember(line, "first_step", header.first_step.value());
  AppendMember(line, "epochs", header.epochs);
  // The audit computes the whole order again from this, without a daemon or a data set.
  line += ",\"order_spec\":\"";
  AppendHex(line, header.order.Encode());
  line += "\"}\n";
  FOREBAY_TRY(log.WriteLine());
  return log;
}

Status DeliveryLog::Append(const Batch& batch, const MicroName& micro) {
  // The string is a member so that it keeps its memory from batch to batch.
  line_ = "{\"epoch\":";
  AppendNumber(line_, batch.epoch().value());
  AppendMember(line_, "step", batch.step().value());
  AppendMember(line_, "position", batch.first_position());
  if (micro.size != 0) {
    AppendMember(line_, "micro_size", micro.size);
    AppendMember(line_, "micro_index", micro.index);
  }
  if (batch.padded_count() != 0) AppendMember(line_, "padded", batch.padded_count());
  line_ += ",\"ids\":[";
  const char* separator = "";
  // The ids are logged as they came, not as they follow from the order: the audit compares the two.
  for (const SampleId id : batch.sample_ids()) {
    line_ += separator;
    separator = ",";
    AppendNumber(line_, id.value());
  }
  line_ += "]}\n";
  return WriteLine();
}

Status DeliveryLog::WriteLine() {
  // One write of the whole line: O_APPEND makes it land in one piece.
  for (;;) {
    const ssize_t written = ::write(file_.get(), line_.data(), line_.size());
    if (written == static_cast<ssize_t>(line_.size())) return {};
    if (written < 0 && errno == EINTR) continue;
    // A short write to a file means that the disk is full. The rest is not written later: the torn
    // line has no newline, by which the audit knows it, and the stream ends with this error.
    return Error::FromErrno(written < 0 ? errno : ENOSPC, "writing the delivery log " + path_);
  }
}

}  // namespace forebay::internal
