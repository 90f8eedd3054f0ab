// The I/O queues: batches of reads at random offsets of a temporary file that lies in the page
// cache, so that the cost of a read is its queue and its copy. Beside them pread in a loop, which
// has no queue.
#include <benchmark/benchmark.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/unique_fd.h"
#include "server/io/aligned_buffer.h"
#include "server/io/queues/thread_backend.h"
#include "server/io/queues/uring_backend.h"

namespace forebay::io {
namespace {

constexpr std::uint64_t kFileBytes = 256 * limits::kMiB;
constexpr std::size_t kDepth = 32;

// Arguments that name a back end.
constexpr std::int64_t kUring = 0;
constexpr std::int64_t kThreads = 1;

// A folder with one file of kFileBytes, removed at the end.
class TempFile {
 public:
  TempFile() {
    folder_ = (std::filesystem::temp_directory_path() / "forebay_ring_XXXXXX").string();
    if (::mkdtemp(folder_.data()) == nullptr) return;
    const UniqueFd fd(::open(path().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::vector<std::byte> piece(limits::kMiB, std::byte{0x5A});
    for (std::uint64_t done = 0; fd.valid() && done < kFileBytes; done += piece.size()) {
      if (::write(fd.get(), piece.data(), piece.size()) !=
          static_cast<ssize_t>(piece.size())) {
        return;
      }
    }
    good_ = fd.valid();
  }
  ~TempFile() {
    std::error_code ignored;  // a leftover in the temporary folder is no failure of a benchmark
    std::filesystem::remove_all(folder_, ignored);
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  bool good() const { return good_; }
  const std::string& folder() const { return folder_; }
  std::string path() const { return folder_ + "/data"; }

 private:
  std::string folder_;
  bool good_ = false;
};

// Offsets of reads that keep prefetchers honest, all aligned.
class Offsets {
 public:
  explicit Offsets(std::uint64_t bytes) : bytes_(bytes), count_(kFileBytes / bytes) {}
  std::uint64_t Next() {
    at_ = (at_ + 1597) % count_;
    return at_ * bytes_;
  }

 private:
  std::uint64_t bytes_;
  std::uint64_t count_;
  std::uint64_t at_ = 0;
};

std::unique_ptr<IoBackend> MakeBackend(std::int64_t which) {
  if (which == kUring) {
    auto backend = UringBackend::Create();
    if (!backend.has_value()) return nullptr;
    return *std::move(backend);
  }
  auto backend = ThreadBackend::Create();
  if (!backend.has_value()) return nullptr;
  return *std::move(backend);
}

void CountReads(benchmark::State& state, std::size_t reads_per_round, std::uint64_t bytes) {
  const std::int64_t reads = state.iterations() * static_cast<std::int64_t>(reads_per_round);
  state.SetItemsProcessed(reads);
  state.SetBytesProcessed(reads * static_cast<std::int64_t>(bytes));
}

// Submits kDepth reads at once and waits for all of them.
void BM_QueueReads(benchmark::State& state) {
  const TempFile temp;
  const std::unique_ptr<IoBackend> backend = MakeBackend(state.range(0));
  if (!temp.good() || backend == nullptr) return state.SkipWithError("cannot run here");
  const auto bytes = static_cast<std::uint64_t>(state.range(1));
  auto directory = backend->OpenDirectory(temp.folder());
  auto queue = backend->CreateQueue({.depth = kDepth});
  auto buffer = AlignedBuffer::Create(kDepth * bytes);
  if (!directory.has_value() || !queue.has_value() || !buffer.has_value()) {
    return state.SkipWithError("no queue");
  }
  auto file = (*directory)->Open("data", OpenMode::kRead);
  if (!file.has_value()) return state.SkipWithError("no file");
  Offsets offsets(bytes);
  std::vector<Operation> reads(kDepth);
  std::vector<Completion> done;
  for (auto _ : state) {
    for (std::size_t i = 0; i < kDepth; ++i) {
      reads[i].file = file->get();
      reads[i].offset = offsets.Next();
      reads[i].buffer = buffer->span().subspan(i * bytes, bytes);
      reads[i].tag = i;
    }
    done.clear();
    if (!(*queue)->Submit(reads).has_value()) return state.SkipWithError("not submitted");
    (*queue)->Wait(kDepth, done);
    for (const Completion& completion : done) {
      if (completion.bytes.value_or(0) != bytes) return state.SkipWithError("a read failed");
    }
  }
  CountReads(state, kDepth, bytes);
}

// The limit: the system call and its copy, by one thread.
void BM_PlainReads(benchmark::State& state) {
  const TempFile temp;
  const auto bytes = static_cast<std::uint64_t>(state.range(0));
  auto buffer = AlignedBuffer::Create(kDepth * bytes);
  const UniqueFd fd(::open(temp.path().c_str(), O_RDONLY | O_CLOEXEC));
  if (!temp.good() || !fd.valid() || !buffer.has_value()) {
    return state.SkipWithError("cannot run here");
  }
  Offsets offsets(bytes);
  std::size_t slot = 0;
  for (auto _ : state) {
    const auto offset = static_cast<off_t>(offsets.Next());
    slot = (slot + 1) % kDepth;
    if (::pread(fd.get(), buffer->data() + slot * bytes, bytes, offset) !=
        static_cast<ssize_t>(bytes)) {
      return state.SkipWithError("a read failed");
    }
  }
  CountReads(state, 1, bytes);
}

// Work is done on other threads too: rates are over elapsed time.
BENCHMARK(BM_QueueReads)
    ->ArgNames({"threads", "bytes"})
    ->Args({kUring, 4096})->Args({kThreads, 4096})
    ->Args({kUring, 1 << 20})->Args({kThreads, 1 << 20})
    ->UseRealTime();
BENCHMARK(BM_PlainReads)->ArgNames({"bytes"})->Arg(4096)->Arg(1 << 20)->UseRealTime();

}  // namespace
}  // namespace forebay::io
