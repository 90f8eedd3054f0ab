// A message is a header and then its bytes, in pieces that an int can count. Each lane is an MPI
// communicator of its own, because MPI keeps the order of messages per communicator and tag, and
// lanes must not delay each other. All waiting is polling: MPI makes progress only inside its
// calls, and a blocking call would stop the other transfers that the plan has under way.
#include "trainer/comm/transport/mpi_transport.h"

#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "proto/contract/check.h"

namespace forebay::train {
namespace {

// MPI counts bytes in an int: a message goes out in pieces of at most this.
constexpr std::size_t kPieceBytesMax = std::size_t{1} << 30;
constexpr int kHeaderTag = 0;
constexpr int kBytesTag = 1;
// Polls before the core is given to another process; on shared cores waiting costs the peer.
constexpr int kPollsBeforeYield = 64;

// An error of MPI in the words of the MPI library, with the call that failed.
Status Checked(int code, const char* call) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Error(ErrorCode::kUnavailable, fmt::format("{}: {}", call, text));
}

// What goes ahead of a message's bytes, within one job on one kind of machine.
struct Header {
  MessageTag tag;
  std::uint64_t bytes = 0;
};
static_assert(std::is_trivially_copyable_v<Header>);

struct Transfer {
  std::uint32_t peer = 0;
  bool receives = false;
  Header header;    // sent, or arrived
  Header expected;  // of a receive
  std::vector<MPI_Request> requests = {};
  bool done = false;
};

class MpiTransport final : public Transport {
 public:
  // Communicators must be freed before MPI ends.
  ~MpiTransport() override {
    for (MPI_Comm& lane : lanes_) {
      if (lane != MPI_COMM_NULL) MPI_Comm_free(&lane);
    }
    MPI_Finalize();
  }
  MpiTransport() { lanes_.fill(MPI_COMM_NULL); }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  Status Open();

  std::uint32_t rank() const override { return rank_; }
  std::uint32_t size() const override { return size_; }
  std::uint32_t local_size() const override { return local_size_; }
  std::uint32_t local_rank() const override { return local_rank_; }

  Result<Ticket> BeginSend(std::uint32_t peer, Lane lane, const MessageTag& tag,
                           std::span<const std::byte> bytes) override;
  Result<Ticket> BeginReceive(std::uint32_t peer, Lane lane, const MessageTag& tag,
                              std::span<std::byte> bytes) override;
  Result<bool> Test(Ticket ticket) override;
  Status AwaitAny(std::span<const Ticket> tickets, std::uint64_t timeout_ns) override;
  void Abort(int exit_code) override { MPI_Abort(MPI_COMM_WORLD, exit_code); }

