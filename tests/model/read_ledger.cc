#include "tests/model/read_ledger.h"

namespace forebay::model {

ReadLedger::Entry& ReadLedger::Of(const std::string& extent) {
  const auto [entry, is_new] = entries_.try_emplace(extent);
  for (std::uint64_t revision = since_; is_new && revision <= now_; ++revision) {
    entry->second.candidates.push_back(revision);
  }
  return entry->second;
}

void ReadLedger::OnRevision(std::uint64_t revision) {
  now_ = revision;
  for (auto& [extent, entry] : entries_) {
    if (!entry.is_read) entry.candidates.push_back(revision);
  }
}

ReadLedger::Entry ReadLedger::Doubtful(bool is_loose) const {
  Entry entry{.candidates = {}, .is_read = false, .is_loose = is_loose};
  for (std::uint64_t revision = 0; revision <= now_; ++revision) {
    entry.candidates.push_back(revision);
  }
  return entry;
}

void ReadLedger::DoubtUnread(bool are_copies_loose) {
  since_ = 0;
  for (auto& [extent, entry] : entries_) {
    if (!entry.is_read) entry = Doubtful(are_copies_loose);
  }
}

void ReadLedger::Doubt(bool are_copies_loose) {
  since_ = 0;
  for (auto& [extent, entry] : entries_) entry = Doubtful(are_copies_loose);
}

}  // namespace forebay::model
