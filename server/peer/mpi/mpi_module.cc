// The payload module for MPI (server/peer/payload_module.h). One thread makes all calls of MPI, so
// an MPI with MPI_THREAD_FUNNELED is enough. Others hand it their sends, receives and cancels in a
// list. While nothing is under way it sleeps on a condition variable; otherwise it asks MPI what
// has ended, again and again, with sleeps that grow while nothing has: MPI cannot wake a thread.
//
// MPI counts bytes in an int. A message of one piece of up to 1 GiB is sent as bytes; any other is
// a datatype of blocks of at most that, with displacements of 64 bits.
//
// A cancelled receive may leave a message without a receiver: its sender did not know yet. Such a
// message would keep its sender waiting, so it is received and thrown away. For a minute after a
// cancel the thread wakes up to look for such messages. Later it looks whenever it is awake.
#include <mpi.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/contract/thread_annotations.h"
#include "server/peer/payload_module.h"

namespace {

using forebay::CondVar;
using forebay::Mutex;
using forebay::MutexLock;
using Clock = std::chrono::steady_clock;

// Tests build the module with smaller values of these two.
#ifndef FOREBAY_MPI_BLOCK_BYTES
#define FOREBAY_MPI_BLOCK_BYTES (std::uint64_t{1} << 30)
#endif
#ifndef FOREBAY_MPI_LATE_MS
#define FOREBAY_MPI_LATE_MS 60'000
#endif

constexpr std::uint64_t kBlockBytesMax = FOREBAY_MPI_BLOCK_BYTES;
constexpr std::size_t kNameBytes = 256;
// The thread first gives its core away so many times, because more often comes within microseconds.
constexpr int kYields = 8;
constexpr std::chrono::microseconds kSleepMin(20);
constexpr std::chrono::microseconds kSleepMax(500);
// How long after a cancel the thread wakes up to look for messages without a receiver, and how
// often. A node begins to send only before the deadline of the request, which is half of this time.
constexpr std::chrono::milliseconds kLateTime(FOREBAY_MPI_LATE_MS);
constexpr std::chrono::seconds kLateInterval(1);
// After that time it looks only so often: a node that was stopped meanwhile may still send.
constexpr std::chrono::seconds kVeryLateInterval(60);
// The name of the thread, for tools that show threads.
constexpr const char* kThreadName = "forebay-mpi";

std::string ErrorText(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return text.data();
}

// A request of another thread to the thread of MPI.
struct Command {
  enum class Kind : std::uint8_t { kReceive, kSend, kCancel } kind = Kind::kReceive;
  int node = 0;
  int tag = 0;
  std::vector<ForebayPiece> pieces = {};
  std::vector<std::uint64_t> ends = {};
  ForebayEndedFunction ended = nullptr;
  void* context = nullptr;
};

// One message that MPI has, beside its MPI_Request.
struct Message {
  int tag = 0;
  bool is_receive = false;
  std::uint64_t bytes = 0;
  std::uint64_t index = 0;  // in its payload
  ForebayEndedFunction ended = nullptr;
  void* context = nullptr;
  std::unique_ptr<std::byte[]> thrown_away = {};  // memory of a message without a receiver
};

class MpiModule {
 public:
  std::int32_t Start(const ForebayNode& self, std::string& error);
  std::uint32_t Receive(std::uint32_t node, const ForebayPayload& payload,
                        ForebayEndedFunction ended, void* context);
  void Send(std::uint32_t node, std::uint32_t tag, const ForebayPayload& payload,
            ForebayEndedFunction ended, void* context);
  void Cancel(std::uint32_t tag);
  std::uint32_t tag_max() const { return tag_max_; }
  std::int32_t Leave(std::uint64_t wait_ms);

 private:
  void Run(const ForebayNode& self, std::promise<std::string>& started);
  std::string Open(const ForebayNode& self);
  std::string CompareRanks(const ForebayNode& self, int rank, int size);
  static Command MakeCommand(Command::Kind kind, std::uint32_t node, const ForebayPayload& payload,
                             ForebayEndedFunction ended, void* context);
  void Add(Command command);
  void Serve();
  bool AwaitWork(std::deque<Command>& commands);
  void Execute(const Command& command);
  void Post(const Command& command, std::uint64_t index, std::uint64_t begin);
  void Keep(MPI_Request request, Message message);
  bool EndSome();
  void End(Message& message, MPI_Status& status, int code);
  bool ThrowAwayLate();
  bool EndTogether();

