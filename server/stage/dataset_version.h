// DatasetVersion: what happens to a data set when a rebuild replaces it. Each rebuild makes another
// Dataset of the same name, the next version of the data set. Readers of an older version continue
// while its objects are unchanged. Versions have extents of the same keys, and so share copies on
// the tiers; this class keeps a reader of one version from getting the bytes of another.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/stage/gfs/first_reads.h"
#include "server/tier/extent_key.h"

namespace forebay::stage {

// One version, as a link of the chain of all versions of a data set, from the oldest to the one
// that is served. A thread that reads an extent and publishes it does this:
//
//   const std::uint32_t successors = version.successors();  // before the read
//   ... read the extent ...
//   FOREBAY_TRY(version.ShareRead(key, checksum, successors));
//   const DatasetVersion::Publishing publishing(version, successors);
//   if (!publishing.may_publish()) return version.Outdated();
//   ... publish it on a tier ...
//   if (version.is_replaced()) ... ShareRead again, because the next version may have read the
//                                  extent meanwhile; evict the extent if that fails ...
//
// A rebuild calls next.Succeed(version), and then evicts the copies of older versions.
//
// Invariants:
// 1. Bytes that were read before a rebuild took over are not published after it, nor do they become
//    a first read of the version that it made.
// 2. Succeed waits until older versions have published everything that began before it, and
//    MarkOutdated does so for its own version. A caller that evicts copies afterwards misses none.
// 3. A version is marked as outdated before the tiers get bytes under its keys that may differ from
//    its own. So a reader that looks an extent up, and then finds its version not outdated, has
//    found bytes of its version.
// 4. A version that is outdated stays so, and nothing of it begins to be published any more.
// 5. The links between versions are set once, and the number of successors only grows.
//
// Thread-safe. Succeed and MarkOutdated block while an extent is being published. ShareRead blocks
// while a record of first reads is written. No other call blocks.
class DatasetVersion {
 public:
  // `name` and `first_reads` are those of the data set; both are borrowed and must outlive this.
  DatasetVersion(const std::string& name, FirstReads& first_reads)
      : name_(name), first_reads_(first_reads) {}
  DatasetVersion(const DatasetVersion&) = delete;
  DatasetVersion& operator=(const DatasetVersion&) = delete;

  // Another version serves the objects as they are now. Readers of this one continue.
  void MarkReplaced() { is_replaced_ = true; }
  bool is_replaced() const { return is_replaced_; }

  // This version replaces `replaced`; both must live equally long. Waits until nothing of
  // `replaced`, and of those before it, is being published (Publishing). After that, only bytes
  // that were read later are.
  void Succeed(DatasetVersion& replaced);
  // How many versions have replaced this one, one after the other. Ask before an extent is read or
  // found on a tier: what was there before a rebuild must not be published after it.
  std::uint32_t successors() const { return successors_; }
  // How many rebuilds have led to this version. Nodes of a job supply each other only if they have
  // rebuilt a data set equally often (peer/peer_server.cc).
  std::uint32_t rebuilds() const { return rebuilds_; }
  void SetRebuilds(std::uint32_t rebuilds) { rebuilds_ = rebuilds; }

  // Call when an extent was read from the GFS for this version, before it is published on a tier;
  // `successors`: successors() before the read. Marks the versions that this one replaced as
  // outdated, if they know the extent with another checksum: the tier will hold bytes under their
  // keys that are not theirs. For the versions that replaced this one it is a read like theirs.
  // kFailedPrecondition if one of them has replaced it since the read began, or if their first read
  // was different, and this version is outdated.
  Status ShareRead(const tier::ExtentKey& key, std::uint64_t image_checksum,
                   std::uint32_t successors);

  // In a job of several nodes: what other nodes supply from now on, under the keys of this version,
  // are the objects as they are now, without a first read here to compare them with.
  // Waits until nothing is being published under these keys (Publishing).
  void MarkOutdated() FOREBAY_EXCLUDES(mutex_);
  bool is_outdated() const { return is_outdated_; }
  // kFailedPrecondition, for the readers of an outdated version.
  Error Outdated() const;

  // Exists while an extent of a version is published on a tier. It must not be published if the
  // version is outdated, or was replaced after the extent was read.
  class Publishing {
   public:
    // `successors`: successors() before the extent was read, or found on another tier.
    Publishing(DatasetVersion& version, std::uint32_t successors)
        : version_(version), may_publish_(version.BeginPublishing(successors)) {}
    ~Publishing() {
      if (may_publish_) version_.EndPublishing();
    }
    Publishing(const Publishing&) = delete;
    Publishing& operator=(const Publishing&) = delete;
    bool may_publish() const { return may_publish_; }

   private:
    DatasetVersion& version_;
    const bool may_publish_;
  };

 private:
  bool BeginPublishing(std::uint32_t successors) FOREBAY_EXCLUDES(mutex_);
  void EndPublishing() FOREBAY_EXCLUDES(mutex_);

  const std::string& name_;
  FirstReads& first_reads_;
  std::atomic<DatasetVersion*> predecessor_ = nullptr;
  std::atomic<DatasetVersion*> successor_ = nullptr;
  std::atomic<std::uint32_t> successors_ = 0;  // changes with mutex_ held
  std::atomic<bool> is_replaced_ = false;
  std::atomic<bool> is_outdated_ = false;
  std::atomic<std::uint32_t> rebuilds_ = 0;
  Mutex mutex_;  // held alone
  CondVar has_published_;
  std::uint32_t publishing_ FOREBAY_GUARDED_BY(mutex_) = 0;  // objects that may publish
};

}  // namespace forebay::stage
