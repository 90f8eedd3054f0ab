// Device memory goes over NCCL, host memory and headers over another transport. NCCL executes the
// operations of a communicator in the order in which they are given to it, on both ends, and waits
// for ever if these orders differ. So each direction of a lane between two ranks has a communicator
// and a CUDA stream of its own, and a receive is given to NCCL only when the header has arrived
// that announces its message.
#include "trainer/comm/transport/nccl_transport.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "proto/contract/check.h"

namespace forebay::train {
namespace {

// For the message that tells the receiver the id of a link. All ranks open their links at the same
// time, so a longer wait means that a rank is lost.
constexpr std::uint64_t kMeetingTimeoutNs = 60'000'000'000;

Status Checked(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return {};
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("{}: {}", call, cudaGetErrorString(code)));
}

Status Checked(ncclResult_t code, const char* call) {
  if (code == ncclSuccess) return {};
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("{}: {}", call, ncclGetErrorString(code)));
}

// Memory that CUDA does not know is the host's.
bool OnDevice(const void* memory) {
  cudaPointerAttributes attributes = {};
  // Older drivers answer with an error for such memory.
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) return false;
  return attributes.type == cudaMemoryTypeDevice;
}

struct Transfer {
  Ticket control = 0;  // of the message, or of its header where there is a link
  bool arrived = false;  // what `control` is
  struct Link* link = nullptr;
  std::uint32_t peer = 0;
  MessageTag tag;
  std::uint64_t header = 0;  // bytes that follow
  std::span<std::byte> room = {};
  bool receives = false;
  bool issued = false;  // to the link's stream
  cudaEvent_t moved = nullptr;
  std::optional<Error> error = {};  // stays
};

// One direction of one lane between two ranks.
struct Link {
  NcclLink ends;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::deque<Transfer*> receives;  // whose headers have not arrived, in the plan's order
  std::optional<Error> error = {};  // of any of them: what follows cannot be told apart
};

class NcclTransport final : public Transport {
 public:
  explicit NcclTransport(std::unique_ptr<Transport> control) : control_(std::move(control)) {}
  ~NcclTransport() override { Close(false); }
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  Status Open(int device, std::span<const NcclLink> links);

  std::uint32_t rank() const override { return control_->rank(); }
  std::uint32_t size() const override { return control_->size(); }
  std::uint32_t local_size() const override { return control_->local_size(); }
  std::uint32_t local_rank() const override { return control_->local_rank(); }

  Result<Ticket> BeginSend(std::uint32_t peer, Lane lane, const MessageTag& tag,
                           std::span<const std::byte> bytes) override;
  Result<Ticket> BeginReceive(std::uint32_t peer, Lane lane, const MessageTag& tag,
                              std::span<std::byte> bytes) override;
  Result<bool> Test(Ticket ticket) override;
  Status AwaitAny(std::span<const Ticket> tickets, std::uint64_t timeout_ns) override;
  void Abort(int exit_code) override {
    Close(true);
    control_->Abort(exit_code);
  }

 private:
  Status OpenLink(std::uint32_t index, const NcclLink& ends);
  void Close(bool aborts);
  Result<Link*> LinkTo(std::uint32_t from, std::uint32_t to, Lane lane);
  Result<Transfer*> Find(Ticket ticket);
  Status TakeHeaders(Link& link);
  static Status Issue(Transfer& transfer);
  // True where it is done. An error stays the same.
  Result<bool> Poll(Transfer& transfer);
  Result<bool> Advance(Transfer& transfer);

  std::unique_ptr<Transport> control_;
  std::vector<std::unique_ptr<Link>> links_;
  Ticket next_ticket_ = 1;
  std::map<Ticket, Transfer> transfers_;  // nodes stay where they are
};

// All ranks are given the same list, and open its links in the order of the list. So no rank waits
// in ncclCommInitRank for a peer that opens another link first.
Status NcclTransport::Open(int device, std::span<const NcclLink> links) {
  FOREBAY_TRY(Checked(cudaSetDevice(device), "cudaSetDevice"));
  for (std::uint32_t index = 0; index < links.size(); ++index) {
    const NcclLink& ends = links[index];
    if (ends.from >= size() || ends.to >= size() || ends.from == ends.to) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("a link from rank {} to rank {} of {}", ends.from, ends.to, size()));
    }
    // The number of the link in the list is the tag of the message that carries its id.
    if (rank() == ends.from || rank() == ends.to) FOREBAY_TRY(OpenLink(index, ends));
  }
  return {};
}

