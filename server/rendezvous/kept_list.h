// KeptList: a copy of the list of nodes of a launch, which each daemon keeps on its own node while
// it runs. A daemon that was killed, and is started again while the other daemons of the launch go
// on, finds the copy, and so needs no rendezvous, for which all nodes would have to come. If the
// killed daemon was leaving the job, or had taken the place of a node that may only have stood
// still, that is found beside the list.
//
//   FOREBAY_ASSIGN(KeptList kept, KeptList::Open(backend, "/run/user/1000/forebay/job"));
//   if (auto nodes = kept.Find(own, node_count)) ...  // left by a daemon that was killed
//   FOREBAY_TRY(kept.Keep(nodes));
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/rendezvous/node_entry.h"

namespace forebay::rendezvous {

// Not thread-safe, but not tied to a thread. Blocks on the file system of the directory, which is
// one of the node itself.
class KeptList {
 public:
  // `directory` exists, and no other daemon uses it. The back end is borrowed.
  static Result<KeptList> Open(io::IoBackend& backend, const std::string& directory);

  // Returns the list that a daemon of this node has kept. Nullopt: there is none, it does not have
  // `node_count` nodes, or its entry at own.rank is of another node than `own`, or one that `own`
  // has no room for (CheckRoom). Place, address and nonce of `own` are not used.
  std::optional<std::vector<NodeEntry>> Find(const NodeEntry& own, std::uint32_t node_count);
  // As Find, for a daemon that knows neither its rank nor the number of nodes.
  struct OwnPlace {
    std::vector<NodeEntry> nodes;
    NodeRank rank = NodeRank(0);  // at which `own` is found
  };
  std::optional<OwnPlace> FindOwn(const NodeEntry& own);
  // Replaces what was kept. A new launch knows of no node that leaves. `address_before`: of the
  // node that was in the place of this one, and is to be told; empty: none was.
  Status Keep(const std::vector<NodeEntry>& nodes, const std::string& address_before = {});
  // As Keep, in the same launch, because another node is in a place. What is beside the list stays
  // kept.
  Status Update(const std::vector<NodeEntry>& nodes);
  // Beside the list: this node leaves the job, and hands over within `time_ms`. Replaces what an
  // earlier call has kept.
  Status KeepDeparture(std::int64_t time_ms);
  // Returns the time of KeepDeparture. Nullopt: the node does not leave, or the file is damaged.
  std::optional<std::int64_t> FindDeparture();
  // Returns the address_before of Keep. Empty: there is none, or the file is damaged.
  std::string FindAddressBefore();
  // The node at that address has been told.
  Status RemoveAddressBefore();
  // To be called when the daemon ends in good order.
  void Remove();

 private:
  KeptList(io::IoBackend& backend, std::unique_ptr<io::Directory> directory)
      : backend_(&backend), directory_(std::move(directory)) {}

  Result<std::unique_ptr<io::IoQueue>> OpenQueue() const;
  Status WriteText(const char* name, const std::string& text);
  Result<std::optional<std::string>> ReadText(const char* name, std::uint64_t bytes_max) const;
  std::vector<NodeEntry> ReadList() const;

  io::IoBackend* backend_;
  std::unique_ptr<io::Directory> directory_;
};

}  // namespace forebay::rendezvous
