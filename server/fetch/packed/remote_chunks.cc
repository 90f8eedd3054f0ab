// Join notes which chunks are here, joins those that are under way, and makes requests for the
// others, one for each node that is asked first, so that a silent node delays only its own chunks.
// When a request ends, Land hands its chunks to every call that waits for them. After an error,
// only the call that has asked reports it: another one may want chunks that are sound, and asks
// again. A call that leaves early gives up its places. A request is cancelled by the last call that
// leaves it, and that call ends with it: so there is a call for each request, and whoever has made
// the call waits for it.
#include "server/fetch/packed/remote_chunks.h"

#include <algorithm>
#include <stop_token>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"

namespace forebay::fetch {
namespace {

// Fewer chunks than this are not worth a search for those that nobody uses.
constexpr std::size_t kSearchMin = 64;

Error NoChunksWanted() { return Error(ErrorCode::kCancelled, "nobody wants the chunks any more"); }

}  // namespace

// One call of Bring.
struct RemoteChunks::Call {
  std::string dataset;  // its name
  std::vector<SentChunk> chunks;
  std::optional<Error> error;
  std::size_t left = 1;  // chunks under way, and one for Bring itself
  bool has_left = false;
  std::int64_t deadline_ns = 0;
  Done done;
  std::vector<RequestRef> requests;  // that have its places, until it ends
  std::optional<std::stop_callback<std::function<void()>>> unwanted;
};

// Chunks that are asked of one node, by one call of RowRouter::Fill.
struct RemoteChunks::Request {
  // A place of a call that waits for a chunk.
  struct Place {
    CallRef call;
    std::size_t index = 0;
    bool has_asked = false;
  };
  struct Flight {
    std::shared_ptr<RemoteChunk> chunk;
    std::vector<Place> places;
  };
  std::map<Key, Flight> flights;  // empty once it has landed
  std::vector<RoutedRow> rows;    // until they are asked for
  std::stop_source unwanted;

  bool HasOthers(const CallRef& call) const {
    return std::ranges::any_of(flights, [&](const auto& flight) {
      return std::ranges::any_of(flight.second.places,
                                 [&](const Place& place) { return place.call != call; });
    });
  }
  // Returns how many places the call had.
  std::size_t Remove(const CallRef& call) {
    std::size_t removed = 0;
    for (auto& [key, flight] : flights) {
      removed += std::erase_if(flight.places,
                               [&](const Place& place) { return place.call == call; });
    }
    return removed;
  }
};

bool RemoteChunks::Bring(stage::Dataset& dataset, const std::vector<WantedRemote>& wanted,
                         const RowReader& reader, std::int64_t deadline_ns, Done done) {
  if (reader.unwanted.stop_requested()) {
    done(NoChunksWanted());
    return true;
  }
  const auto call = std::make_shared<Call>();
  call->dataset = dataset.name();
  call->chunks.resize(wanted.size());
  call->deadline_ns = deadline_ns;
  call->done = std::move(done);
  const std::optional<Requests> requests = Join(dataset.number(), wanted, call);
  if (!requests) return false;
  // Without the lock, because the router may answer within the call.
  for (const auto& [turn, request] : *requests) {
    router_.Fill(dataset, std::move(request->rows),
                 {.need = reader.need,
                  .place = reader.place,
                  .unwanted = request->unwanted.get_token()},
                 [this, landing = request](const Result<RowRouter::Filled>& filled) {
                   Land(landing, filled);
                 });
  }
  // The call may have ended but for Bring's own count, and may be unwanted already.
  call->unwanted.emplace(reader.unwanted, [this, weak = std::weak_ptr(call)] {
    if (const CallRef leaving = weak.lock()) Leave(leaving, NoChunksWanted());
  });
  bool is_over = false;
  {
    const MutexLock lock(mutex_);
    is_over = --call->left == 0;
  }
  if (is_over) End(call);
  return true;
}

// The node that each chunk is asked of; the ranking is computed once a group.
std::vector<RowRouter::Turn> RemoteChunks::TurnsOf(
    const std::vector<WantedRemote>& wanted) const {
  std::vector<RowRouter::Turn> turns;
  std::unordered_map<std::uint64_t, RowRouter::Turn> of_groups;
  for (const WantedRemote& each : wanted) {
    const auto [entry, inserted] = of_groups.try_emplace(each.group_key);
    if (inserted) entry->second = router_.TurnOf(each.group_key);
    turns.push_back(entry->second);
  }
  return turns;
}

// Returns the requests that have to be made. Nullopt: there is not enough memory for their chunks,
// and nothing has changed.
std::optional<RemoteChunks::Requests> RemoteChunks::Join(std::uint64_t dataset_number,
                                                         const std::vector<WantedRemote>& wanted,
                                                         const CallRef& call) {
  const std::vector<RowRouter::Turn> turns = TurnsOf(wanted);
  // Declared before the lock, so that what is given up is freed without it.
  std::vector<std::shared_ptr<RemoteChunk>> asked(wanted.size());
  Requests requests;
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Key key(dataset_number, wanted[i].number);
    if (const auto sent = sent_.find(key); sent != sent_.end()) {
      call->chunks[i] = sent->second.lock();
    }
    if (call->chunks[i] || under_way_.contains(key)) continue;
    BudgetShare share = BudgetShare::Take(account_, wanted[i].bytes);
    if (!share.valid()) return std::nullopt;
    asked[i] = std::make_shared<RemoteChunk>(std::move(share), wanted[i].bytes);
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (call->chunks[i]) continue;
    const Key key(dataset_number, wanted[i].number);
    const auto [entry, is_new] = under_way_.try_emplace(key);
    if (is_new) {
      RequestRef& request = requests[turns[i]];
      if (!request) request = std::make_shared<Request>();
      request->rows.push_back({.group_key = wanted[i].group_key, .row = wanted[i].row});
      request->rows.back().row.memory = asked[i]->memory();
      request->flights[key].chunk = std::move(asked[i]);
      entry->second = request;
    }
    entry->second->flights.at(key).places.push_back(
        {.call = call, .index = i, .has_asked = is_new});
    ++call->left;
    if (std::ranges::count(call->requests, entry->second) == 0) {
      call->requests.push_back(entry->second);
    }
  }
  return requests;
}