// The sender makes the id and is rank 0 of the pair.
Status NcclTransport::OpenLink(std::uint32_t index, const NcclLink& ends) {
  auto link = std::make_unique<Link>();
  link->ends = ends;
  ncclUniqueId id = {};
  const auto bytes = std::as_writable_bytes(std::span(&id, 1));
  const MessageTag tag{.step = index};
  const bool sends = rank() == ends.from;
  if (sends) FOREBAY_TRY(Checked(ncclGetUniqueId(&id), "ncclGetUniqueId"));
  const Result<Ticket> ticket =
      sends ? control_->BeginSend(ends.to, Lane::kControl, tag, bytes)
            : control_->BeginReceive(ends.from, Lane::kControl, tag, bytes);
  if (!ticket.has_value()) return ticket.error();
  FOREBAY_TRY(control_->Wait(*ticket, kMeetingTimeoutNs));
  // Non-blocking, or the stream would wait for LibTorch's default stream.
  FOREBAY_TRY(Checked(cudaStreamCreateWithFlags(&link->stream, cudaStreamNonBlocking),
                      "cudaStreamCreate"));
  const Status opened =
      Checked(ncclCommInitRank(&link->comm, 2, id, sends ? 0 : 1), "ncclCommInitRank");
  // Kept also where opening failed, so that Close frees the stream.
  links_.push_back(std::move(link));
  return opened;
}

void NcclTransport::Close(bool aborts) {
  for (const std::unique_ptr<Link>& link : links_) {
    // ncclCommDestroy waits for what is under way; ncclCommAbort does not.
    if (link->comm != nullptr) aborts ? ncclCommAbort(link->comm) : ncclCommDestroy(link->comm);
    if (link->stream != nullptr) cudaStreamDestroy(link->stream);
  }
  links_.clear();
  for (auto& [ticket, transfer] : transfers_) {
    if (transfer.moved != nullptr) cudaEventDestroy(transfer.moved);
  }
  transfers_.clear();
}

// Links exist only for transfers that the plan has. A transfer without one is an error in the
// plan, because opening a link takes both ends at the same time.
Result<Link*> NcclTransport::LinkTo(std::uint32_t from, std::uint32_t to, Lane lane) {
  const auto found = std::ranges::find_if(links_, [&](const std::unique_ptr<Link>& link) {
    return link->ends.from == from && link->ends.to == to && link->ends.lane == lane;
  });
  if (found != links_.end()) return found->get();
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("device memory from rank {} to rank {}: the plan named no such link",
                           from, to));
}

Result<Ticket> NcclTransport::BeginSend(std::uint32_t peer, Lane lane, const MessageTag& tag,
                                        std::span<const std::byte> bytes) {
  Transfer& transfer = transfers_[next_ticket_];
  transfer.peer = peer;
  transfer.tag = tag;
  if (!OnDevice(bytes.data())) {
    FOREBAY_ASSIGN(transfer.control, control_->BeginSend(peer, lane, tag, bytes));
    return next_ticket_++;
  }
  FOREBAY_ASSIGN(transfer.link, LinkTo(rank(), peer, lane));
  transfer.header = bytes.size();
  FOREBAY_ASSIGN(transfer.control,
                 control_->BeginSend(peer, lane, tag,
                                     std::as_bytes(std::span(&transfer.header, 1))));
  // Sends go to the stream at once: the sender's order is the order to which the receiver adapts.
  // The call returns before the bytes are moved.
  const Link& link = *transfer.link;
  // The peer is number 1 of the pair, because the sender is number 0.
  FOREBAY_TRY(Checked(ncclSend(bytes.data(), bytes.size(), ncclUint8, 1, link.comm, link.stream),
                      "ncclSend"));
  FOREBAY_TRY(Issue(transfer));
  return next_ticket_++;
}

Result<Ticket> NcclTransport::BeginReceive(std::uint32_t peer, Lane lane, const MessageTag& tag,
                                           std::span<std::byte> bytes) {
  Transfer& transfer = transfers_[next_ticket_];
  transfer.peer = peer;
  transfer.tag = tag;
  transfer.receives = true;
  transfer.room = bytes;
  if (!OnDevice(bytes.data())) {
    FOREBAY_ASSIGN(transfer.control, control_->BeginReceive(peer, lane, tag, bytes));
    return next_ticket_++;
  }
  FOREBAY_ASSIGN(transfer.link, LinkTo(peer, rank(), lane));
  FOREBAY_ASSIGN(transfer.control,
                 control_->BeginReceive(peer, lane, tag,
                                        std::as_writable_bytes(std::span(&transfer.header, 1))));
  // TakeHeaders takes it from there.
  transfer.link->receives.push_back(&transfer);
  return next_ticket_++;
}

