// Fuzz target: what a reader says over the life of a stream, as StreamRequest messages each
// behind its length (protobuf's delimited form). Whatever it says, each batch that was granted
// settles once, with the bytes of its samples, and never are more held than there are credits.
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <vector>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/util/delimited_message_util.h>

#include "forebay/v1/data.pb.h"
#include "proto/contract/check.h"
#include "server/io/testing/memory_backend.h"
#include "server/stream/rpc/wire_batch.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream {
namespace {

constexpr std::size_t kRecordBytes = 1000;
constexpr std::uint64_t kSamples = 512;

// The rooms below the stream, with part of the data set in RAM and part on SSD. Sessions leave
// nothing behind in them, which is checked.
class Rooms {
 public:
  Rooms() {
    FOREBAY_CHECK(backend_.AddDirectory("/ssd").has_value());
    FOREBAY_CHECK(
        backend_.AddFile("/gfs/data.bin", ServeFixture::RecordFile(kSamples, kRecordBytes))
            .has_value());
    auto made = ServeFixture::Create(
        backend_, kRecordBytes, {.ram_bytes = 256 << 10, .ssd_bytes = 64 << 20, .workers = 1});
    FOREBAY_CHECK(made.has_value());
    serve_ = std::move(*made);
    FOREBAY_CHECK(serve_->StageAll().has_value());
  }
  ServeFixture& serve() { return *serve_; }

 private:
  io::MemoryBackend backend_;
  std::unique_ptr<ServeFixture> serve_;
};

// One stream, as the gRPC side of this room serves it. A request that opens it once more is a call
// that comes before the former one has ended.
class Reader {
 public:
  explicit Reader(ServeFixture& serve) : serve_(serve), sink_(serve.MakeSink()) {}
  ~Reader() {
    if (session_) session_->Close();
    serve_.registry().Forget(readers_);
  }

  // False where the stream ends.
  bool Serve(const v1::StreamRequest& request) {
    if (request.has_open() && !Open(request.open())) return false;
    if (!session_) return false;
    if (request.close()) {
      session_->CloseDone();
      return false;
    }
    const auto released = session_->Release(
        {request.release().data(), static_cast<std::size_t>(request.release_size())});
    if (!released.has_value()) return false;
    for (const v1::Pull& pull : request.pulls()) {
      if (!session_->Pull({.first = FromWire(pull), .count = pull.step_count()}).has_value()) {
        return false;
      }
      FOREBAY_CHECK(sink_->WaitFor(answered_ + pull.step_count()));
      Examine(pull.step_count());
    }
    return true;
  }

 private:
  bool Open(const v1::OpenStream& open) {
    if (open.dataset() != serve_.dataset().name()) return false;
    if (session_ && (open.reader() == 0 || open.reader() != session_->spec().reader)) return false;
    auto spec = ResolveStream(serve_.dataset(),
                              FromWire(open, {.name = "fuzz", .pid = ::getpid()}));
    if (!spec.has_value()) return false;
    readers_.push_back(open.reader());
    auto session = serve_.registry().Open(
        std::move(*spec), sink_.get(),
        {open.still_held().data(), static_cast<std::size_t>(open.still_held_size())});
    if (!session.has_value()) return false;
    session_ = std::move(*session);
    FOREBAY_CHECK(session_->held_ids().size() <= static_cast<std::size_t>(open.still_held_size()));
    return true;
  }

  void Examine(std::uint32_t granted) {
    const std::vector<CollectingSink::Taken> batches = sink_->TakeBatches();
    const std::size_t errors = sink_->errors().size();
    FOREBAY_CHECK(batches.size() + errors == answered_ + granted);
    answered_ = errors;  // what the sink goes on counting
    FOREBAY_CHECK(session_->stats().held <= session_->spec().credits);
    if (session_->spec().inline_payload) return;
    for (const CollectingSink::Taken& batch : batches) {
      for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
        FOREBAY_CHECK(batch.payload[i] ==
                      ServeFixture::RecordOf(batch.sample_ids[i], kRecordBytes));
      }
    }
  }

  ServeFixture& serve_;
  std::unique_ptr<CollectingSink> sink_;
  std::shared_ptr<StreamSession> session_;
  std::vector<std::uint64_t> readers_;
  std::size_t answered_ = 0;
};

}  // namespace
}  // namespace forebay::stream

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  static stream::Rooms rooms;
  google::protobuf::io::CodedInputStream input(data, static_cast<int>(size));
  {
    stream::Reader reader(rooms.serve());
    for (;;) {
      v1::StreamRequest request;
      bool is_at_end = false;
      if (!google::protobuf::util::ParseDelimitedFromCodedStream(&request, &input, &is_at_end)) {
        break;
      }
      if (!reader.Serve(request)) break;
    }
  }
  FOREBAY_CHECK(rooms.serve().registry().open_count() == 0);
  FOREBAY_CHECK(rooms.serve().slots().used_bytes() == 0);
  return 0;
}
