// The PMIx calls. Only this file knows libpmix. The fence is started without blocking and waited
// for here, because launchers may ignore the attribute PMIX_TIMEOUT, and because the daemon may be
// told to stop meanwhile.
#include "server/rendezvous/pmix_rendezvous.h"

#include <pmix.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "proto/contract/unique_fd.h"
#include "server/io/log.h"
#include "server/rendezvous/node_file.h"

namespace forebay::rendezvous {
namespace {

// A launcher's own keys begin with "pmix.", so this one clashes with none.
constexpr char kKey[] = "forebay.node";

// kUnavailable, because most errors mean that the launcher or a task of it is gone.
Error PmixError(std::string_view what, pmix_status_t status) {
  return Error(ErrorCode::kUnavailable,
               fmt::format("PMIx: {}: {}", what, PMIx_Error_string(status)));
}

// A task of the same launch as `task`; PMIX_RANK_WILDCARD means all of them.
pmix_proc_t TaskOf(pmix_proc_t task, pmix_rank_t rank) {
  task.rank = rank;
  return task;
}

// A value that PMIx_Get allocated; freed with this.
class PmixValue {
 public:
  PmixValue() = default;
  PmixValue(const PmixValue&) = delete;
  PmixValue& operator=(const PmixValue&) = delete;
  ~PmixValue() {
    if (value_ != nullptr) PMIX_VALUE_RELEASE(value_);
  }
  pmix_value_t** receiver() { return &value_; }
  const pmix_value_t& get() const { return *value_; }

 private:
  pmix_value_t* value_ = nullptr;
};

Result<std::uint32_t> NumberOf(const pmix_proc_t& proc, const char* key) {
  PmixValue value;
  const pmix_status_t status = PMIx_Get(&proc, key, nullptr, 0, value.receiver());
  if (status != PMIX_SUCCESS) return PmixError(fmt::format("getting {}", key), status);
  // The type is the server's to choose, and a union is read by it.
  if (value.get().type != PMIX_UINT32) {
    return Error(ErrorCode::kInternal, fmt::format("PMIx: {} is not a number", key));
  }
  return value.get().data.uint32;
}

// One entry as another daemon has put it.
Result<NodeEntry> EntryOf(const pmix_proc_t& proc) {
  PmixValue value;
  const pmix_status_t status = PMIx_Get(&proc, kKey, nullptr, 0, value.receiver());
  const std::string who = fmt::format("the entry of task {}", proc.rank);
  if (status != PMIX_SUCCESS) return PmixError("getting " + who, status);
  if (value.get().type != PMIX_BYTE_OBJECT) {
    return Error(ErrorCode::kDataLoss, fmt::format("PMIx: {} is of another type", who));
  }
  const pmix_byte_object_t& object = value.get().data.bo;
  // The bytes come from another process, so they are decoded like those of a file.
  Result<NodeFile> file = Decode(std::as_bytes(std::span(object.bytes, object.size)));
  if (!file.has_value()) return file.error().WithContext(who);
  if (file->nodes.size() != 1) {
    return Error(ErrorCode::kDataLoss, fmt::format("PMIx: {} is not one entry", who));
  }
  return std::move(file->nodes.front());
}

// The end of a fence, which PMIx reports on a thread of its own.
struct FenceState {
  UniqueFd ended{eventfd(0, EFD_CLOEXEC)};          // readable once the fence has ended
  std::atomic<pmix_status_t> status = PMIX_SUCCESS;  // of the fence, written before that
};

void FenceEnded(pmix_status_t status, void* state_of_fence) {
  auto& state = *static_cast<FenceState*>(state_of_fence);
  state.status = status;
  const std::uint64_t one = 1;
  // An eventfd takes its first write always.
  static_cast<void>(!write(state.ended.get(), &one, sizeof(one)));
}

// The function that HearLosses was given, and what TaskFailed needs to find the node of a task.
struct Listener {
  pmix_proc_t self = {};
  std::vector<NodeRank> nodes;  // by rank of the task
  Mutex mutex;
  // Empty: nobody, or nobody any more.
  std::function<void(NodeRank, std::string_view)> hear FOREBAY_GUARDED_BY(mutex);
};

// How PRRTE says that a task has failed, in a job that goes on without it.
constexpr pmix_status_t kLosses[] = {PMIX_ERR_PROC_ABORTED_BY_SIG, PMIX_ERR_PROC_TERM_WO_SYNC,
                                     PMIX_ERR_EXIT_NONZERO_TERM};

void RegistrationEnded(pmix_status_t status, std::size_t, void*) {
  if (status == PMIX_SUCCESS) return;
  log::Warn("{}; only probes and failed requests tell this daemon that a node is lost",
            PmixError("registering for the events of the launcher", status).ToString());
}

void Tell(Listener& listener, const pmix_proc_t& failed, pmix_status_t status) {
  // A launcher may start other jobs, too, and may mean all tasks.
  const bool is_ours = std::strncmp(failed.nspace, listener.self.nspace, PMIX_MAX_NSLEN) == 0;
  const bool is_other_task =
      is_ours && failed.rank != listener.self.rank && failed.rank < listener.nodes.size();
  const MutexLock lock(listener.mutex);
  if (!is_other_task || !listener.hear) return;
  listener.hear(listener.nodes[failed.rank], PMIx_Error_string(status));
}

void TaskFailed(std::size_t, pmix_status_t status, const pmix_proc_t*, pmix_info_t facts[],
                std::size_t fact_count, pmix_info_t*, std::size_t,
                pmix_event_notification_cbfunc_fn_t done, void* state_of_event) {
  Listener* listener = nullptr;
  const pmix_proc_t* failed = nullptr;
  for (const pmix_info_t& fact : std::span(facts, fact_count)) {
    const std::string_view key(fact.key, strnlen(fact.key, PMIX_MAX_KEYLEN));
    if (key == PMIX_EVENT_AFFECTED_PROC && fact.value.type == PMIX_PROC) {
      failed = fact.value.data.proc;
    }
    // The last one is that of this process. A sender could have added another one.
    if (key == PMIX_EVENT_RETURN_OBJECT && fact.value.type == PMIX_POINTER) {
      listener = static_cast<Listener*>(fact.value.data.ptr);
    }
  }
  if (listener != nullptr && failed != nullptr) Tell(*listener, *failed, status);
  // PMIx goes on with the next handler.
  if (done != nullptr) done(PMIX_SUCCESS, nullptr, 0, nullptr, nullptr, state_of_event);
}

}  // namespace

// A session has everything that PMIx uses on its own thread: the listener, and the arguments of the
// fence, which are used until the fence ends. That may be after Exchange has given it up, so the
// destructor decides whether the session may be freed.
struct PmixRendezvous::Session {
  explicit Session(const io::Clock& used_clock) : clock(used_clock) {}