 private:
  Result<Transfer*> Add(std::uint32_t peer, const MessageTag& tag, std::size_t bytes,
                        bool receives);
  Result<Transfer*> Find(Ticket ticket);
  static Status Poll(Transfer& transfer);

  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 1;
  std::uint32_t local_size_ = 1;
  std::uint32_t local_rank_ = 0;
  std::array<MPI_Comm, kLaneCount> lanes_ = {};
  Ticket next_ticket_ = 1;
  std::map<Ticket, Transfer> transfers_;  // nodes stay where they are: MPI writes into them
};

// Finds this rank's place in the job and on the node, and makes a communicator for each lane.
Status MpiTransport::Open() {
  int rank = 0;
  int size = 1;
  int local_size = 1;
  int local_rank = 0;
  // By default MPI ends the process at an error. We want to say first which message failed.
  FOREBAY_TRY(Checked(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
                      "MPI_Comm_set_errhandler"));
  FOREBAY_TRY(Checked(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank"));
  FOREBAY_TRY(Checked(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size"));
  // The ranks that share memory are those of this node.
  MPI_Comm node = MPI_COMM_NULL;
  FOREBAY_TRY(Checked(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                                          &node),
                      "MPI_Comm_split_type"));
  Status sized = Checked(MPI_Comm_size(node, &local_size), "MPI_Comm_size");
  if (sized.has_value()) sized = Checked(MPI_Comm_rank(node, &local_rank), "MPI_Comm_rank");
  MPI_Comm_free(&node);
  FOREBAY_TRY(sized);
  for (MPI_Comm& lane : lanes_) {
    // A duplicate has a matching space of its own.
    FOREBAY_TRY(Checked(MPI_Comm_dup(MPI_COMM_WORLD, &lane), "MPI_Comm_dup"));
  }
  rank_ = static_cast<std::uint32_t>(rank);
  size_ = static_cast<std::uint32_t>(size);
  local_size_ = static_cast<std::uint32_t>(local_size);
  local_rank_ = static_cast<std::uint32_t>(local_rank);
  return {};
}

Result<Transfer*> MpiTransport::Add(std::uint32_t peer, const MessageTag& tag, std::size_t bytes,
                                    bool receives) {
  if (peer >= size_ || peer == rank_) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("rank {} of {} exchanges messages with rank {}", rank_, size_, peer));
  }
  Transfer& transfer = transfers_[next_ticket_++];
  transfer.peer = peer;
  transfer.receives = receives;
  transfer.expected = {.tag = tag, .bytes = bytes};
  // What a sender announces and what a receiver expects are both computed from the plan. The
  // header that arrives is compared with the latter.
  if (!receives) transfer.header = transfer.expected;
  return &transfer;
}

// The header and all pieces are posted at once; MPI keeps their order.
Result<Ticket> MpiTransport::BeginSend(std::uint32_t peer, Lane lane, const MessageTag& tag,
                                       std::span<const std::byte> bytes) {
  FOREBAY_ASSIGN(Transfer* const transfer, Add(peer, tag, bytes.size(), false));
  MPI_Comm comm = lanes_[static_cast<std::size_t>(lane)];
  // One request per piece. The header is a request as well, so that BeginSend never waits.
  const auto post = [&](const void* data, std::size_t count, int mpi_tag) {
    transfer->requests.push_back(MPI_REQUEST_NULL);
    return Checked(MPI_Isend(data, static_cast<int>(count), MPI_BYTE, static_cast<int>(peer),
                             mpi_tag, comm, &transfer->requests.back()),
                   "MPI_Isend");
  };
  FOREBAY_TRY(post(&transfer->header, sizeof(Header), kHeaderTag));
  for (std::size_t at = 0; at < bytes.size(); at += kPieceBytesMax) {
    FOREBAY_TRY(post(bytes.data() + at, std::min(kPieceBytesMax, bytes.size() - at), kBytesTag));
  }
  return next_ticket_ - 1;
}

Result<Ticket> MpiTransport::BeginReceive(std::uint32_t peer, Lane lane, const MessageTag& tag,
                                          std::span<std::byte> bytes) {
  FOREBAY_ASSIGN(Transfer* const transfer, Add(peer, tag, bytes.size(), true));
  MPI_Comm comm = lanes_[static_cast<std::size_t>(lane)];
  // The request is stored before MPI is called: if the call fails, the null request in its place
  // counts as complete.
  const auto post = [&](void* data, std::size_t count, int mpi_tag) {
    transfer->requests.push_back(MPI_REQUEST_NULL);
    return Checked(MPI_Irecv(data, static_cast<int>(count), MPI_BYTE, static_cast<int>(peer),
                             mpi_tag, comm, &transfer->requests.back()),
                   "MPI_Irecv");
  };
  // Receives of the bytes are posted before the header has arrived, so that bytes land where they
  // belong. If the header turns out to be of another message, the job ends.
  FOREBAY_TRY(post(&transfer->header, sizeof(Header), kHeaderTag));
  for (std::size_t at = 0; at < bytes.size(); at += kPieceBytesMax) {
    FOREBAY_TRY(post(bytes.data() + at, std::min(kPieceBytesMax, bytes.size() - at), kBytesTag));
  }
  return next_ticket_ - 1;
}

Result<Transfer*> MpiTransport::Find(Ticket ticket) {
  const auto found = transfers_.find(ticket);
  if (found != transfers_.end()) return &found->second;
  return Error(ErrorCode::kInvalidArgument, fmt::format("no transfer {}", ticket));
}

// The header is looked at before the bytes are waited for: of a message of another size they may
// never come.
Status MpiTransport::Poll(Transfer& transfer) {
  if (transfer.done) return {};
  int arrived = 0;
  FOREBAY_TRY(Checked(MPI_Test(&transfer.requests.front(), &arrived, MPI_STATUS_IGNORE),
                      "MPI_Test"));
  if (arrived == 0) return {};
  const Header& header = transfer.header;
  const Header& expected = transfer.expected;
  if (header.tag != expected.tag || header.bytes != expected.bytes) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("rank {} sent {} bytes of {}; expected were {} bytes of {}",
                             transfer.peer, header.bytes, ToString(header.tag), expected.bytes,
                             ToString(expected.tag)));
  }
  // Only requests as a whole are asked for: single pieces are of no use to the caller.
  int all = 0;
  FOREBAY_TRY(Checked(MPI_Testall(static_cast<int>(transfer.requests.size()),
                                  transfer.requests.data(), &all, MPI_STATUSES_IGNORE),
                      "MPI_Testall"));
  transfer.done = all != 0;
  return {};
}