// What was given to the link's stream is done when the event is.
Status NcclTransport::Issue(Transfer& transfer) {
  FOREBAY_TRY(Checked(cudaEventCreateWithFlags(&transfer.moved, cudaEventDisableTiming),
                      "cudaEventCreate"));
  FOREBAY_TRY(Checked(cudaEventRecord(transfer.moved, transfer.link->stream), "cudaEventRecord"));
  transfer.issued = true;
  return {};
}

// Receives go to the stream in the order in which the peer sends: one whose header has not come
// holds up those behind it.
Status NcclTransport::TakeHeaders(Link& link) {
  while (!link.receives.empty()) {
    Transfer& next = *link.receives.front();
    FOREBAY_ASSIGN(next.arrived, control_->Test(next.control));
    // Later headers are not asked for: giving their receives to NCCL first would change the order.
    if (!next.arrived) return {};
    // Checked before NCCL gets the receive: it would write what comes, or wait for what does not.
    if (next.header != next.room.size()) {
      return Error(ErrorCode::kDataLoss,
                   fmt::format("rank {} sent {} bytes of {}; expected were {} bytes", next.peer,
                               next.header, ToString(next.tag), next.room.size()));
    }
    FOREBAY_TRY(Checked(ncclRecv(next.room.data(), next.room.size(), ncclUint8, 0, link.comm,
                                 link.stream),
                        "ncclRecv"));
    FOREBAY_TRY(Issue(next));
    link.receives.pop_front();
  }
  return {};
}

Result<Transfer*> NcclTransport::Find(Ticket ticket) {
  const auto found = transfers_.find(ticket);
  if (found != transfers_.end()) return &found->second;
  return Error(ErrorCode::kInvalidArgument, fmt::format("no transfer {}", ticket));
}

// Repeats the error of an earlier call: a failed transfer must not be advanced again.
Result<bool> NcclTransport::Poll(Transfer& transfer) {
  if (transfer.error) return *transfer.error;
  Result<bool> done = Advance(transfer);
  if (!done.has_value()) transfer.error = done.error();
  return done;
}

Result<bool> NcclTransport::Advance(Transfer& transfer) {
  if (transfer.link != nullptr && transfer.receives) {
    Link& link = *transfer.link;
    if (!link.error) {
      const Status taken = TakeHeaders(link);
      if (!taken.has_value()) link.error = taken.error();
    }
    // Receives that were given to the stream before the error may still end well.
    if (link.error && !transfer.issued) return *link.error;
  } else if (!transfer.arrived) {
    FOREBAY_ASSIGN(transfer.arrived, control_->Test(transfer.control));
  }
  if (transfer.link == nullptr) return transfer.arrived;
  if (!transfer.arrived || !transfer.issued) return false;
  // NCCL reports failures of the link here, not at the call.
  ncclResult_t failure = ncclSuccess;
  FOREBAY_TRY(Checked(ncclCommGetAsyncError(transfer.link->comm, &failure),
                      "ncclCommGetAsyncError"));
  FOREBAY_TRY(Checked(failure, "NCCL"));
  const cudaError_t moved = cudaEventQuery(transfer.moved);
  if (moved == cudaErrorNotReady) return false;
  FOREBAY_TRY(Checked(moved, "cudaEventQuery"));
  return true;
}

Result<bool> NcclTransport::Test(Ticket ticket) {
  FOREBAY_ASSIGN(Transfer* const transfer, Find(ticket));
  FOREBAY_ASSIGN(const bool done, Poll(*transfer));
  if (!done) return false;
  // The ticket is used up; a transfer that failed stays, to repeat its error.
  if (transfer->moved != nullptr) cudaEventDestroy(transfer->moved);
  transfers_.erase(ticket);
  return true;
}

Status NcclTransport::AwaitAny(std::span<const Ticket> tickets, std::uint64_t timeout_ns) {
  FOREBAY_CHECK(!tickets.empty());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
  while (true) {
    for (const Ticket ticket : tickets) {
      FOREBAY_ASSIGN(Transfer* const transfer, Find(ticket));
      const Result<bool> done = Poll(*transfer);
      // Its error is Test's to return.
      if (!done.has_value() || *done) return {};
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      FOREBAY_ASSIGN(const Transfer* const first, Find(tickets.front()));
      return Overdue(rank(), first->peer, first->tag, timeout_ns);
    }
    // Other transfers than `tickets` make progress on the GPU by themselves, so that only these
    // are polled. The core may be shared with another rank.
    sched_yield();
  }
}

}  // namespace

Result<std::unique_ptr<Transport>> MakeNcclTransport(std::unique_ptr<Transport> control,
                                                     int device,
                                                     std::span<const NcclLink> links) {
  auto transport = std::make_unique<NcclTransport>(std::move(control));
  FOREBAY_TRY(transport->Open(device, links));
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace forebay::train
