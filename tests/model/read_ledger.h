// ReadLedger: when each extent was first read from the GFS, as far as a test can know: the model of
// stage::FirstReads and its file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace forebay::model {

// Extents are named by their objects, times and ranges, as the service's keys name them. Not
// thread-safe.
class ReadLedger {
 public:
  struct Entry {
    // Revisions of the GFS at which it may have been first read. Never empty.
    std::vector<std::uint64_t> candidates;
    // It has been read: what changes from now on is no candidate.
    bool is_read = false;
    // A copy on a tier may be of another reading than the one that counts as the first, because
    // nothing told this daemon when the copy was read.
    bool is_loose = false;
  };

  // Of a daemon that remembers reads since revision `since`; the GFS is at `now`.
  ReadLedger(std::uint64_t since, std::uint64_t now) : since_(since), now_(now) {}

  std::uint64_t since() const { return since_; }
  bool Knows(const std::string& extent) const { return entries_.contains(extent); }
  // Of an extent that was not asked about before, anything since since() may be the first reading.
  Entry& Of(const std::string& extent);
  void Set(const std::string& extent, Entry entry) { entries_[extent] = std::move(entry); }

  // The GFS has changed silently.
  void OnRevision(std::uint64_t revision);
  // Any record may be lost, or be one that was to be forgotten: each extent may have been read at
  // any time. With `are_copies_loose`, copies on the tiers tell nothing of it either.
  void Doubt(bool are_copies_loose);
  // The same, of extents that have not been read yet.
  void DoubtUnread(bool are_copies_loose);
  // The entry of an extent about which nothing is certain.
  Entry Doubtful(bool is_loose) const;

 private:
  std::uint64_t since_;
  std::uint64_t now_;
  std::map<std::string, Entry> entries_;
};

}  // namespace forebay::model
