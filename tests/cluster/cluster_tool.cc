// The data set and the readers of the chaos runner (chaos.py), and of row `losses` of the
// benchmarks. `make` writes records whose bytes follow from their numbers. `read` reads as one rank
// of a training program does: it compares every byte that it gets with the number of the sample,
// and writes down what it got where. It uses the public headers of the client library only, and
// shares no code with the daemon.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include <forebay/client.h>

namespace {

using forebay::Batch;
using forebay::Error;
using forebay::ErrorCode;
using forebay::Result;
using forebay::Status;

// Byte `at` of record `id`. Neighbours are alike, so that the records can be compressed, and no two
// records are equal.
std::byte ByteOf(std::uint64_t id, std::uint64_t at) {
  if (at < sizeof id) return static_cast<std::byte>(id >> (8 * at));
  const std::uint64_t hash = (id * 0x9E3779B97F4A7C15ULL) ^ (at * 0xC2B2AE3D27D4EB4FULL);
  const std::uint64_t noise = hash >> 62;
  return static_cast<std::byte>((id + at / 16 + noise) & 0xFF);
}

int Make(const std::string& path, std::uint64_t records, std::uint64_t record_bytes) {
  std::ofstream out(path, std::ios::binary);
  std::vector<char> record(record_bytes);
  for (std::uint64_t id = 0; id < records; ++id) {
    for (std::uint64_t at = 0; at < record_bytes; ++at) {
      record[at] = static_cast<char>(ByteOf(id, at));
    }
    out.write(record.data(), static_cast<std::streamsize>(record.size()));
  }
  out.close();
  if (out) return 0;
  std::cerr << "cannot write " << path << ": " << std::strerror(errno) << "\n";
  return 1;
}

struct ReadOptions {
  std::string address, log, token_path, resume_path;
  std::string mode = "global", delivery = "contiguous";
  std::uint64_t record_bytes = 0;
  std::uint32_t pause_us = 0;  // after each batch: what the training step would take
  forebay::StreamOptions stream;
};

// Returns how many samples of the batch have other bytes than their numbers say.
std::uint32_t CountWrong(const Batch& batch, std::uint64_t record_bytes) {
  std::uint32_t wrong = 0;
  for (std::uint32_t i = 0; i < batch.sample_count(); ++i) {
    const std::uint64_t id = batch.sample_ids()[i].value();
    std::uint64_t at = 0;
    bool is_right = true;
    for (const std::span<const std::byte> piece : batch.Spans(forebay::FieldId(0), i)) {
      for (const std::byte byte : piece) is_right = is_right && byte == ByteOf(id, at++);
    }
    wrong += is_right && at == record_bytes ? 0 : 1;
  }
  return wrong;
}

// Writes one line of what was got: epoch, samples, wrong ones, microseconds of waiting, first
// position, numbers of the samples, as little-endian u32 x 4, u64, u64 x samples. One call, so that
// a killed reader leaves no half line, or one that the check can tell (bench/harness/delivered.py).
Status WriteDown(int log, const Batch& batch, std::uint32_t wrong,
                 std::chrono::microseconds waited) {
  std::string line;
  const auto append = [&line](auto value) {
    line.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  append(batch.epoch().value());
  append(batch.sample_count());
  append(wrong);
  append(static_cast<std::uint32_t>(waited.count()));
  append(batch.first_position());
  for (const forebay::SampleId id : batch.sample_ids()) append(id.value());
  if (::write(log, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return Error(ErrorCode::kUnknown, "cannot write the log: " + std::string(strerror(errno)));
  }
  return {};
}

// Writes it under another name first, so that a killed reader leaves the former token or this one.
Status KeepToken(const std::string& path, const forebay::PositionToken& token) {
  const auto bytes = token.Encode();
  {
    std::ofstream out(path + ".new", std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!out.flush()) return Error(ErrorCode::kUnknown, "cannot write the token");
  }
  if (std::rename((path + ".new").c_str(), path.c_str()) != 0) {
    return Error(ErrorCode::kUnknown, "cannot rename the token");
  }
  return {};
}

Status ReadAll(const ReadOptions& options) {
  forebay::StreamOptions stream_options = options.stream;
  if (!options.resume_path.empty()) {
    std::ifstream in(options.resume_path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    FOREBAY_ASSIGN(stream_options.resume,
                   forebay::PositionToken::Parse(std::as_bytes(std::span(text))));
  }
  const int log = ::open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) return Error(ErrorCode::kUnknown, "cannot open " + options.log);
  forebay::ClientOptions client_options;
  client_options.address = options.address;
  client_options.connect_timeout_ms = options.stream.retry_for_ms;
  FOREBAY_ASSIGN(const auto client, forebay::Client::Connect(client_options));
  FOREBAY_ASSIGN(const auto stream, client->Open(stream_options));
  for (;;) {
    const auto asked = std::chrono::steady_clock::now();
    FOREBAY_ASSIGN(std::optional<Batch> batch, stream->Next());
    if (!batch) break;
    const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - asked);
    const std::uint32_t wrong = CountWrong(*batch, options.record_bytes);
    FOREBAY_TRY(WriteDown(log, *batch, wrong, waited));
    FOREBAY_TRY(KeepToken(options.token_path, batch->token()));
    // This pause stands for the training step. chaos.py chooses it, so that the job lasts some
    // seconds.
    const auto begin = std::chrono::steady_clock::now();
    ::poll(nullptr, 0, static_cast<int>(options.pause_us / 1000));
    while (std::chrono::steady_clock::now() - begin < std::chrono::microseconds(options.pause_us)) {
      std::this_thread::yield();
    }
  }
  return stream->Finish();
}

Result<forebay::OrderMode> ModeOf(const std::string& name) {
  if (name == "global") return forebay::OrderMode::kGlobal;
  if (name == "block") return forebay::OrderMode::kBlock;
  if (name == "sequential") return forebay::OrderMode::kSequential;
  return Error(ErrorCode::kInvalidArgument, "no mode '" + name + "'");
}

int Read(ReadOptions& options) {
  const Result<forebay::OrderMode> mode = ModeOf(options.mode);
  Status status = mode ? Status() : Status(mode.error());
  if (mode) {
    options.stream.mode = *mode;
    options.stream.delivery = options.delivery == "views" ? forebay::Delivery::kViews
                                                          : forebay::Delivery::kContiguous;
    status = ReadAll(options);
  }
  if (status) return 0;
  std::cerr << status.error().ToString() << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Makes a data set whose bytes prove themselves, and reads it as one rank.");
  app.require_subcommand(1);
  std::string out;
  std::uint64_t records = 0, record_bytes = 0;
  CLI::App* const make = app.add_subcommand("make", "Writes the data set.");
  make->add_option("--out", out)->required();
  make->add_option("--records", records)->required();
  make->add_option("--record-bytes", record_bytes)->required();
  ReadOptions options;
  CLI::App* const read = app.add_subcommand("read", "Reads as one rank, and compares all bytes.");
  read->add_option("--address", options.address)->required();
  read->add_option("--log", options.log)->required();
  read->add_option("--delivery-log", options.stream.delivery_log);
  read->add_option("--token", options.token_path)->required();
  read->add_option("--resume", options.resume_path);
  read->add_option("--mode", options.mode);
  read->add_option("--delivery", options.delivery);
  read->add_option("--record-bytes", options.record_bytes)->required();
  read->add_option("--pause-us", options.pause_us);
  read->add_option("--dataset", options.stream.dataset)->required();
  read->add_option("--global-batch", options.stream.global_batch)->required();
  read->add_option("--ranks", options.stream.ranks);
  read->add_option("--rank", options.stream.rank);
  read->add_option("--epochs", options.stream.epochs);
  read->add_option("--seed", options.stream.seed);
  read->add_option("--block-samples", options.stream.block_samples);
  read->add_option("--window-runs", options.stream.window_runs);
  read->add_option("--depth", options.stream.prefetch_depth);
  read->add_option("--retry-for-ms", options.stream.retry_for_ms);
  CLI11_PARSE(app, argc, argv);
  return make->parsed() ? Make(out, records, record_bytes) : Read(options);
}