void RemoteChunks::Land(const RequestRef& request, const Result<RowRouter::Filled>& filled) {
  std::map<Key, Request::Flight> flights;
  std::vector<CallRef> over;
  {
    const MutexLock lock(mutex_);
    ForgetLocked(*request);
    flights = std::exchange(request->flights, {});
    for (const auto& [key, flight] : flights) {
      if (filled.has_value()) {
        if (filled->own_samples > 0) flight.chunk->SetIsOwn();
        sent_.insert_or_assign(key, flight.chunk);
      }
      for (const Request::Place& place : flight.places) {
        Call& call = *place.call;
        if (filled.has_value()) {
          call.chunks[place.index] = flight.chunk;
        } else if (place.has_asked && !call.error) {  // the first error is reported
          call.error = filled.error();
        }
        if (--call.left == 0) over.push_back(place.call);
      }
    }
    ForgetUnusedLocked();
  }
  for (const CallRef& call : over) End(call);
}

// The call gives up what it waits for. Requests that nobody else waits for are cancelled, and when
// they have ended, so has the call.
void RemoteChunks::Leave(const CallRef& call, const Error& error) {
  std::vector<RequestRef> unwanted;
  bool is_over = false;
  {
    const MutexLock lock(mutex_);
    if (call->left == 0 || std::exchange(call->has_left, true)) return;
    if (!call->error) call->error = error;
    for (const RequestRef& request : call->requests) {
      if (request->HasOthers(call)) {
        call->left -= request->Remove(call);
      } else {
        ForgetLocked(*request);  // or another call could join it now
        unwanted.push_back(request);
      }
    }
    is_over = call->left == 0;
  }
  for (const RequestRef& request : unwanted) request->unwanted.request_stop();
  if (is_over) End(call);
}

void RemoteChunks::Expire(std::int64_t now_ns) {
  std::map<CallRef, std::size_t> late;  // with the number of chunks that have not come
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, request] : under_way_) {
      for (const Request::Place& place : request->flights.at(key).places) {
        if (place.call->deadline_ns <= now_ns) ++late[place.call];
      }
    }
  }
  for (const auto& [call, chunks] : late) {
    Leave(call, Error(ErrorCode::kUnavailable,
                      fmt::format("{} chunks of '{}' have not come from other nodes within {} ms; "
                                  "ask for the batch again, and see 'forebay status --nodes'",
                                  chunks, call->dataset, limits::kPullDeadlineMs)));
  }
}

// A request that was given up may have a successor for the same chunks.
void RemoteChunks::ForgetLocked(const Request& request) {
  for (const auto& [key, flight] : request.flights) {
    const auto entry = under_way_.find(key);
    if (entry != under_way_.end() && entry->second.get() == &request) under_way_.erase(entry);
  }
}

// Searches once as many chunks have come as were in use after the last search, so that each chunk
// costs a few steps on average.
void RemoteChunks::ForgetUnusedLocked() {
  if (sent_.size() < 2 * used_ + kSearchMin) return;
  std::erase_if(sent_, [](const auto& entry) { return entry.second.expired(); });
  used_ = sent_.size();
}

// The call has nothing under way any more, so nobody else changes it.
void RemoteChunks::End(const CallRef& call) {
  call->requests.clear();  // which refer to the call
  if (call->error) {
    call->done(*call->error);
  } else {
    call->done(std::move(call->chunks));
  }
}

}  // namespace forebay::fetch
