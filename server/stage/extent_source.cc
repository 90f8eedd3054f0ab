// The GFS as an extent source, and the checks and error codes that both sides of a transport
// between nodes share.
#include "server/stage/extent_source.h"

#include <cerrno>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/stage/extent_loader.h"
#include "server/stage/gfs/gfs_reader.h"
#include "server/stage/packed/packed_extent.h"
#include "server/stage/packed/packed_form.h"

namespace forebay::stage {

Result<SuppliedExtent> GfsExtents::Read(const ExtentRequest& request,
                                        const AllocateImage& allocate, io::IoQueue& queue) {
  const catalog::Catalog& catalog = request.catalog;
  SuppliedExtent supplied;
  FOREBAY_ASSIGN(supplied.image, allocate(catalog.extent(request.extent).bytes));
  // A data set that is compressed at staging gets the checksums of its pieces when it is packed.
  std::vector<catalog::Range> pieces;
  if (!request.dataset.form()) FOREBAY_TRY(catalog.Pieces(request.extent, pieces));
  const auto read = [&](std::span<std::byte> image, bool past_caches) {
    return gfs_.ReadImage(queue, request.dataset, catalog, request.extent, request.priority, image,
                          past_caches);
  };
  FOREBAY_ASSIGN(supplied.checksums,
                 ReadExtent(request.dataset,
                            {.key = tier::KeyOf(catalog, request.extent),
                             .pieces = pieces,
                             .objects = NameObjects(catalog, request.extent),
                             .group_key = request.dataset.group_key(request.extent)},
                            supplied.image.bytes(), read));
  return supplied;
}

Result<tier::ExtentChecksums> VerifySupplied(Dataset& dataset, const catalog::Catalog& catalog,
                                             ExtentId extent, const SuppliedExtent& supplied,
                                             bool* is_intact) {
  if (is_intact != nullptr) *is_intact = false;
  const std::shared_ptr<const PackedForm> form = dataset.form();
  const bool is_packed = form && supplied.is_packed;
  const tier::ExtentKey raw_key = tier::KeyOf(catalog, extent);
  const tier::ExtentKey key = is_packed ? form->Key(raw_key) : raw_key;
  const std::span<const std::byte> image = supplied.image.bytes();
  const Error not_intact(ErrorCode::kDataLoss,
                         fmt::format("extent {} came with bytes that do not match its checksum",
                                     extent.value()));
  std::vector<catalog::Range> pieces;
  if (is_packed) {
    FOREBAY_ASSIGN(pieces, PackedPieces(*form, key, image));
  } else {
    if (image.size() != catalog.extent(extent).bytes) return not_intact;
    // With a packed form, pieces are known once the image is packed.
    if (!form) FOREBAY_TRY(catalog.Pieces(extent, pieces));
  }
  // The checksum covers the identity of the extent that was asked for, so that intact bytes of
  // another extent do not pass.
  tier::ExtentChecksums found = tier::ComputeChecksums(key, image, pieces);
  if (found.image != supplied.checksums.image) return not_intact;
  // First reads are checksums of raw bytes. That of a packed image lies in its directory.
  std::uint64_t raw_checksum = found.image;
  if (is_packed) {
    FOREBAY_ASSIGN(const PackedDirectory directory, PackedDirectory::OpenIn(*form, key, image));
    raw_checksum = directory.raw_checksum();
  }
  if (is_intact != nullptr) *is_intact = true;
  // The other node may see other bytes on the GFS than this one did. Then neither copy may be
  // served here.
  if (dataset.first_reads().Compare(raw_key, raw_checksum) == FirstReads::Outcome::kChanged) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("extent {} does not match this node's first read of it",
                             extent.value()));
  }
  // Other nodes were asked before a rebuild replaced the data set, if one has.
  FOREBAY_TRY(dataset.version().ShareRead(raw_key, raw_checksum, /*successors=*/0));
  return found;
}

bool IsNoAnswer(const Error& error) {
  return error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kDeadlineExceeded;
}

// The errno tells this refusal apart from a tier or a limit of another kind that is exhausted. No
// system call gives the two together (Error::FromErrno).
Error TooBusy(std::string message) {
  return Error(ErrorCode::kResourceExhausted, std::move(message), EBUSY);
}

bool IsTooBusy(const Error& error) {
  const bool is_refused =
      error.code() == ErrorCode::kResourceExhausted && error.system_errno() == EBUSY;
  return is_refused || IsNotSent(error);
}

// Told apart from a refusal in the same way.
Error NotSent(std::string message) {
  return Error(ErrorCode::kResourceExhausted, std::move(message), ETIME);
}

bool IsNotSent(const Error& error) {
  return error.code() == ErrorCode::kResourceExhausted && error.system_errno() == ETIME;
}

// Told apart from other errors of a GFS in the same way.
Error AskNext(std::string message) {
  return Error(ErrorCode::kAborted, std::move(message), EBUSY);
}

bool IsAskNext(const Error& error) {
  return error.code() == ErrorCode::kAborted && error.system_errno() == EBUSY;
}

// Two nodes must not confuse "this node has failed" with "this node's GFS has failed": only the
// first is a reason to ask the next node.
Error ErrorForOthers(const Error& error) {
  if (IsNoAnswer(error) || IsTooBusy(error)) return Error(ErrorCode::kAborted, error.message());
  if (error.code() == ErrorCode::kCancelled) {
    return Error(ErrorCode::kUnavailable, error.message());
  }
  return error;
}

Error ErrorFromOthers(const Error& error) {
  const bool is_passing = error.code() == ErrorCode::kAborted || IsTooBusy(error);
  return is_passing ? Error(ErrorCode::kUnavailable, error.message()) : error;
}

}  // namespace forebay::stage
