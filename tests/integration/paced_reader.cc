// Reads one epoch with the client library, and waits in its middle until it is told to go on, so
// that a test can do something to the daemon meanwhile:
//
//   paced_reader DATASET OUTPUT MARK GO
//
// The bytes of each sample are written to OUTPUT at the place that they have in the data set. After
// half of the batches it creates the file MARK and waits until somebody opens the named pipe GO for
// writing. At the end it prints how often its stream has connected again. Exit code 1: the stream
// failed, or a sample came twice or never.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "forebay/client.h"
#include "proto/contract/unique_fd.h"

namespace forebay::integration {
namespace {

struct Words {
  std::string dataset, output, mark, go;
};

Status WaitInTheMiddle(const Words& words) {
  std::ofstream(words.mark).put('\n');
  const UniqueFd go(open(words.go.c_str(), O_RDONLY | O_CLOEXEC));
  if (!go.valid()) return Error::FromErrno(errno, "opening " + words.go);
  return {};
}

Status Write(int fd, const Batch& batch, std::vector<bool>& seen) {
  for (std::uint32_t i = 0; i < batch.sample_count(); ++i) {
    const std::uint64_t id = batch.sample_ids()[i].value();
    if (seen.at(id)) return Error(ErrorCode::kDataLoss, "a sample came twice");
    seen[id] = true;
    for (const auto span : batch.Spans(FieldId(0), i)) {
      const auto at = static_cast<off_t>(id * span.size());
      if (pwrite(fd, span.data(), span.size(), at) != static_cast<ssize_t>(span.size())) {
        return Error::FromErrno(errno, "writing a sample");
      }
    }
  }
  return {};
}

Status Read(const Words& words) {
  const UniqueFd output(open(words.output.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!output.valid()) return Error::FromErrno(errno, "opening " + words.output);
  // Patient, because the machine may have much else to do while the daemon is started again.
  FOREBAY_ASSIGN(const auto client, Client::Connect({.connect_timeout_ms = 60'000}));
  FOREBAY_ASSIGN(const auto stream,
                 client->Open({.dataset = words.dataset, .global_batch = 64, .epochs = 1}));
  std::vector<bool> seen(stream->selected_count());
  for (std::uint64_t step = 0;; ++step) {
    if (step == stream->steps_per_epoch() / 2) FOREBAY_TRY(WaitInTheMiddle(words));
    FOREBAY_ASSIGN(const std::optional<Batch> batch, stream->Next());
    if (!batch) break;
    FOREBAY_TRY(Write(output.get(), *batch, seen));
  }
  FOREBAY_TRY(stream->Finish());
  for (const bool has_come : seen) {
    if (!has_come) return Error(ErrorCode::kDataLoss, "a sample never came");
  }
  std::printf("%llu\n", static_cast<unsigned long long>(stream->stats().reconnects));
  return {};
}

}  // namespace
}  // namespace forebay::integration

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const forebay::Status status =
      forebay::integration::Read({argv[1], argv[2], argv[3], argv[4]});
  if (!status) std::fprintf(stderr, "paced_reader: %s\n", status.error().ToString().c_str());
  return status ? 0 : 1;
}
