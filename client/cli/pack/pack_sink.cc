// The two places that packed samples can go to, behind one interface, so that `pack` does not ask
// which it is for every sample.
#include "client/cli/pack/pack_sink.h"

#include <sys/stat.h>

#include <type_traits>
#include <utility>

namespace forebay::cli {
namespace {

using compress::PackSetSummary;

// Both writers have the same functions without a common base: the library does not need one.
template <typename Writer>
class WriterSink : public PackSink {
 public:
  explicit WriterSink(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}

  std::uint64_t next_sample() const override { return writer_->next_sample(); }
  Status BeginSequence() override { return writer_->BeginSequence(); }
  Status Add(std::span<const std::span<const std::byte>> fields, std::string_view key) override {
    return writer_->Add(fields, key);
  }
  Result<PackSetSummary> Finish() override {
    FOREBAY_ASSIGN(const auto summary, writer_->Finish());
    // A single pack has no shards and no generation; what this run wrote is all of it.
    if constexpr (std::is_same_v<Writer, compress::PackSetWriter>) {
      return summary;
    } else {
      return PackSetSummary{.samples = summary.samples,
                            .samples_added = summary.samples,
                            .file_bytes_added = summary.file_bytes};
    }
  }

 private:
  std::unique_ptr<Writer> writer_;
};

// Any error counts as "not there"; creating the file then reports it.
bool IsThere(const std::string& path) {
  struct stat found = {};
  return stat(path.c_str(), &found) == 0;
}

}  // namespace

Result<std::unique_ptr<PackSink>> PackSink::Open(const std::string& path,
                                                 const compress::PackSchema& schema,
                                                 const PackSinkOptions& options) {
  if (options.set) {
    FOREBAY_ASSIGN(auto writer,
                   compress::PackSetWriter::Open(path, schema,
                                                 {.pack = options.pack,
                                                  .shard_raw_bytes = options.shard_raw_bytes,
                                                  .append = options.append,
                                                  .resume = options.resume}));
    return std::make_unique<WriterSink<compress::PackSetWriter>>(std::move(writer));
  }
  // A run that was killed early may have left a file without a byte; that is resumed, too.
  const bool begun = options.resume && IsThere(path + ".part");
  FOREBAY_ASSIGN(auto writer,
                 // If there is no .part file, --resume begins a new pack, so that a job script can
                 // always pass the option.
                 begun ? compress::PackWriter::Resume(path, schema, options.pack)
                       : compress::PackWriter::Create(path, schema, options.pack));
  return std::make_unique<WriterSink<compress::PackWriter>>(std::move(writer));
}

}  // namespace forebay::cli
