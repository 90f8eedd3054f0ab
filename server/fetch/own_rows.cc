// A request has two possible ends: its rows were found and are copied, or it is given up before
// that (its time is over, or nobody wants it). Whichever comes first wins, so the memory of the
// rows is not written to after `done`, although LocalRows may still wait for the GFS.
#include "server/fetch/own_rows.h"

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "server/stage/extent_loader.h"
#include "server/stage/extent_source.h"

namespace forebay::fetch {
namespace {

// Names the first extent that has not come, if it is known.
Error LateRows(LocalRows& rows, const RowRequest& request) {
  const stage::Dataset& dataset = *request.dataset;
  const std::optional<ExtentId> missing =
      rows.FirstMissing(dataset, request.rows, request.reader.need);
  const std::string extent =
      missing ? fmt::format(": extent {} ({})", missing->value(),
                            stage::NameObjects(*dataset.catalog(), *missing))
              : "";
  return Error(ErrorCode::kUnavailable,
               fmt::format("{} rows of '{}' have not arrived from the GFS in time{}; ask for the "
                           "batch again, and see 'forebay status' for GFS failures",
                           request.rows.size(), dataset.name(), extent));
}

}  // namespace

class OwnRows::Request {
 public:
  Request(LocalRows& rows, std::shared_ptr<const RowRequest> asked, Done done)
      : rows_(rows), asked_(std::move(asked)), done_(std::move(done)) {}

  // Not in the constructor, because nobody may want the rows already.
  void GiveUpWhenUnwanted() {
    unwanted_.emplace(asked_->reader.unwanted, [this] {
      GiveUp(Error(ErrorCode::kCancelled, "nobody wants the rows any more"));
    });
  }
  bool has_ended() const {
    const MutexLock lock(mutex_);
    return !done_.has_value();
  }
  void GiveUpIfLate(std::int64_t now_ns) {
    if (now_ns >= asked_->deadline_ns) GiveUp(LateRows(rows_, *asked_));
  }
  void GiveUp(const Error& error) {
    const std::optional<Done> done = TakeDone();
    if (done) (*done)(error);
  }
  // The rows were found, or an error in their place.
  void Finish(const Result<std::shared_ptr<const FoundRows>>& found) {
    const std::optional<Done> done = TakeDone();
    if (!done) return;
    // From here on nothing gives the request up, so the memory of the rows stays in place.
    if (found.has_value()) return (*done)(CopyRows(**found, asked_->rows));
    (*done)(stage::ErrorFromOthers(found.error()));
  }

 private:
  // Set for the first caller, which ends the request. Taken out, so that the batch does not stay in
  // memory as long as LocalRows waits.
  std::optional<Done> TakeDone() {
    const MutexLock lock(mutex_);
    return std::exchange(done_, std::nullopt);
  }

  LocalRows& rows_;
  const std::shared_ptr<const RowRequest> asked_;
  mutable Mutex mutex_;
  std::optional<Done> done_ FOREBAY_GUARDED_BY(mutex_);
  std::optional<std::stop_callback<std::function<void()>>> unwanted_;
};

void OwnRows::Read(std::shared_ptr<const RowRequest> asked, Done done) {
  const auto request = std::make_shared<Request>(rows_, asked, std::move(done));
  {
    const MutexLock lock(mutex_);
    requests_.push_back(request);
  }
  request->GiveUpWhenUnwanted();
  rows_.Find(*asked->dataset,
             {.fingerprint = asked->dataset->catalog()->fingerprint(),
              .rows = asked->rows,
              .need = asked->reader.need,
              .is_wanted = [request] { return !request->has_ended(); }},
             [request](const Result<std::shared_ptr<const FoundRows>>& found) {
               request->Finish(found);
             });
}

// Those that have not ended. Without the lock, because the ends of requests call others.
std::vector<std::shared_ptr<OwnRows::Request>> OwnRows::Open() {
  std::vector<std::shared_ptr<Request>> open;
  {
    const MutexLock lock(mutex_);
    std::erase_if(requests_, [&open](const std::weak_ptr<Request>& each) {
      const std::shared_ptr<Request> request = each.lock();
      if (request == nullptr || request->has_ended()) return true;
      open.push_back(request);
      return false;
    });
  }
  return open;
}

void OwnRows::Expire() {
  const std::int64_t now_ns = clock_.NowNs();
  for (const std::shared_ptr<Request>& request : Open()) request->GiveUpIfLate(now_ns);
}

void OwnRows::AskElsewhere() {
  for (const std::shared_ptr<Request>& request : Open()) {
    request->GiveUp(stage::AskNext());
  }
}

}  // namespace forebay::fetch
