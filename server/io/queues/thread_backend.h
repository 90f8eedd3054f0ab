// ThreadBackend: a back end over a pool of threads that call pread and pwrite, for machines on
// which io_uring is forbidden.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/io/posix/path_resolver.h"

namespace forebay::io {

class ThreadPool;

struct ThreadBackendOptions {
  std::size_t threads = 8;                      // 1 to kIoThreadsMax
  std::optional<ResolveMethod> resolve_method;  // unset: detected
};

// One pool serves every queue in order of arrival. The depths of the queues bound the operations
// that wait in it. Thread-safe. Must outlive its queues; destruction joins the threads.
class ThreadBackend final : public IoBackend {
 public:
  // kInvalidArgument for a thread count out of range, kResourceExhausted if the system refuses
  // to start more threads.
  static Result<std::unique_ptr<ThreadBackend>> Create(const ThreadBackendOptions& options = {});
  ~ThreadBackend() override;
  ThreadBackend(const ThreadBackend&) = delete;
  ThreadBackend& operator=(const ThreadBackend&) = delete;

  std::string_view name() const override { return "threads"; }
  Result<std::unique_ptr<Directory>> OpenDirectory(std::string_view path) override;
  Result<std::unique_ptr<IoQueue>> CreateQueue(const QueueOptions& options) override;

 private:
  ThreadBackend(const ThreadBackendOptions& options, std::unique_ptr<ThreadPool> pool);

  const ThreadBackendOptions options_;
  const std::unique_ptr<ThreadPool> pool_;
};

}  // namespace forebay::io
