// First the extent is brought to a tier, without a thread; then a thread copies it into the arena
// and hands the copy to gRPC, which sends it from there. A thread that finds the arena full waits
// until an image has been sent.
#include "server/peer/extent_answers.h"

#include <chrono>
#include <utility>

#include "proto/contract/limits.h"
#include "server/peer/extent_messages.h"

namespace forebay::peer {
namespace {

constexpr std::size_t kQueueDepth = 32;
// How often a thread that waits for memory looks whether its answer is still wanted.
constexpr std::chrono::seconds kLookAgain(1);

// An image in the arena, for as long as gRPC sends it.
struct SentImage {
  std::shared_ptr<tier::RamArena> arena;
  tier::ArenaBlock block;  // goes before its arena
};

}  // namespace

Result<std::shared_ptr<ExtentAnswers>> ExtentAnswers::Create(stage::LocalExtents& extents,
                                                             io::IoBackend& backend,
                                                             std::shared_ptr<SlicePins> pins) {
  std::shared_ptr<ExtentAnswers> answers(new ExtentAnswers(extents, std::move(pins)));
  FOREBAY_ASSIGN(std::unique_ptr<tier::RamArena> arena,
                 tier::RamArena::Create({.capacity_bytes = limits::kPeerExtentMemoryBytes,
                                         .lowest_first = true}));
  answers->arena_ = std::move(arena);
  const MutexLock lock(answers->mutex_);
  FOREBAY_ASSIGN(answers->threads_, io::ThreadExecutor::Create(
                                        backend, limits::kPeerExtentThreads, kQueueDepth));
  return answers;
}

void ExtentAnswers::Answer(stage::Dataset& dataset, const ExtentAsked& asked,
                           std::shared_ptr<ReplyStream> stream) {
  extents_.Bring(
      dataset, asked.request.catalog_fingerprint, asked.extent,
      [self = shared_from_this(), &dataset, asked, stream](const Status& status) {
        if (!status.has_value()) return stream->End(status.error());
        const MutexLock lock(self->mutex_);
        // The server has gone, and so has the node that asked.
        if (self->threads_ == nullptr) return;
        self->threads_->Post([self, &dataset, asked, stream](io::IoQueue& queue) {
          self->Read(dataset, asked, queue, stream);
        });
      });
}

void ExtentAnswers::Read(stage::Dataset& dataset, const ExtentAsked& asked, io::IoQueue& queue,
                         const std::shared_ptr<ReplyStream>& stream) {
  // The request may have waited long for this thread.
  if (stream->has_ended()) return;
  Result<stage::SuppliedExtent> supplied =
      extents_.Read(dataset, asked.request.catalog_fingerprint, asked.extent,
                    [&](std::uint64_t bytes) { return AwaitMemory(bytes, *stream); }, queue);
  if (!supplied.has_value()) return stream->End(supplied.error());
  const auto image = std::make_shared<SentImage>(
      SentImage{.arena = arena_, .block = std::move(supplied->image)});
  const ExtentHead head{.image_bytes = image->block.bytes().size(),
                        .checksum = supplied->checksums.image,
                        .is_packed = supplied->is_packed};
  const auto sender = std::make_shared<ExtentSender>(head, image->block.bytes(), image, pins_);
  stream->Send([sender](grpc::ByteBuffer& message) { return sender->Next(message); });
}

Result<tier::ArenaBlock> ExtentAnswers::AwaitMemory(std::uint64_t bytes,
                                                    const ReplyStream& stream) {
  tier::MemorySignal::Waiter waiter(arena_->memory_signal());
  for (;;) {
    Result<tier::ArenaBlock> block = arena_->Allocate(bytes);
    if (block.has_value() || stream.has_ended()) return block;
    // Ends after that time, too, because the answer may not be wanted any more.
    waiter.Await(std::chrono::steady_clock::now() + kLookAgain);
  }
}

void ExtentAnswers::Stop() {
  std::unique_ptr<io::ThreadExecutor> threads;
  {
    const MutexLock lock(mutex_);
    threads = std::move(threads_);
  }
  // Without the lock, which the stager may want in order to post a task.
  threads.reset();
}

}  // namespace forebay::peer
