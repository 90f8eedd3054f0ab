// OwnRows: supplies rows that this node has to read itself to its own batches, as another node's
// rows are supplied: straight into the slot, while the rows of other nodes are under way. A batch
// uses this if some of its own extents are on no tier, and it also needs rows of other nodes
// (Fetcher::HasRowsElsewhere). RowRouter also uses it for rows that no other node can supply.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/contract/thread_annotations.h"
#include "server/fetch/local_rows.h"
#include "server/fetch/row_source.h"
#include "server/io/clock.h"

namespace forebay::fetch {

// Thread-safe; everything passed in is borrowed.
class OwnRows final : public RowSource {
 public:
  OwnRows(LocalRows& rows, const io::Clock& clock) : rows_(rows), clock_(clock) {}

  // RowRequest::node is this node. Errors are those that this node's own readers get, with nothing
  // to convert. kUnavailable: the GFS has not answered until the deadline (see Expire). kCancelled:
  // nobody wants the rows any more, which ends the request at once. stage::AskNext: AskElsewhere.
  void Read(std::shared_ptr<const RowRequest> request, Done done) override;
  // Ends the requests whose deadlines are over. Bytes that come later are not written. Call about
  // once a second.
  void Expire();
  // Ends all requests with stage::AskNext, so that RowRouter asks other nodes for the rows.
  void AskElsewhere();

 private:
  class Request;

  std::vector<std::shared_ptr<Request>> Open();

  LocalRows& rows_;
  const io::Clock& clock_;
  Mutex mutex_;
  // Those that have ended are removed by the next Expire.
  std::vector<std::weak_ptr<Request>> requests_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::fetch
