// make_dataset: the same random samples as files in class folders, as tar shards in WebDataset
// layout, or as files of fixed-size records (`rows`: each filled up with zeros to whole 64-bit
// words, as NumPy can map them). The bytes of sample i depend on the seed and i only.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/order_mix.h"
#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::bench {
namespace {

constexpr std::size_t kTarBlockBytes = 512;

struct Options {
  std::string layout = "files";
  std::string output;
  std::uint64_t samples = 0;
  std::uint64_t sample_bytes = 114'660;
  std::uint64_t objects = 16;  // class folders, shards or record files
  std::uint64_t seed = 0;
};

// An object being written. One call of write per sample is enough: samples are large, and making a
// data set is not timed.
class ObjectWriter {
 public:
  Status Open(const std::filesystem::path& path) {
    fd_ = UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd_.valid()) return Error::FromErrno(errno, "create " + path.string());
    path_ = path.string();
    offset_ = 0;
    return {};
  }
  Status Write(std::span<const std::byte> bytes) {
    offset_ += bytes.size();
    while (!bytes.empty()) {
      const ssize_t written = write(fd_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Error::FromErrno(errno, "write " + path_);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
  }
  std::uint64_t offset() const { return offset_; }

 private:
  UniqueFd fd_;
  std::string path_;
  std::uint64_t offset_ = 0;
};

void FillSample(const Options& options, std::uint64_t sample, std::span<std::byte> bytes) {
  // Random words of a counter: sample i can be made without the samples before it, and it is the
  // same in each layout. Nothing can compress it, so no contender gains by that.
  const std::uint64_t key = Absorb64(Mix64(options.seed + kGolden64), sample);
  std::size_t at = 0;
  for (std::uint64_t word_index = 0; at < bytes.size(); ++word_index) {
    const std::uint64_t word = DrawWord64(key, word_index);
    const std::size_t rest = std::min(sizeof(word), bytes.size() - at);
    std::memcpy(bytes.data() + at, &word, rest);
    at += rest;
  }
}

// A POSIX ustar header of a regular file.
std::array<std::byte, kTarBlockBytes> TarHeader(const std::string& name, std::uint64_t bytes) {
  std::array<char, kTarBlockBytes> header{};
  const auto put = [&](std::size_t at, const std::string& text) {
    std::memcpy(header.data() + at, text.data(), text.size());
  };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", bytes));
  put(136, "00000000000");
  // The checksum is computed over a header whose own field has spaces.
  put(148, "        ");
  header[156] = '0';
  put(257, "ustar");
  put(263, "00");
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  std::array<std::byte, kTarBlockBytes> block{};
  std::memcpy(block.data(), header.data(), block.size());
  return block;
}

// Writes the samples one after another; which objects they go to is the layout's affair.
class DatasetMaker {
 public:
  explicit DatasetMaker(const Options& options)
      : options_(options), root_(std::filesystem::path(options.output) / "data"),
        // Rounded up, so that the last object may have fewer samples.
        per_object_((options.samples + options.objects - 1) / options.objects) {}

  Status Make() {
    std::error_code error;
    // The output of an earlier run is removed, because it may be a data set with other parameters,
    // whose files must not be mixed with the new ones.
    std::filesystem::remove_all(options_.output, error);
    std::filesystem::create_directories(root_, error);
    if (error) return Error(ErrorCode::kUnknown, options_.output + ": " + error.message());
    index_.open(std::filesystem::path(options_.output) / "index.tsv");
    std::vector<std::byte> bytes(options_.sample_bytes);
    for (std::uint64_t sample = 0; sample < options_.samples; ++sample) {
      FillSample(options_, sample, bytes);
      FOREBAY_TRY(options_.layout == "files" ? AddFile(sample, bytes)
                  : options_.layout == "tar" ? AddTarMember(sample, bytes)
                                             // "records" and "rows" differ only in what follows
                                             // each record.
                                             : AddRecord(sample, bytes));
    }
    if (options_.layout == "tar") FOREBAY_TRY(EndShard());
    index_.close();
    if (!index_) return Error(ErrorCode::kUnknown, "cannot write the sample index");
    return {};
  }

 private:
  // Writes one line per sample, in the order of ids: path, offset, bytes.
  void Index(const std::string& path, std::uint64_t offset) {
    index_ << path << '\t' << offset << '\t' << options_.sample_bytes << '\n';
  }

  Status AddFile(std::uint64_t sample, std::span<const std::byte> bytes) {
    // Names are padded with zeros, so that their order as text is that of the numbers and the
    // catalog gives sample i the id i.
    const std::string folder = fmt::format("class{:03}", sample / per_object_);
    if (sample % per_object_ == 0) std::filesystem::create_directory(root_ / folder);
    const std::string path = fmt::format("{}/sample{:09}.bin", folder, sample);
    FOREBAY_TRY(object_.Open(root_ / path));
    Index(path, 0);
    return object_.Write(bytes);
  }

  Status AddTarMember(std::uint64_t sample, std::span<const std::byte> bytes) {
    const std::string path = fmt::format("shard{:05}.tar", sample / per_object_);
    if (sample % per_object_ == 0) {
      if (sample != 0) FOREBAY_TRY(EndShard());
      FOREBAY_TRY(object_.Open(root_ / path));
    }
    FOREBAY_TRY(object_.Write(TarHeader(fmt::format("{:09}.bin", sample), bytes.size())));
    Index(path, object_.offset());
    FOREBAY_TRY(object_.Write(bytes));
    const std::array<std::byte, kTarBlockBytes> zeros{};
    const std::size_t rest = bytes.size() % kTarBlockBytes;
    return object_.Write(std::span(zeros).first(rest == 0 ? 0 : kTarBlockBytes - rest));
  }

  Status EndShard() {
    // Two blocks of zeros end an archive; without them readers report a truncated one.
    const std::array<std::byte, 2 * kTarBlockBytes> end{};
    return object_.Write(end);
  }

  Status AddRecord(std::uint64_t sample, std::span<const std::byte> bytes) {
    const std::string path = fmt::format("records{:05}.raw", sample / per_object_);
    if (sample % per_object_ == 0) FOREBAY_TRY(object_.Open(root_ / path));
    Index(path, object_.offset());
    FOREBAY_TRY(object_.Write(bytes));
    if (options_.layout != "rows") return {};
    const std::array<std::byte, sizeof(std::uint64_t)> zeros{};
    // NumPy maps the file as 64-bit words, so each record has to begin on one.
    const std::size_t rest = bytes.size() % zeros.size();
    return object_.Write(std::span(zeros).first(rest == 0 ? 0 : zeros.size() - rest));
  }

  const Options& options_;
  const std::filesystem::path root_;
  const std::uint64_t per_object_;
  ObjectWriter object_;
  std::ofstream index_;
};

int Run(int argc, char** argv) {
  Options options;
  CLI::App app("make_dataset: OUT/data and OUT/index.tsv, replacing what is there");
  app.add_option("--layout", options.layout)
      ->check(CLI::IsMember({"files", "tar", "records", "rows"}))->capture_default_str();
  app.add_option("--out", options.output)->required();
  app.add_option("--samples", options.samples)->required()->check(CLI::PositiveNumber);
  app.add_option("--sample-bytes", options.sample_bytes)->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--objects", options.objects, "Class folders, shards or record files")
      ->check(CLI::Range(1, 100'000))->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (const Status status = DatasetMaker(options).Make(); !status) {
    std::fprintf(stderr, "make_dataset: %s\n", status.error().ToString().c_str());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) { return forebay::bench::Run(argc, argv); }