  const io::Clock& clock;
  pmix_proc_t self = {};
  PmixTask task;
  pmix_proc_t everybody = {};
  pmix_info_t collect = {};
  FenceState fence;
  bool is_fence_given_up = false;
  Listener listener;
  pmix_info_t listener_address = {};
};

PmixRendezvous::PmixRendezvous(std::unique_ptr<Session> session) : session_(std::move(session)) {}

PmixRendezvous::~PmixRendezvous() {
  // PMIx calls back on its progress thread alone, which PMIx_Finalize ends. But if somebody else in
  // the process has initialised PMIx, too, it only counts down: a fence that was given up may still
  // end, and tasks may still fail. Then the memory stays.
  bool is_used = session_->is_fence_given_up;
  {
    const MutexLock lock(session_->listener.mutex);
    is_used = is_used || session_->listener.hear != nullptr;
    session_->listener.hear = nullptr;
  }
  const pmix_status_t status = PMIx_Finalize(nullptr, 0);
  const bool may_call_back = status != PMIX_SUCCESS || PMIx_Initialized() != 0;
  if (is_used && may_call_back) static_cast<void>(session_.release());
}

PmixTask PmixRendezvous::task() const { return session_->task; }

Result<std::unique_ptr<PmixRendezvous>> PmixRendezvous::Connect(const io::Clock& clock) {
  auto session = std::make_unique<Session>(clock);
  const pmix_status_t status = PMIx_Init(&session->self, nullptr, 0);
  const Error absent(ErrorCode::kFailedPrecondition,
                     fmt::format("this process was not started by a launcher with PMIx ({}): start "
                                 "it with mpirun, prterun or srun --mpi=pmix, or set "
                                 "nodes.rendezvous to \"directory:PATH\"",
                                 PMIx_Error_string(status)));
  if (status != PMIX_SUCCESS) return absent;
  // From here on the destructor disconnects.
  std::unique_ptr<PmixRendezvous> rendezvous(new PmixRendezvous(std::move(session)));
  Session& made = *rendezvous->session_;
  made.everybody = TaskOf(made.self, PMIX_RANK_WILDCARD);
  // Without a server, newer versions of PMIx connect a process with itself, and know no size.
  const auto task_count = NumberOf(made.everybody, PMIX_JOB_SIZE);
  if (!task_count.has_value()) return absent;
  FOREBAY_ASSIGN(made.task.tasks_on_this_node, NumberOf(made.everybody, PMIX_LOCAL_SIZE));
  made.task.task_count = *task_count;
  made.task.rank = made.self.rank;
  return rendezvous;
}

Result<std::vector<NodeEntry>> PmixRendezvous::Exchange(const NodeEntry& own,
                                                        std::uint32_t node_count,
                                                        std::int64_t deadline_ns) {
  // Otherwise the fence would wait for tasks that never come.
  if (session_->task.task_count != node_count) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("the launcher started {} tasks, and the job has {} nodes: start one "
                             "daemon per node, or set nodes.rendezvous to \"directory:PATH\"",
                             session_->task.task_count, node_count));
  }
  std::vector<std::byte> bytes =
      Encode({.kind = NodeFileKind::kAnswer, .node_count = node_count, .nodes = {own}});
  // PMIx_Put copies the value, so it may lie on the stack.
  pmix_value_t value = {};
  value.type = PMIX_BYTE_OBJECT;
  value.data.bo = {.bytes = reinterpret_cast<char*>(bytes.data()), .size = bytes.size()};
  pmix_status_t status = PMIx_Put(PMIX_GLOBAL, kKey, &value);
  if (status == PMIX_SUCCESS) status = PMIx_Commit();
  if (status != PMIX_SUCCESS) return PmixError("publishing this node's entry", status);

  // With the data collected, each node gets all entries by the fence, and later asks none for its.
  std::memcpy(session_->collect.key, PMIX_COLLECT_DATA, sizeof(PMIX_COLLECT_DATA));
  session_->collect.value.type = PMIX_BOOL;
  session_->collect.value.data.flag = true;
  FenceState& fence = session_->fence;
  if (!fence.ended.valid()) {
    return Error(ErrorCode::kResourceExhausted, "PMIx: no eventfd for the wait");
  }
  // The callback comes on a thread of PMIx, perhaps before this call returns.
  status = PMIx_Fence_nb(&session_->everybody, 1, &session_->collect, 1, FenceEnded, &fence);
  if (status == PMIX_SUCCESS) {
    FOREBAY_TRY(AwaitFence(node_count, deadline_ns));
    status = fence.status;
  } else if (status == PMIX_OPERATION_SUCCEEDED) {
    status = PMIX_SUCCESS;  // it has ended already, and calls nothing back
  }
  if (status != PMIX_SUCCESS) return PmixError("waiting for the other daemons", status);

  std::vector<NodeEntry> nodes;
  for (std::uint32_t rank = 0; rank < node_count; ++rank) {
    FOREBAY_ASSIGN(NodeEntry entry, EntryOf(TaskOf(session_->self, rank)));
    session_->listener.nodes.push_back(entry.rank);
    nodes.push_back(std::move(entry));
  }
  // The order of tasks need not be that of nodes.
  std::ranges::sort(nodes, {}, &NodeEntry::rank);
  FOREBAY_TRY(CheckNodeList(nodes, node_count));
  return nodes;
}

