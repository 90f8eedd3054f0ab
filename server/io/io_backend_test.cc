// The suite that every back end must pass: the contract of io_backend.h, and each refusal.
#include "server/io/io_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <ostream>
#include <set>

#include "proto/contract/limits.h"
#include "server/io/aligned_buffer.h"
#include "server/io/queues/thread_backend.h"
#include "server/io/queues/uring_backend.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::io::testing {
namespace {

using ::testing::HasSubstr;

// A back end and the absolute path of an empty directory in it.
struct World {
  std::unique_ptr<TempFolder> folder;
  std::unique_ptr<IoBackend> inner;
  std::unique_ptr<FaultInjector> injector;
  std::unique_ptr<IoBackend> backend;
  std::string root;
};

World OnDisk(std::unique_ptr<IoBackend> backend) {
  World world;
  world.folder = std::make_unique<TempFolder>();
  world.root = world.folder->path();
  world.backend = std::move(backend);
  return world;
}

World UringWorld() { return OnDisk(Take(UringBackend::Create())); }
World SmallRingWorld() {
  UringOptions options;
  options.submission_entries = 2;
  options.completion_entries = 2;
  return OnDisk(Take(UringBackend::Create(options)));
}
World ThreadWorld() { return OnDisk(Take(ThreadBackend::Create())); }
World ComponentWiseWorld() {
  ThreadBackendOptions options;
  options.threads = 2;
  options.resolve_method = ResolveMethod::kComponentWise;
  return OnDisk(Take(ThreadBackend::Create(options)));
}
World MemoryWorldOf(std::uint64_t completion_seed) {
  World world;
  MemoryOptions options;
  options.completion_seed = completion_seed;
  auto memory = std::make_unique<MemoryBackend>(options);
  world.root = "/ssd";
  EXPECT_TRUE(memory->AddDirectory(world.root).has_value());
  world.backend = std::move(memory);
  return world;
}
World MemoryWorld() { return MemoryWorldOf(0); }
World ShuffledMemoryWorld() { return MemoryWorldOf(7); }

World FaultyOver(World world) {
  world.injector = std::make_unique<FaultInjector>();
  world.inner = std::move(world.backend);
  world.backend = std::make_unique<FaultyBackend>(*world.inner, *world.injector);
  return world;
}
World FaultyMemoryWorld() { return FaultyOver(MemoryWorld()); }
World FaultyThreadWorld() { return FaultyOver(ThreadWorld()); }

struct WorldKind {
  const char* name;
  const char* backend_name;
  World (*make)();
  bool needs_io_uring;
};

// Without this, test names would contain the bytes of the parameter, such as addresses.
void PrintTo(const WorldKind& kind, std::ostream* out) { *out << kind.name; }

class IoBackendTest : public ::testing::TestWithParam<WorldKind> {
 protected:
  void SetUp() override {
    if (GetParam().needs_io_uring && !IsIoUringAvailable()) {
      GTEST_SKIP() << CheckIoUring().error().ToString();
    }
    world_ = GetParam().make();
    directory_ = Take(world_.backend->OpenDirectory(world_.root));
    queue_ = Take(world_.backend->CreateQueue({64}));
  }

  std::unique_ptr<File> Open(std::string_view path, OpenMode mode) {
    return Take(directory_->Open(path, mode));
  }
  void Put(std::string_view path, std::span<const std::byte> bytes) {
    const std::unique_ptr<File> file = Open(path, OpenMode::kCreate);
    FOREBAY_EXPECT_OK(WriteFully(*queue_, *file, 0, bytes));
  }
  std::vector<std::byte> Get(std::string_view path) {
    const std::unique_ptr<File> file = Open(path, OpenMode::kRead);
    std::vector<std::byte> bytes(Take(file->Info()).bytes);
    FOREBAY_EXPECT_OK(ReadFully(*queue_, *file, 0, bytes));
    return bytes;
  }
  std::vector<std::string> Names(std::string_view path) {
    std::vector<std::string> names;
    for (const DirectoryEntry& entry : Take(directory_->List(path))) names.push_back(entry.name);
    return names;
  }

