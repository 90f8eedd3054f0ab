// plain_loop: the peer to beat. Opens, reads, closes and sums the files of a data set in a given
// order, with nothing in between: no queue, no copy, no check. With --in-memory it only sums what
// lies in memory, which is the limit of any consumer on this machine; with --copy it times memcpy
// alone, the limit of any loader that gathers batches. A loader that beats these numbers would show
// that they are measured wrongly.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bench/peers/delivery_digest.h"
#include "bench/peers/run_report.h"
#include "bench/peers/sample_index.h"
#include "proto/contract/unique_fd.h"

namespace forebay::bench {
namespace {

struct Options {
  std::string root;
  std::string index;
  std::string order;
  std::uint32_t epochs = 1;
  std::uint32_t threads = 1;
  std::uint32_t batch = 1;
  bool in_memory = false;
  bool copies = false;
  bool check = false;
};

// All samples in one piece of shared memory, as the daemon's clients see them, but for nothing:
// the limit of any consumer on one thread.
class MemoryCopy {
 public:
  ~MemoryCopy() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Status Reserve(const SampleIndex& index) {
    // The layout is that of the catalog's order, so a shuffled read jumps as it does in the
    // daemon's memory.
    for (const SampleIndex::Place& place : index.samples) {
      offsets_.push_back(bytes_);
      bytes_ += place.bytes;
    }
    // A memfd, because the daemon's clients read shared memory too, whose pages the kernel treats
    // in another way than those of the heap.
    const UniqueFd memory(memfd_create("memory_loop", MFD_CLOEXEC));
    if (!memory.valid() || ftruncate(memory.get(), static_cast<off_t>(bytes_)) != 0) {
      return Error::FromErrno(errno, "memfd");
    }
    void* const mapped =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (mapped == MAP_FAILED) return Error::FromErrno(errno, "mmap");
    static_cast<void>(madvise(mapped, bytes_, MADV_HUGEPAGE));  // as the daemon's clients do
    data_ = static_cast<std::byte*>(mapped);
    return {};
  }
  bool empty() const { return data_ == nullptr; }
  std::span<std::byte> sample(std::uint64_t id, std::uint64_t bytes) const {
    return {data_ + offsets_[id], bytes};
  }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::vector<std::uint64_t> offsets_;
};

// Reads a share of an epoch. One object per thread; the buffers are reused, so that a sample's
// bytes are summed while they are warm, which favours this peer.
class Reader {
 public:
  Reader(const SampleIndex& index, int root_fd, const MemoryCopy& memory, const Options& options)
      : index_(index),
        root_fd_(root_fd),
        memory_(memory),
        batch_(options.batch),
        copies_(options.copies) {}

  // Fills the copy that later reads come from.
  Status Fill(std::span<const std::uint64_t> ids) {
    // Nothing of this is timed.
    for (const std::uint64_t id : ids) {
      const SampleIndex::Place& place = index_.samples.at(id);
      FOREBAY_TRY(ReadSample(place, memory_.sample(id, place.bytes)));
    }
    return {};
  }

  // Reads and sums `ids`, `batch` samples at a time.
  Status Read(std::span<const std::uint64_t> ids, bool with_content) {
    for (std::size_t at = 0; at < ids.size(); at += batch_) {
      FOREBAY_TRY(ReadBatch(ids.subspan(at, std::min<std::size_t>(batch_, ids.size() - at)),
                            with_content));
    }
    return {};
  }

  const DeliveryDigest& digest() const { return digest_; }
  // What copying took, with --copy.
  double copy_seconds() const { return copy_seconds_; }