// Waits until the fence has ended. After an error it has been given up.
Status PmixRendezvous::AwaitFence(std::uint32_t node_count, std::int64_t deadline_ns) {
  constexpr std::int64_t kNsPerMs = 1'000'000;
  constexpr std::int64_t kLongestMs = std::numeric_limits<int>::max();
  session_->is_fence_given_up = true;  // until it has ended
  for (;;) {
    const std::int64_t left_ns = deadline_ns - session_->clock.NowNs();
    if (left_ns <= 0) {
      return Error(ErrorCode::kDeadlineExceeded,
                   fmt::format("PMIx: not all {} daemons of the job have arrived in time (PMIx "
                               "does not say which are missing)",
                               node_count));
    }
    // poll ignores a negative descriptor, so without `stop_fd_` only the fence ends the wait.
    pollfd polled[] = {{stop_fd_, POLLIN, 0}, {session_->fence.ended.get(), POLLIN, 0}};
    const auto wait_ms = static_cast<int>(std::min(left_ns / kNsPerMs + 1, kLongestMs));
    // After an error, which is a signal, nothing is known about the descriptors.
    if (poll(polled, std::size(polled), wait_ms) <= 0) continue;
    if (polled[0].revents != 0) {
      return Error(ErrorCode::kCancelled, "the daemon was told to stop");
    }
    session_->is_fence_given_up = false;
    return {};
  }
}

void PmixRendezvous::HearLosses(std::function<void(NodeRank, std::string_view)> hear) {
  Listener& listener = session_->listener;
  listener.self = session_->self;
  {
    const MutexLock lock(listener.mutex);
    listener.hear = std::move(hear);
  }
  // PMIx copies the codes, and uses the address until the registration has ended.
  pmix_info_t& address = session_->listener_address;
  std::memcpy(address.key, PMIX_EVENT_RETURN_OBJECT, sizeof(PMIX_EVENT_RETURN_OBJECT));
  address.value.type = PMIX_POINTER;
  address.value.data.ptr = &listener;
  std::vector<pmix_status_t> losses(std::begin(kLosses), std::end(kLosses));
  const pmix_status_t status =
      PMIx_Register_event_handler(losses.data(), losses.size(), &address, 1, TaskFailed,
                                  RegistrationEnded, nullptr);
  if (status != PMIX_SUCCESS) RegistrationEnded(status, 0, nullptr);
}

}  // namespace forebay::rendezvous