  std::thread thread_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Command> commands_ FOREBAY_GUARDED_BY(mutex_);
  std::uint32_t next_tag_ FOREBAY_GUARDED_BY(mutex_) = 1;
  bool is_leaving_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::uint64_t leave_wait_ms_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::atomic<std::uint32_t> tag_max_ = 0;
  bool has_left_ = false;  // written by the thread, read after its end

  // Only the thread of MPI uses these.
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;  // by request
  std::vector<int> indexes_;       // for MPI_Testsome, as the next one
  std::vector<MPI_Status> statuses_;
  int idle_rounds_ = 0;
  bool has_cancelled_ = false;    // so there may be messages without a receiver
  Clock::time_point late_until_;  // until then some may still come
};

std::int32_t MpiModule::Start(const ForebayNode& self, std::string& error) {
  std::promise<std::string> started;
  std::future<std::string> outcome = started.get_future();
  // It makes the first call of MPI, too, because that thread counts as the main one.
  thread_ = std::thread([this, &self, &started] { Run(self, started); });
  error = outcome.get();
  if (error.empty()) return 0;
  thread_.join();
  return 1;
}

void MpiModule::Run(const ForebayNode& self, std::promise<std::string>& started) {
  prctl(PR_SET_NAME, kThreadName);
  // Otherwise the kernel adds 50 us to each sleep.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  int provided = 0;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  if (code != MPI_SUCCESS) return started.set_value("MPI_Init_thread: " + ErrorText(code));
  std::string error;
  if (provided < MPI_THREAD_FUNNELED) {
    error = "this MPI allows one thread a process (MPI_THREAD_SINGLE): it cannot be used";
  } else {
    error = Open(self);
  }
  // All ranks have found the same error, so that all end MPI.
  if (!error.empty()) MPI_Finalize();
  const bool is_good = error.empty();
  started.set_value(std::move(error));
  if (is_good) Serve();
}

std::string MpiModule::Open(const ForebayNode& self) {
  // By default MPI ends the process at an error.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  // A communicator of its own, so that tags of whoever else uses MPI here are not seen.
  int code = MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
  if (code != MPI_SUCCESS) return "MPI_Comm_dup: " + ErrorText(code);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(comm_, &rank);
  MPI_Comm_size(comm_, &size);
  void* value = nullptr;
  int is_there = 0;
  MPI_Comm_get_attr(comm_, MPI_TAG_UB, &value, &is_there);
  // The MPI standard promises at least this many tags.
  tag_max_ = is_there != 0 ? static_cast<std::uint32_t>(*static_cast<int*>(value)) : 32767U;
  return CompareRanks(self, rank, size);
}

// Every rank says which node it is, so all of them find the same difference.
std::string MpiModule::CompareRanks(const ForebayNode& self, int rank, int size) {
  if (static_cast<std::uint32_t>(size) != self.node_count) {
    return "MPI has " + std::to_string(size) + " ranks, and the job has " +
           std::to_string(self.node_count) +
           " nodes: start all daemons, and nothing else, by one mpirun (or srun with an MPI), one "
           "on each node";
  }
  // The struct has a fixed size, so that one call gathers the names, too. All nodes run the same
  // build.
  struct Said {
    std::uint32_t node = 0;
    std::array<char, kNameBytes> name = {};
  };
  Said own{.node = self.rank};
  std::strncpy(own.name.data(), self.name, kNameBytes - 1);
  std::vector<Said> all(static_cast<std::size_t>(size));
  const int code = MPI_Allgather(&own, sizeof(Said), MPI_BYTE, all.data(), sizeof(Said), MPI_BYTE,
                                 comm_);
  if (code != MPI_SUCCESS) return "MPI_Allgather: " + ErrorText(code);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].node == i) continue;
    return "rank " + std::to_string(i) + " of MPI is " + all[i].name.data() +
           ", which is node " + std::to_string(all[i].node) +
           " of the job: number the nodes as MPI does (without --node-rank, or with the hosts of "
           "nodes.rendezvous in the order of mpirun's); this is rank " + std::to_string(rank);
  }
  return {};
}

