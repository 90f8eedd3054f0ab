// Consumes a few steps, keeps the position in a file, and goes on there when run again, as a
// trainer does with its checkpoints: resume_loop DATASET CHECKPOINT [STEPS]
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <forebay/client.h>

namespace {

std::optional<forebay::PositionToken> ReadCheckpoint(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  // No file, or one that is not a token, means that the run starts from the beginning. A real
  // trainer would rather stop at a damaged checkpoint than train on the first epoch twice.
  const auto token = forebay::PositionToken::Parse(std::as_bytes(std::span(bytes)));
  if (!token) return std::nullopt;
  return *token;
}

void WriteCheckpoint(const std::string& path, const forebay::PositionToken& token) {
  const auto bytes = token.Encode();
  // A real trainer would write a new file and rename it: this one may be cut off if the process is
  // killed here.
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

forebay::Status Run(const std::string& dataset, const std::string& checkpoint, int steps) {
  FOREBAY_ASSIGN(const auto client, forebay::Client::Connect({}));
  forebay::StreamOptions options;
  options.dataset = dataset;
  options.global_batch = 64;
  options.epochs = 100;
  // An empty optional begins at the first step, so the first run needs no case of its own.
  options.resume = ReadCheckpoint(checkpoint);
  FOREBAY_ASSIGN(const auto stream, client->Open(options));
  for (int i = 0; i < steps; ++i) {
    FOREBAY_ASSIGN(const std::optional<forebay::Batch> batch, stream->Next());
    if (!batch) break;
    std::printf("epoch %u, step %llu\n", batch->epoch().value(),
                static_cast<unsigned long long>(batch->step().value()));
    // The token of a batch is stored once the batch is consumed, never before.
    WriteCheckpoint(checkpoint, batch->token());
  }
  return stream->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: resume_loop DATASET CHECKPOINT [STEPS]\n");
    return 2;
  }
  const forebay::Status status = Run(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : 10);
  if (!status) std::fprintf(stderr, "%s\n", status.error().ToString().c_str());
  return status ? 0 : 1;
}
