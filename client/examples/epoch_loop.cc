// Reads every epoch of a data set: epoch_loop DATASET [EPOCHS]
#include <cstdio>
#include <cstdlib>
#include <optional>

#include <forebay/client.h>

namespace {

forebay::Status Run(const char* dataset, std::uint32_t epochs) {
  // Without options the daemon comes from FOREBAY_ADDRESS, or is this job's daemon on the node.
  FOREBAY_ASSIGN(const auto client, forebay::Client::Connect({}));
  FOREBAY_ASSIGN(const auto stream,
                 client->Open({.dataset = dataset, .global_batch = 64, .epochs = epochs}));
  std::uint64_t samples = 0;
  // Each batch borrows memory of the daemon, so only a few may be held at once.
  for (;;) {
    FOREBAY_ASSIGN(const std::optional<forebay::Batch> batch, stream->Next());
    if (!batch) break;  // all epochs are delivered
    samples += batch->sample_count();
  }  // leaving the scope gives the batch's memory back
  FOREBAY_TRY(stream->Finish());  // nothing was lost on the way
  std::printf("%llu samples, %u epochs\n", static_cast<unsigned long long>(samples), epochs);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: epoch_loop DATASET [EPOCHS]\n");
    return 2;
  }
  const forebay::Status status =
      Run(argv[1], argc > 2 ? static_cast<std::uint32_t>(std::atoi(argv[2])) : 1);
  if (!status) std::fprintf(stderr, "%s\n", status.error().ToString().c_str());
  return status ? 0 : 1;
}