Command MpiModule::MakeCommand(Command::Kind kind, std::uint32_t node,
                               const ForebayPayload& payload, ForebayEndedFunction ended,
                               void* context) {
  const std::uint64_t pieces = payload.messages == 0 ? 0 : payload.ends[payload.messages - 1];
  return {.kind = kind,
          .node = static_cast<int>(node),
          .pieces = {payload.pieces, payload.pieces + pieces},
          .ends = {payload.ends, payload.ends + payload.messages},
          .ended = ended,
          .context = context};
}

void MpiModule::Add(Command command) {
  const MutexLock lock(mutex_);
  commands_.push_back(std::move(command));
  changed_.NotifyOne();
}

std::uint32_t MpiModule::Receive(std::uint32_t node, const ForebayPayload& payload,
                                 ForebayEndedFunction ended, void* context) {
  Command command = MakeCommand(Command::Kind::kReceive, node, payload, ended, context);
  const MutexLock lock(mutex_);
  // The mutex is still held when the command is added, so tags rise in the order of the list. A tag
  // comes again only after all others.
  const std::uint32_t tag = next_tag_;
  next_tag_ = next_tag_ == tag_max_ ? 1 : next_tag_ + 1;
  command.tag = static_cast<int>(tag);
  commands_.push_back(std::move(command));
  changed_.NotifyOne();
  return tag;
}

void MpiModule::Send(std::uint32_t node, std::uint32_t tag, const ForebayPayload& payload,
                     ForebayEndedFunction ended, void* context) {
  Command command = MakeCommand(Command::Kind::kSend, node, payload, ended, context);
  command.tag = static_cast<int>(tag);
  Add(std::move(command));
}

void MpiModule::Cancel(std::uint32_t tag) {
  Add({.kind = Command::Kind::kCancel, .tag = static_cast<int>(tag)});
}

std::int32_t MpiModule::Leave(std::uint64_t wait_ms) {
  {
    const MutexLock lock(mutex_);
    is_leaving_ = true;
    leave_wait_ms_ = wait_ms;
    changed_.NotifyOne();
  }
  thread_.join();
  return has_left_ ? 0 : 1;
}

void MpiModule::Serve() {
  std::deque<Command> commands;
  while (AwaitWork(commands)) {
    for (const Command& command : commands) Execute(command);
    // Whatever happened, more may follow at once, so the next look comes without a sleep.
    const bool has_commands = !commands.empty();
    commands.clear();
    const bool has_ended = EndSome();
    const bool was_late = has_cancelled_ && ThrowAwayLate();
    idle_rounds_ = has_commands || has_ended || was_late ? 0 : idle_rounds_ + 1;
  }
  has_left_ = EndTogether();
}

// Takes the commands. Waits for some if nothing is under way, and otherwise for a moment if nothing
// has happened in the last rounds. False: the daemon leaves.
bool MpiModule::AwaitWork(std::deque<Command>& commands) {
  if (!requests_.empty() && idle_rounds_ > 0 && idle_rounds_ <= kYields) sched_yield();
  const MutexLock lock(mutex_);
  const auto has_work = [this]() FOREBAY_REQUIRES(mutex_) {
    return !commands_.empty() || is_leaving_;
  };
  if (requests_.empty() && !has_cancelled_) {
    while (!has_work()) changed_.Wait(mutex_);
  } else if (requests_.empty()) {
    const bool is_late = Clock::now() >= late_until_;
    changed_.WaitFor(mutex_, is_late ? kVeryLateInterval : kLateInterval, has_work);
  } else if (idle_rounds_ > kYields) {
    const int doublings = std::min(idle_rounds_ - kYields, 10);
    changed_.WaitFor(mutex_, std::min(kSleepMax, kSleepMin * (1 << doublings)), has_work);
  }
  // All commands are taken at once, so that the mutex is not held while MPI works.
  commands.swap(commands_);
  return !is_leaving_ || !commands.empty() || !requests_.empty();
}

void MpiModule::Execute(const Command& command) {
  if (command.kind == Command::Kind::kCancel) {
    has_cancelled_ = true;
    late_until_ = Clock::now() + kLateTime;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const Message& message = messages_[i];
      const bool is_meant = message.is_receive && message.tag == command.tag;
      // It then ends in MPI_Testsome; one that has begun to arrive still arrives.
      if (is_meant && message.thrown_away == nullptr) MPI_Cancel(&requests_[i]);
    }
    return;
  }
  std::uint64_t begin = 0;
  for (std::uint64_t i = 0; i < command.ends.size(); ++i) {
    Post(command, i, begin);
    begin = command.ends[i];
  }
}