  World world_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<IoQueue> queue_;
};

TEST_P(IoBackendTest, NamesItself) {
  EXPECT_EQ(world_.backend->name(), GetParam().backend_name);
}

TEST_P(IoBackendTest, ReadsBackWhatWasWritten) {
  const std::vector<std::byte> bytes = Pattern(1'000'003);
  Put("a", bytes);
  EXPECT_EQ(Get("a"), bytes);
}

TEST_P(IoBackendTest, PublishesByTheRules) {
  const std::vector<std::byte> bytes = Pattern(10'000);
  FOREBAY_EXPECT_OK(directory_->MakeDirectory("d"));
  {
    const std::unique_ptr<File> file = Open("d/temp", OpenMode::kCreate);
    FOREBAY_EXPECT_OK(WriteFully(*queue_, *file, 0, bytes));
    FOREBAY_EXPECT_OK(DataSync(*queue_, *file));
  }
  FOREBAY_EXPECT_OK(directory_->Rename("d/temp", "d/final"));
  FOREBAY_EXPECT_OK(directory_->Sync("d"));
  FOREBAY_EXPECT_OK(directory_->Sync(""));
  EXPECT_EQ(Get("d/final"), bytes);
  EXPECT_EQ(Names("d"), std::vector<std::string>{"final"});
}

TEST_P(IoBackendTest, MovesAlignedBytesDirectly) {
  const std::size_t kBytes = 4 * limits::kIoAlignmentBytes;
  AlignedBuffer out = Take(AlignedBuffer::Create(kBytes));
  const std::vector<std::byte> bytes = Pattern(kBytes, 3);
  std::memcpy(out.data(), bytes.data(), kBytes);
  {
    const std::unique_ptr<File> file = Open("a", OpenMode::kCreateDirect);
    if (!file->is_direct()) GTEST_SKIP() << "no O_DIRECT in the temporary folder";
    FOREBAY_EXPECT_OK(WriteFully(*queue_, *file, 0, out.span()));
  }
  const std::unique_ptr<File> file = Open("a", OpenMode::kReadDirect);
  EXPECT_TRUE(file->is_direct());
  AlignedBuffer in = Take(AlignedBuffer::Create(kBytes));
  FOREBAY_EXPECT_OK(ReadFully(*queue_, *file, 0, in.span()));
  EXPECT_EQ(std::memcmp(in.data(), bytes.data(), kBytes), 0);
}

TEST_P(IoBackendTest, DirectReadPastTheEndIsShort) {
  Put("a", Pattern(5'000));
  const std::unique_ptr<File> file = Open("a", OpenMode::kReadDirect);
  if (!file->is_direct()) GTEST_SKIP() << "no O_DIRECT in the temporary folder";
  AlignedBuffer in = Take(AlignedBuffer::Create(16'384));
  EXPECT_EQ(Take(RunOne(*queue_, ReadOf(*file, 0, in.span()))), 5'000U);
  const std::vector<std::byte> wanted = Pattern(5'000);
  EXPECT_EQ(std::memcmp(in.data(), wanted.data(), 5'000), 0);
  EXPECT_EQ(Take(RunOne(*queue_, ReadOf(*file, 8'192, in.span()))), 0U);
}

TEST_P(IoBackendTest, AppendsAtTheEnd) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const std::unique_ptr<File> file = Open("log", OpenMode::kAppend);
    FOREBAY_EXPECT_OK(WriteFully(*queue_, *file, 0, Pattern(100, seed)));
  }
  const std::vector<std::byte> bytes = Get("log");
  ASSERT_EQ(bytes.size(), 300U);
  for (std::size_t i = 0; i < 300; ++i) ASSERT_EQ(bytes[i], PatternByte(i % 100, i / 100));
}

TEST_P(IoBackendTest, CompletesEveryTagOnceWhateverTheOrder) {
  constexpr std::size_t kBlock = 777;
  constexpr std::size_t kBlocks = 2'000;
  Put("a", Pattern(kBlock * kBlocks));
  const std::unique_ptr<File> file = Open("a", OpenMode::kRead);
  std::vector<std::byte> buffer(kBlock * kBlocks);
  std::vector<int> seen(kBlocks, 0);
  std::vector<Completion> completions;
  std::size_t next = 0;
  while (next < kBlocks || queue_->in_flight() > 0) {
    std::vector<Operation> batch;
    while (next < kBlocks && queue_->in_flight() + batch.size() < queue_->depth()) {
      const std::size_t block = next * 1'117 % kBlocks;  // 1,117 is prime: a permutation
      batch.push_back(ReadOf(*file, block * kBlock,
                             std::span(buffer).subspan(block * kBlock, kBlock), block));
      ++next;
    }
    FOREBAY_EXPECT_OK(queue_->Submit(batch));
    completions.clear();
    const std::size_t count = queue_->Wait(1, completions);
    ASSERT_EQ(count, completions.size());
    ASSERT_GE(count, 1U);
    for (const Completion& completion : completions) {
      ASSERT_TRUE(completion.bytes.has_value()) << completion.bytes.error().ToString();
      ASSERT_EQ(*completion.bytes, kBlock);
      ++seen.at(completion.tag);
    }
  }
  EXPECT_EQ(seen, std::vector<int>(kBlocks, 1));
  EXPECT_EQ(buffer, Pattern(kBlock * kBlocks));
}

TEST_P(IoBackendTest, WaitsForAsManyAsAsked) {
  Put("a", Pattern(64 * 512));
  const std::unique_ptr<File> file = Open("a", OpenMode::kRead);
  std::vector<std::byte> buffer(64 * 512);
  std::vector<Operation> batch;
  for (std::size_t i = 0; i < 64; ++i) {
    batch.push_back(ReadOf(*file, i * 512, std::span(buffer).subspan(i * 512, 512), i));
  }
  FOREBAY_EXPECT_OK(queue_->Submit(batch));
  std::vector<Completion> completions;
  EXPECT_GE(queue_->Wait(64, completions), 64U);
  EXPECT_EQ(completions.size(), 64U);
  EXPECT_EQ(queue_->in_flight(), 0U);
  EXPECT_EQ(buffer, Pattern(64 * 512));
}

TEST_P(IoBackendTest, WaitOnAnIdleQueueReturnsAtOnce) {
  std::vector<Completion> completions;
  EXPECT_EQ(queue_->Wait(5, completions), 0U);
  EXPECT_EQ(queue_->Wait(0, completions, 0), 0U);
  EXPECT_EQ(queue_->Wait(1, completions, 1'000'000'000'000'000), 0U);
}

TEST_P(IoBackendTest, WaitWithTimeoutEndsAndLosesNothing) {
  Put("a", Pattern(1'000));
  const std::unique_ptr<File> file = Open("a", OpenMode::kRead);
  std::vector<std::byte> buffer(1'000);
  const Operation read = ReadOf(*file, 0, buffer, 9);
  FOREBAY_EXPECT_OK(queue_->Submit({&read, 1}));
  std::vector<Completion> completions;
  while (completions.empty()) queue_->Wait(1, completions, 1);
  EXPECT_EQ(completions[0].tag, 9U);
  EXPECT_EQ(buffer, Pattern(1'000));
}

TEST_P(IoBackendTest, DestructionWaitsForWhatIsInFlight) {
  Put("a", Pattern(64 * 65'536));
  const std::unique_ptr<File> file = Open("a", OpenMode::kRead);
  std::vector<std::byte> buffer(64 * 65'536);
  std::vector<Operation> batch;
  for (std::size_t i = 0; i < 64; ++i) {
    batch.push_back(ReadOf(*file, i * 65'536, std::span(buffer).subspan(i * 65'536, 65'536)));
  }
  FOREBAY_EXPECT_OK(queue_->Submit(batch));
  queue_.reset();
}

TEST_P(IoBackendTest, SeveralQueuesShareAFile) {
  const std::vector<std::byte> bytes = Pattern(40'000);
  Put("a", bytes);
  const std::unique_ptr<File> file = Open("a", OpenMode::kRead);
  const std::unique_ptr<IoQueue> other = Take(world_.backend->CreateQueue({1}));
  std::vector<std::byte> first(20'000);
  std::vector<std::byte> second(20'000);
  const Operation read_first = ReadOf(*file, 0, first, 1);
  const Operation read_second = ReadOf(*file, 20'000, second, 2);
  FOREBAY_EXPECT_OK(queue_->Submit({&read_first, 1}));
  FOREBAY_EXPECT_OK(other->Submit({&read_second, 1}));
  std::vector<Completion> completions;
  other->Wait(1, completions);
  queue_->Wait(1, completions);
  ASSERT_EQ(completions.size(), 2U);
  EXPECT_EQ(completions[0].tag, 2U);
  EXPECT_EQ(completions[1].tag, 1U);
  first.insert(first.end(), second.begin(), second.end());
  EXPECT_EQ(first, bytes);
}

TEST_P(IoBackendTest, EmptyTransfersMoveNothing) {
  Put("a", Pattern(10));
  const std::unique_ptr<File> file = Open("a", OpenMode::kRead);
  const std::unique_ptr<File> target = Open("b", OpenMode::kCreate);
  EXPECT_EQ(Take(RunOne(*queue_, ReadOf(*file, 3, {}))), 0U);
  EXPECT_EQ(Take(RunOne(*queue_, WriteOf(*target, 3, {}))), 0U);
  EXPECT_EQ(Take(target->Info()).bytes, 0U);
  FOREBAY_EXPECT_OK(queue_->Submit({}));
}

TEST_P(IoBackendTest, ReadIsShortOnlyAtTheEnd) {
  Put("a", Pattern(1'000));
  const std::unique_ptr<File> file = Open("a", OpenMode::kRead);
  std::vector<std::byte> buffer(600);
  EXPECT_EQ(Take(RunOne(*queue_, ReadOf(*file, 400, buffer))), 600U);
  EXPECT_EQ(Take(RunOne(*queue_, ReadOf(*file, 401, buffer))), 599U);
  EXPECT_EQ(Take(RunOne(*queue_, ReadOf(*file, 1'000, buffer))), 0U);
  EXPECT_EQ(Take(RunOne(*queue_, ReadOf(*file, 1ULL << 40, buffer))), 0U);
}

TEST_P(IoBackendTest, ReadFullyNamesWhereTheFileEnds) {
  Put("a", Pattern(1'000));
  const std::unique_ptr<File> file = Open("a", OpenMode::kRead);
  std::vector<std::byte> buffer(600);
  const Status status = ReadFully(*queue_, *file, 500, buffer);
  ASSERT_EQ(CodeOf(status), ErrorCode::kDataLoss);
  EXPECT_THAT(status.error().message(), HasSubstr("file ends at 1000, wanted 1100"));
}

TEST_P(IoBackendTest, WholeTransfersNeedAQueueOfTheirOwn) {
  Put("a", Pattern(100));
  const std::unique_ptr<File> file = Open("a", OpenMode::kRead);
  std::vector<std::byte> buffer(100);
  const Operation read = ReadOf(*file, 0, buffer, 1);
  FOREBAY_EXPECT_OK(queue_->Submit({&read, 1}));
  EXPECT_EQ(CodeOf(ReadFully(*queue_, *file, 0, buffer)), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(WriteFully(*queue_, *file, 0, buffer)), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(DataSync(*queue_, *file)), ErrorCode::kFailedPrecondition);
  std::vector<Completion> completions;
  EXPECT_EQ(queue_->Wait(1, completions), 1U);
}

TEST_P(IoBackendTest, RefusesMoreThanItsDepthWhole) {
  Put("a", Pattern(100));
  const std::unique_ptr<File> file = Open("a", OpenMode::kRead);
  std::vector<std::byte> buffer(100);
  const std::vector<Operation> batch(65, ReadOf(*file, 0, buffer));
  const Status status = queue_->Submit(batch);
  ASSERT_EQ(CodeOf(status), ErrorCode::kResourceExhausted);
  EXPECT_THAT(status.error().message(), HasSubstr("queue depth 64"));
  EXPECT_EQ(queue_->in_flight(), 0U);
  FOREBAY_EXPECT_OK(queue_->Submit(std::span(batch).first(64)));
  EXPECT_EQ(CodeOf(queue_->Submit(std::span(batch).first(1))), ErrorCode::kResourceExhausted);
  std::vector<Completion> completions;
  EXPECT_EQ(queue_->Wait(64, completions), 64U);
}

TEST_P(IoBackendTest, RefusesTheWholeBatchForOneBadOperation) {
  Put("a", Pattern(100));
  const std::unique_ptr<File> file = Open("a", OpenMode::kRead);
  std::vector<std::byte> buffer(100);
  std::vector<Operation> batch(3, ReadOf(*file, 0, buffer));
  batch[2].file = nullptr;
  EXPECT_EQ(CodeOf(queue_->Submit(batch)), ErrorCode::kInvalidArgument);
  batch[2] = ReadOf(*file, ~0ULL, buffer);
  EXPECT_EQ(CodeOf(queue_->Submit(batch)), ErrorCode::kInvalidArgument);
  batch[2] = ReadOf(*file, (1ULL << 63) - 99, buffer);
  EXPECT_EQ(CodeOf(queue_->Submit(batch)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(queue_->in_flight(), 0U);
}

TEST_P(IoBackendTest, RefusesRequestsBeyondTheLimit) {
  Put("a", Pattern(100));
  const std::unique_ptr<File> file = Open("a", OpenMode::kRead);
  std::vector<std::byte> buffer(limits::kIoRequestBytesMax + 1);
  const Result<std::uint64_t> status = RunOne(*queue_, ReadOf(*file, 0, buffer));
  ASSERT_EQ(CodeOf(status), ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.error().message(), HasSubstr("kIoRequestBytesMax"));
}

TEST_P(IoBackendTest, RefusesMisalignedDirectOperations) {
  Put("a", Pattern(16'384));
  const std::unique_ptr<File> file = Open("a", OpenMode::kReadDirect);
  if (!file->is_direct()) GTEST_SKIP() << "no O_DIRECT in the temporary folder";
  AlignedBuffer memory = Take(AlignedBuffer::Create(16'384));
  const std::span<std::byte> buffer = memory.span();
  const std::vector<Operation> wrong = {
      ReadOf(*file, 1, buffer.first(4'096)), ReadOf(*file, 512, buffer.first(4'096)),
      ReadOf(*file, 0, buffer.first(4'095)), ReadOf(*file, 0, buffer.subspan(8, 4'096)),
      WriteOf(*file, 0, buffer.first(100))};
  for (const Operation& operation : wrong) {
    EXPECT_EQ(CodeOf(queue_->Submit({&operation, 1})), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(Take(RunOne(*queue_, ReadOf(*file, 4'096, buffer.first(4'096)))), 4'096U);
}

TEST_P(IoBackendTest, ReportsAccessAgainstTheOpenMode) {
  Put("a", Pattern(100));
  std::vector<std::byte> buffer(100);
  const std::unique_ptr<File> reader = Open("a", OpenMode::kRead);
  const Result<std::uint64_t> written = RunOne(*queue_, WriteOf(*reader, 0, buffer));
  EXPECT_EQ(CodeOf(written), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(ErrnoOf(written), EBADF);
  const std::unique_ptr<File> writer = Open("b", OpenMode::kCreate);
  EXPECT_EQ(ErrnoOf(RunOne(*queue_, ReadOf(*writer, 0, buffer))), EBADF);
}

TEST_P(IoBackendTest, RefusesQueueDepthsOutOfRange) {
  EXPECT_EQ(CodeOf(world_.backend->CreateQueue({0})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(world_.backend->CreateQueue({limits::kIoDepthMax + 1})),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(Take(world_.backend->CreateQueue({limits::kIoDepthMax}))->depth(),
            limits::kIoDepthMax);
}

TEST_P(IoBackendTest, InfoAndStatAgree) {
  Put("a", Pattern(123));
  FOREBAY_EXPECT_OK(directory_->MakeDirectory("d"));
  const FileInfo info = Take(Open("a", OpenMode::kRead)->Info());
  const FileInfo stat = Take(directory_->Stat("a"));
  EXPECT_EQ(info.bytes, 123U);
  EXPECT_TRUE(info.is_regular);
  EXPECT_EQ(stat.bytes, 123U);
  EXPECT_EQ(stat.mtime_ns, info.mtime_ns);
  EXPECT_GT(stat.mtime_ns, 0);
  EXPECT_TRUE(Take(directory_->Stat("d")).is_directory);
  EXPECT_TRUE(Take(directory_->Stat("")).is_directory);
  EXPECT_EQ(CodeOf(directory_->Stat("missing")), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(directory_->Stat("a/b")), ErrorCode::kNotFound);
}

TEST_P(IoBackendTest, PreallocateAndTruncateSetTheSize) {
  const std::unique_ptr<File> file = Open("a", OpenMode::kCreate);
  FOREBAY_EXPECT_OK(file->Preallocate(0));
  FOREBAY_EXPECT_OK(file->Preallocate(10'000));
  EXPECT_EQ(Take(file->Info()).bytes, 10'000U);
  FOREBAY_EXPECT_OK(WriteFully(*queue_, *file, 0, Pattern(5'000)));
  FOREBAY_EXPECT_OK(file->Preallocate(6'000));
  EXPECT_EQ(Take(file->Info()).bytes, 10'000U);
  FOREBAY_EXPECT_OK(file->Truncate(4'000));
  FOREBAY_EXPECT_OK(file->Truncate(6'000));
  std::vector<std::byte> wanted = Pattern(4'000);
  wanted.resize(6'000);
  EXPECT_EQ(Get("a"), wanted);
  EXPECT_EQ(CodeOf(file->Preallocate(~0ULL)), ErrorCode::kResourceExhausted);
  EXPECT_FALSE(Open("a", OpenMode::kRead)->Truncate(1).has_value());
}

TEST_P(IoBackendTest, ListsSortedByBytes) {
  const std::vector<std::string> names = {"B", "a", "b10", "b9", "\xC3\xA9"};
  for (const std::string& name : names) Put(name, {});
  FOREBAY_EXPECT_OK(directory_->MakeDirectory("a_directory"));
  const std::vector<DirectoryEntry> entries = Take(directory_->List(""));
  ASSERT_EQ(entries.size(), 6U);
  EXPECT_EQ(entries[0].name, "B");
  EXPECT_EQ(entries[1].name, "a");
  EXPECT_EQ(entries[2].name, "a_directory");
  EXPECT_EQ(entries[5].name, "\xC3\xA9");
  EXPECT_TRUE(entries[2].is_directory);
  EXPECT_FALSE(entries[2].is_regular);
  EXPECT_TRUE(entries[0].is_regular);
  EXPECT_TRUE(Names("a_directory").empty());
  EXPECT_EQ(CodeOf(directory_->List("a")), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(directory_->List("missing")), ErrorCode::kNotFound);
}

TEST_P(IoBackendTest, AFileWithoutANameIsWrittenAndReadAndInNoList) {
  FOREBAY_EXPECT_OK(directory_->MakeDirectory("d"));
  for (const char* place : {"", "d"}) {
    const std::unique_ptr<File> file = Open(place, OpenMode::kUnnamed);
    const std::vector<std::byte> bytes = Pattern(10'000, 3);
    FOREBAY_EXPECT_OK(WriteFully(*queue_, *file, 0, bytes));
    std::vector<std::byte> read(bytes.size());
    FOREBAY_EXPECT_OK(ReadFully(*queue_, *file, 0, read));
    EXPECT_EQ(read, bytes);
    EXPECT_TRUE(Names("d").empty());
  }
  EXPECT_EQ(Names(""), std::vector<std::string>{"d"});
  EXPECT_EQ(CodeOf(directory_->Open("missing", OpenMode::kUnnamed)), ErrorCode::kNotFound);
}

TEST_P(IoBackendTest, OpenReportsWhatIsWrong) {
  Put("a", {});
  FOREBAY_EXPECT_OK(directory_->MakeDirectory("d"));
  EXPECT_EQ(CodeOf(directory_->Open("missing", OpenMode::kRead)), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(directory_->Open("missing/a", OpenMode::kCreate)), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(directory_->Open("a", OpenMode::kCreate)), ErrorCode::kAlreadyExists);
  EXPECT_EQ(CodeOf(directory_->Open("a", OpenMode::kCreateDirect)), ErrorCode::kAlreadyExists);
  EXPECT_EQ(CodeOf(directory_->Open("a/b", OpenMode::kRead)), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(directory_->Open("d", OpenMode::kRead)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(directory_->Open("d", OpenMode::kAppend)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(directory_->Open("d", OpenMode::kCreate)), ErrorCode::kAlreadyExists);
}

TEST_P(IoBackendTest, RenameReplacesAtomicallyAndReportsWhatIsWrong) {
  Put("a", Pattern(10, 1));
  Put("b", Pattern(20, 2));
  FOREBAY_EXPECT_OK(directory_->MakeDirectory("d"));
  FOREBAY_EXPECT_OK(directory_->MakeDirectory("d/e"));
  FOREBAY_EXPECT_OK(directory_->Rename("a", "b"));
  EXPECT_EQ(Get("b"), Pattern(10, 1));
  FOREBAY_EXPECT_OK(directory_->Rename("b", "b"));
  EXPECT_EQ(CodeOf(directory_->Rename("a", "c")), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(directory_->Rename("b", "missing/b")), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(directory_->Rename("b", "d")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(directory_->Rename("d", "b")), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(directory_->Rename("d", "d/e/f")), ErrorCode::kInvalidArgument);
  FOREBAY_EXPECT_OK(directory_->MakeDirectory("full"));
  Put("full/x", {});
  EXPECT_EQ(CodeOf(directory_->Rename("d", "full")), ErrorCode::kFailedPrecondition);
  FOREBAY_EXPECT_OK(directory_->Rename("b", "d/e/f"));
  EXPECT_EQ(Get("d/e/f"), Pattern(10, 1));
}

TEST_P(IoBackendTest, RemovesFilesAndDirectories) {
  Put("a", Pattern(10));
  FOREBAY_EXPECT_OK(directory_->MakeDirectory("d"));
  Put("d/b", {});
  EXPECT_EQ(CodeOf(directory_->MakeDirectory("d")), ErrorCode::kAlreadyExists);
  EXPECT_EQ(CodeOf(directory_->MakeDirectory("x/y")), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(directory_->Unlink("missing")), ErrorCode::kNotFound);
  EXPECT_FALSE(directory_->Unlink("d").has_value());
  EXPECT_EQ(CodeOf(directory_->RemoveDirectory("a")), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(directory_->RemoveDirectory("d")), ErrorCode::kFailedPrecondition);
  FOREBAY_EXPECT_OK(directory_->Unlink("d/b"));
  FOREBAY_EXPECT_OK(directory_->RemoveDirectory("d"));
  FOREBAY_EXPECT_OK(directory_->Unlink("a"));
  EXPECT_TRUE(Names("").empty());
  EXPECT_EQ(CodeOf(directory_->Sync("d")), ErrorCode::kNotFound);
}

TEST_P(IoBackendTest, AnUnlinkedFileStaysReadable) {
  Put("a", Pattern(100));
  const std::unique_ptr<File> file = Open("a", OpenMode::kRead);
  FOREBAY_EXPECT_OK(directory_->Unlink("a"));
  std::vector<std::byte> buffer(100);
  FOREBAY_EXPECT_OK(ReadFully(*queue_, *file, 0, buffer));
  EXPECT_EQ(buffer, Pattern(100));
}

TEST_P(IoBackendTest, TellsFreeSpace) {
  const Directory::Space space = Take(directory_->FreeSpace());
  EXPECT_GT(space.free_bytes, 0U);
  EXPECT_GE(space.total_bytes, space.free_bytes);
}

TEST_P(IoBackendTest, RefusesRootsThatAreNotThere) {
  EXPECT_EQ(CodeOf(world_.backend->OpenDirectory("")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(world_.backend->OpenDirectory("relative")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(world_.backend->OpenDirectory(world_.root + "/missing")),
            ErrorCode::kNotFound);
  Put("a", {});
  EXPECT_EQ(CodeOf(world_.backend->OpenDirectory(world_.root + "/a")), ErrorCode::kNotFound);
}

TEST_P(IoBackendTest, RefusesPathsThatAreNotCanonical) {
  Put("a", {});
  FOREBAY_EXPECT_OK(directory_->MakeDirectory("d"));
  const std::string long_path(limits::kPathBytesMax + 1, 'x');
  const std::string long_name(limits::kNameBytesMax + 1, 'x');
  const std::vector<std::pair<std::string, ErrorCode>> refused = {
      {"", ErrorCode::kInvalidArgument},
      {".", ErrorCode::kInvalidArgument},
      {"./a", ErrorCode::kInvalidArgument},
      {"d/", ErrorCode::kInvalidArgument},
      {"d//b", ErrorCode::kInvalidArgument},
      {std::string("a\0b", 3), ErrorCode::kInvalidArgument},
      {long_path, ErrorCode::kInvalidArgument},
      {long_name, ErrorCode::kInvalidArgument},
      {"/a", ErrorCode::kPermissionDenied},
      {"..", ErrorCode::kPermissionDenied},
      {"d/../a", ErrorCode::kPermissionDenied},
  };
  for (const auto& [path, code] : refused) {
    SCOPED_TRACE(path.substr(0, 40));
    EXPECT_EQ(CodeOf(directory_->Open(path, OpenMode::kRead)), code);
    EXPECT_EQ(CodeOf(directory_->Open(path, OpenMode::kCreate)), code);
    EXPECT_EQ(CodeOf(directory_->MakeDirectory(path)), code);
    EXPECT_EQ(CodeOf(directory_->Rename(path, "c")), code);
    EXPECT_EQ(CodeOf(directory_->Rename("a", path)), code);
    EXPECT_EQ(CodeOf(directory_->Unlink(path)), code);
    EXPECT_EQ(CodeOf(directory_->RemoveDirectory(path)), code);
    if (!path.empty()) {
      EXPECT_EQ(CodeOf(directory_->Stat(path)), code);
      EXPECT_EQ(CodeOf(directory_->List(path)), code);
      EXPECT_EQ(CodeOf(directory_->Sync(path)), code);
    }
  }
  EXPECT_EQ(Names(""), (std::vector<std::string>{"a", "d"}));
}

INSTANTIATE_TEST_SUITE_P(
    AllBackends, IoBackendTest,
    ::testing::Values(WorldKind{"Uring", "io_uring", UringWorld, true},
                      WorldKind{"UringSmallRing", "io_uring", SmallRingWorld, true},
                      WorldKind{"Threads", "threads", ThreadWorld, false},
                      WorldKind{"ThreadsComponentWise", "threads", ComponentWiseWorld, false},
                      WorldKind{"Memory", "memory", MemoryWorld, false},
                      WorldKind{"MemoryShuffled", "memory", ShuffledMemoryWorld, false},
                      WorldKind{"FaultyMemory", "faulty(memory)", FaultyMemoryWorld, false},
                      WorldKind{"FaultyThreads", "faulty(threads)", FaultyThreadWorld, false}),
    [](const ::testing::TestParamInfo<WorldKind>& kind) { return kind.param.name; });

}  // namespace
}  // namespace forebay::io::testing
