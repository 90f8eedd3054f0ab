// Writes the first samples of a source as a pack of profile fast, for the trainer to read: it needs
// the samples and their layout, not a small file.
#include "client/cli/pack/training_pack.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "compress/encode/pack/pack_writer.h"

namespace forebay::cli {
namespace {

constexpr std::uint64_t kRawBytesMax = std::uint64_t{512} << 20;

}  // namespace

std::uint64_t FixedSampleBytes(const compress::PackSchema& schema) {
  std::uint64_t bytes = 0;
  for (const compress::PackField& field : schema.fields) {
    if (!field.variable()) bytes += field.sample_bytes();
  }
  return std::max<std::uint64_t>(bytes, 1);
}

TrainingPack::~TrainingPack() {
  // A file that was there before is the user's.
  if (!is_created_) return;
  // One of the two does not exist, so errors are of no interest.
  unlink(path_.c_str());
  unlink((path_ + ".part").c_str());
}

Status TrainingPack::Write(const compress::PackSchema& schema, const Options& options,
                           PackSource& source) {
  const std::uint64_t most =
      std::max<std::uint64_t>(kRawBytesMax / FixedSampleBytes(schema), 1);
  // More samples would not make a better predictor of some kilobytes, only a longer training.
  const std::uint64_t samples = std::min(options.samples, most);
  const std::uint64_t length = options.sequence_length;
  FOREBAY_ASSIGN(const auto writer,
                 compress::PackWriter::Create(path_, schema,
                                              {.profile = compress::Profile::kFast,
                                               .threads = options.threads}));
  is_created_ = true;
  PackSample sample;
  while (writer->next_sample() < samples) {
    const std::uint64_t number = writer->next_sample();
    FOREBAY_TRY(source.Next(sample));
    // The sequences begin where those of the final pack will begin, because a sample is predicted
    // from earlier samples of its sequence only, and the trainer has to learn exactly that.
    if (sample.begins_sequence || (length > 0 && number % length == 0)) {
      FOREBAY_TRY(writer->BeginSequence());
    }
    FOREBAY_TRY(writer->Add(sample.fields, sample.key));
  }
  FOREBAY_TRY(writer->Finish());
  return {};
}

}  // namespace forebay::cli