 private:
  Status ReadBatch(std::span<const std::uint64_t> ids, bool with_content) {
    // The sums are taken from the copy, so that the digest proves that the right bytes were copied.
    if (copies_) {
      CopyBatch(ids);
      SumBuffer(ids, with_content);
      return {};
    }
    if (!memory_.empty()) {
      for (const std::uint64_t id : ids) {
        Digest(id, memory_.sample(id, index_.samples.at(id).bytes), with_content);
      }
      return {};
    }
    std::size_t used = 0;
    for (const std::uint64_t id : ids) {
      const SampleIndex::Place& place = index_.samples.at(id);
      // Grows to the largest batch and stays; in timed epochs nothing is allocated any more.
      if (buffer_.size() < used + place.bytes) buffer_.resize(used + place.bytes);
      FOREBAY_TRY(ReadSample(place, {buffer_.data() + used, place.bytes}));
      used += place.bytes;
    }
    SumBuffer(ids, with_content);
    return {};
  }

  // Gathers a batch from memory into the buffer, and counts the time of that alone.
  void CopyBatch(std::span<const std::uint64_t> ids) {
    std::size_t bytes = 0;
    for (const std::uint64_t id : ids) bytes += index_.samples.at(id).bytes;
    if (buffer_.size() < bytes) buffer_.resize(bytes);
    const double begin = NowSeconds();
    std::byte* to = buffer_.data();
    for (const std::uint64_t id : ids) {
      const std::span<const std::byte> from = memory_.sample(id, index_.samples[id].bytes);
      std::memcpy(to, from.data(), from.size());
      to += from.size();
    }
    copy_seconds_ += NowSeconds() - begin;
  }

  void SumBuffer(std::span<const std::uint64_t> ids, bool with_content) {
    std::size_t used = 0;
    for (const std::uint64_t id : ids) {
      const std::span<const std::byte> sample(buffer_.data() + used, index_.samples[id].bytes);
      Digest(id, sample, with_content);
      used += sample.size();
    }
  }

  void Digest(std::uint64_t id, std::span<const std::byte> sample, bool with_content) {
    // Content is hashed only in the untimed epoch: XXH3 of every sample would cost as much as
    // reading it.
    digest_.AddSum(id, sample.size(), ByteSum(sample));
    if (with_content) digest_.AddContent(id, XXH3_64bits(sample.data(), sample.size()));
  }

  Status ReadSample(const SampleIndex::Place& place, std::span<std::byte> out) {
    // Opened for each sample, as a program does that has more files than descriptors.
    const std::string& path = index_.objects[place.object];
    const UniqueFd fd(openat(root_fd_, path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return Error::FromErrno(errno, "open " + path);
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t bytes = pread(fd.get(), out.data() + done, out.size() - done,
                                  static_cast<off_t>(place.offset + done));
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0) return Error::FromErrno(errno, "read " + path);
      if (bytes == 0) return Error(ErrorCode::kDataLoss, path + " is too short");
      done += static_cast<std::size_t>(bytes);
    }
    return {};
  }

  const SampleIndex& index_;
  const int root_fd_;
  const MemoryCopy& memory_;
  const std::size_t batch_;
  const bool copies_;
  double copy_seconds_ = 0;
  std::vector<std::byte> buffer_;
  DeliveryDigest digest_;
};

struct Epoch {
  const SampleIndex& index;
  int root_fd;
  const MemoryCopy& memory;
  std::span<const std::uint64_t> ids;
  bool with_content;
};

// One epoch over all threads, each with an equal run of the order.
Result<EpochReport> RunEpoch(const Options& options, const Epoch& epoch) {
  const double begin_cpu = CpuSeconds();
  const double begin = NowSeconds();
  std::vector<Reader> readers;
  std::vector<std::optional<Error>> errors(options.threads);
  readers.reserve(options.threads);
  // Equal runs of the order and no queue: the threads share nothing, which favours this peer.
  const std::size_t share = (epoch.ids.size() + options.threads - 1) / options.threads;
  const auto read_share = [&](std::size_t thread) {
    const std::size_t first = std::min(thread * share, epoch.ids.size());
    const Status status = readers[thread].Read(
        epoch.ids.subspan(first, std::min(share, epoch.ids.size() - first)), epoch.with_content);
    if (!status) errors[thread] = status.error();
  };
  for (std::uint32_t i = 0; i < options.threads; ++i) {
    readers.emplace_back(epoch.index, epoch.root_fd, epoch.memory, options);
  }
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t i = 1; i < options.threads; ++i) threads.emplace_back(read_share, i);
    read_share(0);
  }
  // The clock stops when all threads have ended, so the slowest one counts.
  EpochReport report{.seconds = NowSeconds() - begin, .cpu_seconds = CpuSeconds() - begin_cpu};
  for (std::uint32_t i = 0; i < options.threads; ++i) {
    if (errors[i]) return *errors[i];
    report.digest.Merge(readers[i].digest());
  }
  // CPU seconds are still those of copy and sum; only the wall-clock time is of the copy alone.
  if (options.copies) report.seconds = readers.front().copy_seconds();
  return report;
}