Result<bool> MpiTransport::Test(Ticket ticket) {
  FOREBAY_ASSIGN(Transfer* const transfer, Find(ticket));
  FOREBAY_TRY(Poll(*transfer));
  if (!transfer->done) return false;
  // The requests are complete, so MPI no longer writes into this node of the map.
  transfers_.erase(ticket);
  return true;
}

// Polls, and gives the core to other processes now and then: ranks may share cores.
Status MpiTransport::AwaitAny(std::span<const Ticket> tickets, std::uint64_t timeout_ns) {
  FOREBAY_CHECK(!tickets.empty());
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
  for (int polls = 1;; ++polls) {
    for (const Ticket ticket : tickets) {
      FOREBAY_ASSIGN(Transfer* const transfer, Find(ticket));
      // Its error is Test's to return.
      if (const Status polled = Poll(*transfer); !polled.has_value() || transfer->done) return {};
    }
    // The clock is read, and the core given away, only now and then: both are system calls or
    // nearly so.
    if (polls % kPollsBeforeYield != 0) continue;
    if (std::chrono::steady_clock::now() >= deadline) {
      FOREBAY_ASSIGN(const Transfer* const first, Find(tickets.front()));
      return Overdue(rank_, first->peer, first->expected.tag, timeout_ns);
    }
    sched_yield();
  }
}

}  // namespace

Result<std::unique_ptr<Transport>> MakeMpiTransport() {
  int initialised = 0;
  FOREBAY_TRY(Checked(MPI_Initialized(&initialised), "MPI_Initialized"));
  // A second MPI_Init is an error by the standard, and a library that has initialised MPI may have
  // asked for fewer threads.
  if (initialised != 0) {
    return Error(ErrorCode::kFailedPrecondition, "MPI was initialised before");
  }
  int provided = 0;
  // The client library has threads of its own; only this one calls MPI.
  FOREBAY_TRY(Checked(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided),
                      "MPI_Init_thread"));
  auto transport = std::make_unique<MpiTransport>();
  if (provided < MPI_THREAD_FUNNELED) {
    return Error(ErrorCode::kFailedPrecondition,
                 "this MPI allows one thread a process (MPI_THREAD_SINGLE), but the trainer and "
                 "its client have others beside the one that calls MPI: start it with an MPI that "
                 "was built with threads and gives MPI_THREAD_FUNNELED or more");
  }
  FOREBAY_TRY(transport->Open());
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace forebay::train
