// ExtentSource: interface that supplies whole extents, for what is staged or copied. The GFS
// answers it (GfsExtents), and so do other nodes of the job: a transport of `peer` carries the
// request, and LocalExtents answers it on the node that is asked. ExtentSupplier decides whom to
// ask: the extent's owner, then its substitutes (plan::Membership), and the GFS only on the first
// of these nodes that lives.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"
#include "server/stage/gfs/request_gate.h"
#include "server/tier/extent_key.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::stage {

class GfsReader;

struct ExtentRequest {
  NodeRank node;  // the node that is asked; the GFS ignores it
  Dataset& dataset;
  const catalog::Catalog& catalog;  // of `dataset`
  ExtentId extent;
  const Priority& priority;  // priority of GFS requests
};

// An extent in memory of this node.
struct SuppliedExtent {
  tier::ArenaBlock image;
  // From the GFS: of the image and its pieces. From another node: of the image alone, because the
  // receiver computes the others (VerifySupplied).
  tier::ExtentChecksums checksums;
  // The image is compressed already, in the form of its data set (Dataset::form). Otherwise it is
  // the bytes of the objects.
  bool is_packed = false;
};

// Allocates memory for an image of so many bytes.
using AllocateImage = std::function<Result<tier::ArenaBlock>(std::uint64_t bytes)>;

// Thread-safe; each caller brings its own queue, which is idle before and after the call.
class ExtentSource {
 public:
  virtual ~ExtentSource() = default;
  // Brings the extent into memory from `allocate`. Blocks until it is there, or until a deadline of
  // the source. Errors of `allocate` are passed on. Bytes from another node are not verified yet.
  // IsNoAnswer, IsTooBusy and IsAskNext say whether an error means that the next node is to be
  // asked.
  virtual Result<SuppliedExtent> Read(const ExtentRequest& request, const AllocateImage& allocate,
                                      io::IoQueue& queue) = 0;
  // To be called if an extent that the node has supplied does not match (VerifySupplied), so that a
  // transport can count it.
  virtual void ReportWrong(NodeRank) {}
};

// The GFS. Reads the extent's objects, and compares the image with the extent's first read
// (ReadExtent). Thread-safe.
class GfsExtents final : public ExtentSource {
 public:
  explicit GfsExtents(GfsReader& gfs) : gfs_(gfs) {}  // borrowed
  Result<SuppliedExtent> Read(const ExtentRequest& request, const AllocateImage& allocate,
                              io::IoQueue& queue) override;

 private:
  GfsReader& gfs_;
};

// Checks an extent that another node has supplied (docs/design.md, P1): the image against the
// checksum that came with it, and its raw bytes against the extent's first read.
// Returns the checksums of the image and of its pieces. kDataLoss names the extent.
// `is_intact`, if given, becomes true if the bytes are those that the other node has meant to send,
// also if they are refused because this node's first read was another one.
Result<tier::ExtentChecksums> VerifySupplied(Dataset& dataset, const catalog::Catalog& catalog,
                                             ExtentId extent, const SuppliedExtent& supplied,
                                             bool* is_intact = nullptr);

// Between nodes, kUnavailable and kDeadlineExceeded mean that the node itself did not answer. A
// node that answers with such an error of its own (its GFS does not respond) says kAborted.
bool IsNoAnswer(const Error& error);
// The error of a request that a node has refused until its deadline, because it answers as many
// calls as it may (limits::kPeerCallsMax). A transport repeats such a request within its deadline.
// The node is alive, and knows nothing that would make the request useless, so the next node is
// asked without taking this one for dead. Other errors with code kResourceExhausted are final.
// IsTooBusy also accepts NotSent.
Error TooBusy(std::string message);
bool IsTooBusy(const Error& error);
// The error of a request that this node has not sent before its deadline, because requests before
// it took all places of the connection (peer/peer_link.h); for example, all of them wait for the
// GFS. The other node has refused nothing, and is treated like one that is too busy. A transport
// does not repeat the request, because no time is left.
Error NotSent(std::string message);
bool IsNotSent(const Error& error);
// The error of a node that yields (plan::Membership::Yields) and does not have what it is asked
// for, or that was started again and lacks a rebuild: the next node is to be asked at once. Only
// the log of the node that says so has it.
Error AskNext(
    std::string message = "this node reads nothing from the GFS for others at present");
bool IsAskNext(const Error& error);
// An error of this node as it goes to another one. A node that shuts down (kCancelled) no longer
// answers: kUnavailable.
Error ErrorForOthers(const Error& error);
// An error of another node as readers of this one get it: kAborted, and a node that is too busy or
// could not be asked in time, become kUnavailable.
Error ErrorFromOthers(const Error& error);

}  // namespace forebay::stage