// Hands a message to MPI: the pieces from `begin` on.
void MpiModule::Post(const Command& command, std::uint64_t index, std::uint64_t begin) {
  const bool is_receive = command.kind == Command::Kind::kReceive;
  std::vector<int> lengths;
  std::vector<MPI_Aint> addresses;
  std::uint64_t bytes = 0;
  // A piece that is longer than an int counts becomes several blocks.
  for (std::uint64_t i = begin; i < command.ends[index]; ++i) {
    const ForebayPiece& piece = command.pieces[i];
    auto* const data = static_cast<std::byte*>(piece.data);
    for (std::uint64_t at = 0; at < piece.bytes; at += kBlockBytesMax) {
      MPI_Aint address = 0;
      MPI_Get_address(data + at, &address);
      addresses.push_back(address);
      lengths.push_back(static_cast<int>(std::min(kBlockBytesMax, piece.bytes - at)));
    }
    bytes += piece.bytes;
  }
  void* buffer = MPI_BOTTOM;
  int count = 1;
  MPI_Datatype type = MPI_BYTE;
  // Bytes at one place need no datatype, and are then not copied by MPI.
  const bool is_plain = lengths.size() <= 1;
  if (is_plain) {
    buffer = lengths.empty() ? nullptr : command.pieces[begin].data;
    count = lengths.empty() ? 0 : lengths.front();
  } else {
    // The addresses are absolute, so that the pieces may lie anywhere.
    MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), addresses.data(),
                             MPI_BYTE, &type);
    MPI_Type_commit(&type);
  }
  MPI_Request request = MPI_REQUEST_NULL;
  const int code =
      is_receive ? MPI_Irecv(buffer, count, type, command.node, command.tag, comm_, &request)
                 : MPI_Isend(buffer, count, type, command.node, command.tag, comm_, &request);
  // MPI keeps it until the message has ended.
  if (!is_plain) MPI_Type_free(&type);
  // MPI has not taken the message, so this is its end.
  if (code != MPI_SUCCESS) {
    return command.ended(command.context, index, kForebayFailed, ErrorText(code).c_str());
  }
  Keep(request, {.tag = command.tag,
                 .is_receive = is_receive,
                 .bytes = bytes,
                 .index = index,
                 .ended = command.ended,
                 .context = command.context});
}

void MpiModule::Keep(MPI_Request request, Message message) {
  requests_.push_back(request);
  messages_.push_back(std::move(message));
}

bool MpiModule::EndSome() {
  if (requests_.empty()) return false;
  indexes_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                indexes_.data(), statuses_.data());
  if (count == MPI_UNDEFINED || count <= 0) return false;
  // The loop goes from the back, so that the last entry can take the place of one that goes.
  std::vector<int> order(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) order[static_cast<std::size_t>(i)] = i;
  std::sort(order.begin(), order.end(), [this](int a, int b) {
    return indexes_[static_cast<std::size_t>(a)] > indexes_[static_cast<std::size_t>(b)];
  });
  for (const int i : order) {
    const auto at = static_cast<std::size_t>(indexes_[static_cast<std::size_t>(i)]);
    Message message = std::move(messages_[at]);
    messages_[at] = std::move(messages_.back());
    messages_.pop_back();
    requests_[at] = requests_.back();
    requests_.pop_back();
    MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    // MPI sets the error of a status only in this case.
    End(message, status, code == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS);
  }
  return true;
}

void MpiModule::End(Message& message, MPI_Status& status, int code) {
  if (message.ended == nullptr) return;  // it was thrown away
  const auto end = [&message](ForebayOutcome outcome, const std::string& error) {
    message.ended(message.context, message.index, outcome, error.c_str());
  };
  if (code != MPI_SUCCESS) {
    // A message that is longer than its receive is the sender's fault, and not the network's.
    int error_class = 0;
    MPI_Error_class(code, &error_class);
    return end(error_class == MPI_ERR_TRUNCATE ? kForebayWrongLength : kForebayFailed,
               ErrorText(code));
  }
  if (message.is_receive) {
    int is_cancelled = 0;
    MPI_Test_cancelled(&status, &is_cancelled);
    if (is_cancelled != 0) return end(kForebayCancelled, "the receive was cancelled");
    // MPI accepts a shorter message. _x, because MPI_Get_count counts in an int.
    MPI_Count got = 0;
    MPI_Get_elements_x(&status, MPI_BYTE, &got);
    if (static_cast<std::uint64_t>(got) != message.bytes) {
      return end(kForebayWrongLength, "a message of " + std::to_string(message.bytes) +
                                          " bytes has come with " + std::to_string(got));
    }
  }
  message.ended(message.context, message.index, kForebayEnded, nullptr);
}

