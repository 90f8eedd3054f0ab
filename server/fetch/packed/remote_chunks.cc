// Join notes which chunks are here, joins those that are under way, and begins flights for the
// others; all of these go to RowRouter in one call. When that ends, Land hands the chunks to every
// call that waits for them. After an error, only the call that has asked reports it: another one
// may have been withdrawn because its stream was closed, or may want chunks that are sound.
#include "server/fetch/packed/remote_chunks.h"

#include <utility>

#include "proto/contract/check.h"

namespace forebay::fetch {
namespace {

// Fewer chunks than this are not worth a search for those that nobody uses.
constexpr std::size_t kSearchMin = 64;

}  // namespace

void RemoteChunks::Bring(stage::Dataset& dataset, const std::vector<WantedRemote>& wanted,
                         RowReader reader, Done done) {
  const auto call = std::make_shared<Call>();
  call->chunks.resize(wanted.size());
  call->done = std::move(done);
  std::vector<Key> asked;
  std::vector<RoutedRow> rows = Join(dataset.number(), wanted, call, asked);
  if (!rows.empty()) {
    // Without the lock, because the router may answer within the call.
    router_.Fill(dataset, std::move(rows), std::move(reader),
                 [this, asked = std::move(asked), call](const Result<RowRouter::Filled>& filled) {
                   Land(asked, call, filled.has_value() ? Status() : Status(filled.error()));
                 });
  }
  bool is_over = false;
  {
    const MutexLock lock(mutex_);
    is_over = --call->left == 0;
  }
  if (is_over) End({call});
}

// Returns the rows that have to be asked for; `asked` receives their keys.
std::vector<RoutedRow> RemoteChunks::Join(std::uint64_t dataset_number,
                                          const std::vector<WantedRemote>& wanted,
                                          const std::shared_ptr<Call>& call,
                                          std::vector<Key>& asked) {
  std::vector<RoutedRow> rows;
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Key key(dataset_number, wanted[i].number);
    if (const auto sent = sent_.find(key); sent != sent_.end()) {
      call->chunks[i] = sent->second.lock();
      if (call->chunks[i]) continue;
    }
    const auto [flight, is_new] = flights_.try_emplace(key);
    flight->second.places.push_back({call, i});
    ++call->left;
    if (!is_new) continue;
    flight->second.memory = std::make_shared<RawBytes>(wanted[i].bytes);
    rows.push_back({.group_key = wanted[i].group_key, .row = wanted[i].row});
    rows.back().row.memory = flight->second.memory->span();
    asked.push_back(key);
  }
  return rows;
}

void RemoteChunks::Land(const std::vector<Key>& asked, const std::shared_ptr<Call>& call,
                        const Status& status) {
  std::vector<std::shared_ptr<Call>> over;
  {
    const MutexLock lock(mutex_);
    if (!status.has_value()) call->error = status.error();
    for (const Key& key : asked) {
      const auto flight = flights_.find(key);
      FOREBAY_CHECK(flight != flights_.end());
      const SentChunk chunk = status.has_value() ? flight->second.memory : nullptr;
      for (const Place& place : flight->second.places) {
        place.call->chunks[place.index] = chunk;
        if (--place.call->left == 0) over.push_back(place.call);
      }
      if (chunk) sent_.insert_or_assign(key, chunk);
      flights_.erase(flight);
    }
    ForgetUnusedLocked();
  }
  End(over);
}

// Searches once as many chunks have come as were in use after the last search, so that each chunk
// costs a few steps on average.
void RemoteChunks::ForgetUnusedLocked() {
  if (sent_.size() < 2 * used_ + kSearchMin) return;
  std::erase_if(sent_, [](const auto& entry) { return entry.second.expired(); });
  used_ = sent_.size();
}

// The calls have nothing under way any more, so nobody else looks at them.
void RemoteChunks::End(const std::vector<std::shared_ptr<Call>>& calls) {
  for (const std::shared_ptr<Call>& call : calls) {
    if (call->error) {
      call->done(*call->error);
    } else {
      call->done(std::move(call->chunks));
    }
  }
}

}  // namespace forebay::fetch