Result<RunReport> Measure(const Options& options) {
  FOREBAY_ASSIGN(const SampleIndex index, SampleIndex::Load(options.index));
  FOREBAY_ASSIGN(const std::vector<std::uint64_t> order, LoadOrder(options.order));
  const std::size_t n = index.samples.size();
  // An order that is too short would make later epochs shorter, and faster.
  if (n == 0 || order.size() < n * options.epochs) {
    return Error(ErrorCode::kInvalidArgument, "the order file is shorter than the epochs");
  }
  if (*std::ranges::max_element(order) >= n) {
    return Error(ErrorCode::kOutOfRange, "the order file names a sample that is not there");
  }
  const UniqueFd root(open(options.root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return Error::FromErrno(errno, "open " + options.root);
  MemoryCopy memory;
  if (options.in_memory) {
    FOREBAY_TRY(memory.Reserve(index));
    FOREBAY_TRY(Reader(index, root.get(), memory, options).Fill(std::span(order).first(n)));
  }
  RunReport report{.contender = options.copies      ? "memory_copy"
                                : options.in_memory ? "memory_loop"
                                                    : "plain_loop",
                   .settings = "threads=" + std::to_string(options.threads) +
                               " batch=" + std::to_string(options.batch)};
  const std::span<const std::uint64_t> ids(order);
  if (options.check) {
    // The untimed epoch comes first. It also brings the files into the page cache, so that all
    // timed epochs are warm.
    FOREBAY_ASSIGN(report.check,
                   RunEpoch(options, {index, root.get(), memory, ids.first(n), true}));
  }
  for (std::uint32_t epoch = 0; epoch < options.epochs; ++epoch) {
    FOREBAY_ASSIGN(EpochReport timed, RunEpoch(options, {index, root.get(), memory,
                                                         ids.subspan(epoch * n, n), false}));
    report.epochs.push_back(timed);
  }
  return report;
}

int Run(int argc, char** argv) {
  Options options;
  CLI::App app("plain_loop: open, read, close and sum, in a given order");
  app.add_option("--root", options.root, "The data set's folder")->required();
  app.add_option("--index", options.index, "Where its samples lie")->required();
  app.add_option("--order", options.order, "An order file")->required();
  app.add_option("--epochs", options.epochs, "Timed epochs")->capture_default_str();
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--batch", options.batch, "Samples read before they are summed")
      ->check(CLI::Range(1, 4096))->capture_default_str();
  CLI::Option* const in_memory =
      app.add_flag("--in-memory", options.in_memory,
                   "Sum samples that lie in memory already: the limit of one consumer");
  app.add_flag("--copy", options.copies,
               "Copy batches of them, on one thread, instead; sums are taken, but not timed")
      ->needs(in_memory);
  app.add_flag("--check", options.check, "An untimed epoch first, with the content digest");
  CLI11_PARSE(app, argc, argv);
  // The goal that is compared with it is the memcpy of one thread.
  if (options.copies) options.threads = 1;
  return PrintReport("plain_loop", Measure(options));
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) { return forebay::bench::Run(argc, argv); }