// Receives messages whose receive was cancelled before they came. Whoever is told a tag was told
// after its receive had been put in the list, so with an empty list nobody can be about to post a
// receive for a message that is there. The mutex keeps the list empty meanwhile.
bool MpiModule::ThrowAwayLate() {
  bool was_late = false;
  const MutexLock lock(mutex_);
  while (commands_.empty()) {
    int is_there = 0;
    MPI_Message late = MPI_MESSAGE_NULL;
    MPI_Status status;
    // Takes the message out of MPI's queue, so that no receive can match it any more.
    if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &is_there, &late, &status) !=
            MPI_SUCCESS ||
        is_there == 0) {
      break;
    }
    MPI_Count bytes = 0;
    MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
    Message message{.is_receive = true, .bytes = static_cast<std::uint64_t>(bytes)};
    message.thrown_away = std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes));
    // The message may have any length, so it is received in blocks, as Post does it.
    std::vector<int> lengths;
    std::vector<MPI_Aint> offsets;
    for (MPI_Count at = 0; at < bytes; at += static_cast<MPI_Count>(kBlockBytesMax)) {
      offsets.push_back(static_cast<MPI_Aint>(at));
      lengths.push_back(static_cast<int>(
          std::min<std::uint64_t>(kBlockBytesMax, static_cast<std::uint64_t>(bytes - at))));
    }
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), offsets.data(),
                             MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Imrecv(message.thrown_away.get(), 1, type, &late, &request) == MPI_SUCCESS) {
      Keep(request, std::move(message));
      was_late = true;
    }
    MPI_Type_free(&type);
  }
  return was_late;
}

// A node that leaves must go on receiving until no other one sends, and a node leaves when all that
// it has sent was received. So all wait for each other here.
bool MpiModule::EndTogether() {
  Clock::time_point end = Clock::now();
  {
    const MutexLock lock(mutex_);
    end += std::chrono::milliseconds(leave_wait_ms_);
  }
  // MPI_Barrier would not do, because this thread would receive nothing inside it.
  MPI_Request all = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(comm_, &all) != MPI_SUCCESS) return false;
  int are_there = 0;
  for (;;) {
    EndSome();
    ThrowAwayLate();
    if (MPI_Test(&all, &are_there, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (are_there != 0) break;
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(kSleepMax);
  }
  MPI_Comm_free(&comm_);
  return MPI_Finalize() == MPI_SUCCESS;
}

// The module is never destroyed, because MPI may still use it when the process ends.
MpiModule& TheModule() {
  static MpiModule* const module = std::make_unique<MpiModule>().release();
  return *module;
}

void Copy(const std::string& text, char* to, std::uint64_t bytes) {
  std::snprintf(to, bytes, "%s", text.c_str());
}

constexpr ForebayPayloadModule kModule = {
    .version = kForebayPayloadVersion,
    .start =
        [](const ForebayNode* self, char* error, std::uint64_t error_bytes) {
          std::string text;
          const std::int32_t code = TheModule().Start(*self, text);
          Copy(text, error, error_bytes);
          return code;
        },
    .receive =
        [](std::uint32_t node, const ForebayPayload* payload, ForebayEndedFunction ended,
           void* context) { return TheModule().Receive(node, *payload, ended, context); },
    .cancel = [](std::uint32_t tag) { TheModule().Cancel(tag); },
    .send =
        [](std::uint32_t node, std::uint32_t tag, const ForebayPayload* payload,
           ForebayEndedFunction ended,
           void* context) { TheModule().Send(node, tag, *payload, ended, context); },
    .tag_max = []() { return TheModule().tag_max(); },
    .leave = [](std::uint64_t wait_ms) { return TheModule().Leave(wait_ms); },
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const ForebayPayloadModule*
forebay_payload_module() {
  return &kModule;
}
