// DirectoryRendezvous: the daemons of a job find each other by files in a directory on the GFS. The
// daemon of rank 0, the leader, publishes a call; the others answer it with one file each; the
// leader collects the answers and publishes one list, which all read. README.md of this room says
// why files of an earlier launch of the same job are never taken for those of this one.
//
// Files, in DIRECTORY/JOB/:
//   list                            the leader's: call, then list (node_file.h)
//   node.LEADER_NONCE.IDENTITY      an answer
//   new.NONCE                       a file that is being written; it is renamed when it is complete
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/rendezvous/node_file.h"
#include "server/rendezvous/rendezvous.h"

namespace forebay::rendezvous {

enum class PauseEnd : std::uint8_t {
  kOver,
  kToldToStop,  // the daemon is to stop
  kNotNeeded,   // the daemon has found the nodes of its job without the rendezvous
};

struct DirectoryRendezvousParts {
  io::IoBackend& backend;
  // Opened by `backend`; all nodes see the same files in it. Transient errors are repeated here, so
  // the back end need not do that.
  io::Directory& directory;
  const io::Clock& clock;
  // Sleeps for so many milliseconds. Returns at once if Exchange is to end.
  std::function<PauseEnd(std::int64_t ms)> pause;
  // Sleeps for so many milliseconds, also if the daemon is to stop: others need what it published.
  std::function<void(std::int64_t ms)> sleep;
};

// The cost for the file system: each node creates one file, and opens the list again and again,
// with pauses that grow to a second and, in large jobs, further, so that all nodes together make at
// most some 10,000 calls per second. The leader lists the directory and opens each answer once.
class DirectoryRendezvous final : public Rendezvous {
 public:
  // `path` is the directory's, for messages.
  DirectoryRendezvous(DirectoryRendezvousParts parts, std::string path);

  Result<std::vector<NodeEntry>> Exchange(const NodeEntry& own, std::uint32_t node_count,
                                          std::int64_t deadline_ns) override;
  void Leave() override;

 private:
  struct Round;

  Result<std::vector<NodeEntry>> Lead(Round& round);
  Status PublishCall(Round& round);
  Status CheckLeads(Round& round);
  Status Collect(Round& round);
  Status Admit(Round& round, const NodeFile& answer, const std::string& name);
  Status Pause(std::int64_t ms) const;
  Error Refuse(Round& round, const Error& reason);
  void AwaitReaders();
  bool IsOwn(const std::optional<NodeFile>& list) const;
  Result<std::vector<std::string>> Answers(std::uint64_t leader_nonce);
  void RemoveStale(std::uint64_t leader_nonce);

  Result<std::vector<NodeEntry>> Follow(Round& round);
  Result<std::optional<std::vector<NodeEntry>>> Heed(Round& round, const NodeFile& list);
  Status Answer(Round& round, std::uint64_t leader_nonce);

  Status Publish(const NodeFile& file, const std::string& name);
  Result<std::optional<NodeFile>> Read(const std::string& name);
  void Remove(const std::string& name);
  std::string PathOf(std::string_view name) const { return job_ + "/" + std::string(name); }
  std::string Shown(std::string_view name) const { return path_ + "/" + PathOf(name); }

  const DirectoryRendezvousParts parts_;
  const std::string path_;
  std::unique_ptr<io::IoQueue> queue_;
  std::string job_;                 // empty: Exchange was not called
  std::string temporary_;           // new.NONCE
  std::string answer_;              // this node's, as long as it is published
  std::uint64_t leader_nonce_ = 0;  // not 0: this node leads, and has published a call
  std::optional<std::int64_t> complete_ns_;  // when it has published the list
};

}  // namespace forebay::rendezvous
