// Progress of packing, by bytes where the total is known before, by samples where fields have any
// length. The ratio so far is shown only once the samples that are read but not yet written are few
// beside the others; it would look too good otherwise.
#include "client/cli/pack/pack_progress.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "client/cli/human_text.h"
#include "proto/contract/limits.h"

namespace forebay::cli {

using compress::PackField;
using compress::PackSchema;

namespace {

std::uint64_t FileBytes(const std::string& path) {
  struct stat found = {};
  return stat(path.c_str(), &found) == 0 ? static_cast<std::uint64_t>(found.st_size) : 0;
}

}  // namespace

PackProgress::PackProgress(CommandContext& context, const PackSchema& schema,
                           std::string output, unsigned threads, std::uint64_t first,
                           std::uint64_t samples)
    : context_(context), output_(std::move(output)), first_(first), samples_(samples),
      // As in BufferedBytesMax: chunks that wait or are being coded, and one that fills for each
      // field.
      pending_bytes_max_((2 * std::uint64_t{threads} + 2 + schema.fields.size()) *
                         limits::kChunkBytesMax),
      line_(context.out, context.terminal), state_({.name = output_, .note = {}}) {
  for (const PackField& field : schema.fields) {
    if (!field.variable()) state_.bytes_total += field.sample_bytes() * (samples - first);
    any_length_ = any_length_ || field.variable();
  }
  // The total is not known before the end: progress is in samples then.
  if (any_length_) state_.bytes_total = 0;
}

void PackProgress::Took(std::uint64_t done, std::uint64_t bytes) {
  raw_bytes_ += bytes;
  const std::uint64_t tenth = (done - first_) * 10 / (samples_ - first_);
  const auto now = Clock::now();
  const bool due = context_.terminal && !context_.json
                       ? now - shown_ >= std::chrono::milliseconds(100)
                       : tenth > tenth_;
  if (!due) return;
  shown_ = now;
  tenth_ = tenth;
  const double seconds = std::max(Seconds(), 1e-9);
  const double rate = static_cast<double>(done - first_) / seconds;
  // The size of the file is asked, because the writer's threads write at times of their own.
  const std::uint64_t written = FileBytes(output_ + ".part");
  // What was read but is not in the file yet would flatter the ratio: it is shown once that is
  // little beside the rest. A resumed file has more in it than was read.
  const bool known = first_ == 0 && written > 0 && raw_bytes_ / 16 > pending_bytes_max_;
  const double ratio =
      known ? static_cast<double>(raw_bytes_) / static_cast<double>(written) : 0;
  if (context_.json) {
    context_.PrintJson("pack", {{"event", "progress"},
                                {"samples", done},
                                {"samples_total", samples_},
                                {"raw_bytes", raw_bytes_},
                                {"samples_per_s", rate},
                                {"raw_bytes_per_s", static_cast<double>(raw_bytes_) / seconds},
                                {"file_bytes", written}});
    return;
  }
  state_.bytes_done = raw_bytes_;
  state_.note = fmt::format("{} of {} samples, {:.0f}/s", HumanCount(done),
                            HumanCount(samples_), rate);
  if (ratio > 0) state_.note += fmt::format(", ratio so far {:.2f}", ratio);
  if (any_length_) {
    // Nearly: the samples to come are taken to be as long as those that came.
    state_.bytes_total = raw_bytes_ / std::max<std::uint64_t>(done - first_, 1) *
                         (samples_ - first_);
  }
  line_.Show(state_);
}

}  // namespace forebay::cli
