// A thread writes the encoded part to a table of its own, from which gRPC is then given one chunk
// after another. The table counts as one of limits::kPeerPartsMax until the stream has gone.
#include "server/peer/part_answers.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/support/slice.h>

#include "forebay/v1/peer.pb.h"
#include "proto/contract/limits.h"
#include "server/catalog/storage/table_spool.h"
#include "server/peer/channel_settings.h"

namespace forebay::peer {
namespace {

constexpr std::size_t kUnusedQueueDepth = 1;  // of an I/O queue that these threads do not use

grpc::ByteBuffer MessageOf(const v1::CatalogPartReply& reply) {
  const grpc::Slice slice(reply.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

// A part that is being sent.
class PartAnswers::Sending {
 public:
  Sending(std::shared_ptr<PartAnswers> answers, const catalog::BuildScratch& scratch)
      : answers_(std::move(answers)), part_(scratch) {
    has_room_ = ++answers_->sending_ <= limits::kPeerPartsMax;
  }
  ~Sending() { --answers_->sending_; }
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;

  bool has_room() const { return has_room_; }
  catalog::TableSpool& part() { return part_; }

  // Makes the next chunk; true if it is the last one. A part that cannot be read ends with a
  // message without bytes, which the receiver refuses.
  bool Next(grpc::ByteBuffer& chunk) {
    const auto bytes = static_cast<std::size_t>(
        std::min<std::uint64_t>(limits::kPeerChunkBytes, part_.size() - sent_));
    std::vector<std::byte> payload(bytes);
    const bool is_read = part_.Read(sent_, payload).has_value();
    sent_ += bytes;
    v1::CatalogPartReply reply;
    reply.set_is_there(true);
    if (is_read) reply.set_payload(payload.data(), payload.size());
    chunk = MessageOf(reply);
    return !is_read || sent_ == part_.size();
  }

 private:
  const std::shared_ptr<PartAnswers> answers_;
  catalog::TableSpool part_;
  bool has_room_ = false;
  std::uint64_t sent_ = 0;
};

Result<std::shared_ptr<PartAnswers>> PartAnswers::Create(stage::LocalExtents& extents,
                                                         io::IoBackend& backend) {
  std::shared_ptr<PartAnswers> answers(new PartAnswers(extents));
  const MutexLock lock(answers->mutex_);
  FOREBAY_ASSIGN(answers->threads_,
                 io::ThreadExecutor::Create(backend, limits::kPeerPartThreads, kUnusedQueueDepth));
  return answers;
}

void PartAnswers::Answer(stage::Dataset& dataset, const PartAsked& asked,
                         std::shared_ptr<ReplyStream> stream) {
  const MutexLock lock(mutex_);
  // The server has gone, and so has the node that asked.
  if (threads_ == nullptr) return;
  threads_->Post([self = shared_from_this(), &dataset, asked,
                  stream = std::move(stream)](io::IoQueue&) {
    self->Read(dataset, asked, *stream);
  });
}

void PartAnswers::Read(stage::Dataset& dataset, const PartAsked& asked, ReplyStream& stream) {
  // The request may have waited long for this thread.
  if (stream.has_ended()) return;
  const auto sending = std::make_shared<Sending>(shared_from_this(), extents_.scratch());
  if (!sending->has_room()) return SayNotYet(stream);
  const Result<stage::PartAnswer> answer =
      extents_.ReadPart(dataset, asked.object, asked.object_hash, sending->part());
  if (!answer.has_value()) return stream.End(answer.error());
  if (answer->is_there) {
    return stream.Send([sending](grpc::ByteBuffer& chunk) { return sending->Next(chunk); });
  }
  if (answer->failure) return SayFailure(stream, *answer->failure);
  SayNotYet(stream);
}

void PartAnswers::SayFailure(ReplyStream& stream, const stage::PartFailure& failure) {
  v1::CatalogPartReply reply;
  v1::PartFailure& said = *reply.mutable_failure();
  said.set_code(static_cast<std::uint32_t>(failure.error.code()));
  said.set_message(ErrorTextFor(failure.error));
  // Rounded up, so that a failure does not get younger from node to node.
  said.set_age_ms((static_cast<std::uint64_t>(failure.age_ns) + 999'999) / 1'000'000);
  said.set_is_reported(failure.is_reported);
  stream.Send([reply](grpc::ByteBuffer& chunk) {
    chunk = MessageOf(reply);
    return true;
  });
}

void PartAnswers::SayNotYet(ReplyStream& stream) {
  stream.Send([](grpc::ByteBuffer& chunk) {
    chunk = MessageOf(v1::CatalogPartReply());
    return true;
  });
}

void PartAnswers::Stop() {
  std::unique_ptr<io::ThreadExecutor> threads;
  {
    const MutexLock lock(mutex_);
    threads = std::move(threads_);
  }
  // Without the lock, under which tasks are posted.
  threads.reset();
}

}  // namespace forebay::peer
