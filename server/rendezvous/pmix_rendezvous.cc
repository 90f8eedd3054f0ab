// The PMIx calls. Only this file knows libpmix. The fence is started without blocking and waited
// for here, because launchers may ignore the attribute PMIX_TIMEOUT.
#include "server/rendezvous/pmix_rendezvous.h"

#include <pmix.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
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
  Mutex mutex;
  CondVar ended;
  bool has_ended FOREBAY_GUARDED_BY(mutex) = false;
  pmix_status_t status FOREBAY_GUARDED_BY(mutex) = PMIX_SUCCESS;
};

void FenceEnded(pmix_status_t status, void* state_of_fence) {
  auto& state = *static_cast<FenceState*>(state_of_fence);
  const MutexLock lock(state.mutex);
  state.has_ended = true;
  state.status = status;
  state.ended.NotifyAll();
}

}  // namespace

// The fence's arguments lie here, because PMIx uses them until the fence ends, which may be after a
// deadline. PMIx_Finalize, in the destructor, ends it.
struct PmixRendezvous::Session {
  explicit Session(const io::Clock& used_clock) : clock(used_clock) {}

  const io::Clock& clock;
  pmix_proc_t self = {};
  PmixTask task;
  pmix_proc_t everybody = {};
  pmix_info_t collect = {};
  FenceState fence;
};

PmixRendezvous::PmixRendezvous(std::unique_ptr<Session> session) : session_(std::move(session)) {}

PmixRendezvous::~PmixRendezvous() { PMIx_Finalize(nullptr, 0); }

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
  // The callback comes on a thread of PMIx, perhaps before this call returns.
  status = PMIx_Fence_nb(&session_->everybody, 1, &session_->collect, 1, FenceEnded, &fence);
  if (status == PMIX_SUCCESS) {
    const MutexLock lock(fence.mutex);
    while (!fence.has_ended) {
      const std::int64_t left_ns = deadline_ns - session_->clock.NowNs();
      if (left_ns <= 0) {
        return Error(ErrorCode::kDeadlineExceeded,
                     fmt::format("PMIx: not all {} daemons of the job have arrived in time (PMIx "
                                 "does not say which are missing)",
                                 node_count));
      }
      fence.ended.WaitFor(fence.mutex, std::chrono::nanoseconds(left_ns));
    }
    status = fence.status;
  } else if (status == PMIX_OPERATION_SUCCEEDED) {
    status = PMIX_SUCCESS;  // it has ended already, and calls nothing back
  }
  if (status != PMIX_SUCCESS) return PmixError("waiting for the other daemons", status);

  std::vector<NodeEntry> nodes;
  for (std::uint32_t rank = 0; rank < node_count; ++rank) {
    FOREBAY_ASSIGN(NodeEntry entry, EntryOf(TaskOf(session_->self, rank)));
    nodes.push_back(std::move(entry));
  }
  // The order of tasks need not be that of nodes.
  std::ranges::sort(nodes, {}, &NodeEntry::rank);
  FOREBAY_TRY(CheckNodeList(nodes, node_count));
  return nodes;
}

}  // namespace forebay::rendezvous
