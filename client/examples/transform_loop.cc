// Runs a transform on worker threads: each sample's first field is summed, with a random sign
// that is the same on every rank count and after every restart: transform_loop DATASET
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>

#include <forebay/client.h>

namespace {

forebay::Status SumWithSign(const forebay::TransformInput& input) {
  std::int64_t sum = 0;
  // The spans point into the daemon's memory. The workers share the batch and only read it.
  for (const auto span : input.batch.Spans(forebay::FieldId(0), input.index)) {
    for (const std::byte byte : span) sum += std::to_integer<std::int64_t>(byte);
  }
  // The seed depends on the stream's seed, the epoch and the sample, and on nothing else: no random
  // generator is shared between threads, and a restarted run makes the same choice.
  if ((input.seed & 1) != 0) sum = -sum;
  std::memcpy(input.output.data(), &sum, sizeof(sum));
  return {};
}

forebay::Status Run(const char* dataset) {
  FOREBAY_ASSIGN(const auto client, forebay::Client::Connect({}));
  forebay::StreamOptions options;
  options.dataset = dataset;
  options.global_batch = 64;
  options.transform = SumWithSign;
  options.transform_bytes = sizeof(std::int64_t);
  options.transform_threads = 2;
  FOREBAY_ASSIGN(const auto stream, client->Open(options));
  std::int64_t total = 0;
  for (;;) {
    FOREBAY_ASSIGN(const std::optional<forebay::Batch> batch, stream->Next());
    if (!batch) break;
    for (std::uint32_t i = 0; i < batch->sample_count(); ++i) {
      std::int64_t sum = 0;
      // The outputs of a batch lie one after the other, in the order of its samples.
      std::memcpy(&sum, batch->transformed().data() + i * sizeof(sum), sizeof(sum));
      total += sum;
    }
  }
  std::printf("total %lld\n", static_cast<long long>(total));
  return stream->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: transform_loop DATASET\n");
    return 2;
  }
  const forebay::Status status = Run(argv[1]);
  if (!status) std::fprintf(stderr, "%s\n", status.error().ToString().c_str());
  return status ? 0 : 1;
}
