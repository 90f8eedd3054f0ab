// AdminLink: the calls of the daemon's admin service, for the commands that make them.
//
// The generated code of gRPC is used in admin_link.cc alone, because it takes seconds to compile in
// every source that includes it. Where a command shows many members of an answer, the answer is the
// protobuf message; elsewhere it is a plain struct.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/daemon/daemon_address.h"
#include "proto/contract/result.h"

namespace forebay::v1 {
class NodesReply;
class StageProgress;
class StatusReply;
}  // namespace forebay::v1

namespace forebay::cli {

struct StageCall {
  std::vector<std::string> datasets;  // none: all
  bool wait = true;                   // until they are staged
  bool rebuild = false;               // ignore saved catalogs and checksums
};

struct VerifyEvent {
  bool done = false;
  std::uint64_t extents_total = 0, extents_done = 0, bytes_done = 0, extents_bad = 0;
  std::vector<std::string> errors;  // found since the event before
};

struct EvictCall {
  std::string dataset;
  std::string tier;  // empty: both
};
struct Evicted {
  std::uint64_t extents = 0, bytes = 0;
};

struct DrainCall {
  bool after_all = false;  // only when every node of the job was asked for the same
  std::string node = {};   // this node leaves the job; empty: the daemon that is asked ends
  std::uint32_t hand_over_s = 300;  // with `node`: how long it waits for the others at most
};

struct ResolveCall {
  std::string dataset, selection;
  std::uint64_t first_index = 0;
  std::uint32_t count = 0;
};

// A connection to the daemon. Movable; not thread-safe. Every call blocks until the daemon has
// answered, at most for the deadline of its kind; errors are those that the daemon reports, and
// kUnavailable or kDeadlineExceeded where it does not answer.
class AdminLink {
 public:
  // Connects to DaemonAddress within context.connect_timeout_ms. Errors: those of
  // DaemonConnection::Open.
  static Result<AdminLink> Connect(const CommandContext& context);
  AdminLink(AdminLink&&) noexcept;
  AdminLink& operator=(AdminLink&&) noexcept;
  ~AdminLink();

  Status AskStatus(v1::StatusReply& reply) const;
  Status AskNodes(v1::NodesReply& reply) const;
  // Calls `report` for each message of the daemon.
  Status Stage(const StageCall& call,
               const std::function<void(const v1::StageProgress&)>& report) const;
  Status Verify(const std::vector<std::string>& datasets,
                const std::function<void(const VerifyEvent&)>& report) const;
  Result<Evicted> Evict(const EvictCall& call) const;
  Status Drain(const DrainCall& call) const;
  // The ids of samples first_index to first_index + count - 1 of a selection; fewer at its end.
  Result<std::vector<std::uint64_t>> Resolve(const ResolveCall& call) const;

 private:
  struct Channel;
  explicit AdminLink(std::unique_ptr<Channel> channel);

  std::unique_ptr<Channel> channel_;
};

}  // namespace forebay::cli
