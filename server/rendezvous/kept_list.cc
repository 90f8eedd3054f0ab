// The file has the format of the list in a rendezvous directory. Whether the launch still runs
// cannot be seen here: the caller asks the other nodes.
#include "server/rendezvous/kept_list.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <string>
#include <utility>

#include "proto/contract/limits.h"
#include "server/io/log.h"
#include "server/rendezvous/node_file.h"

namespace forebay::rendezvous {
namespace {

constexpr const char* kName = "forebayd.nodes";
constexpr const char* kTemporary = "forebayd.nodes.new";
// A number of milliseconds, in decimal. If it is missing or no number, the next daemon stays, so it
// needs no checksum.
constexpr const char* kDeparture = "forebayd.leaves";
constexpr std::uint64_t kDepartureBytesMax = 20;  // digits

// Returns whether `name` is gone.
Status RemoveFile(io::Directory& directory, const char* name) {
  const Status removed = directory.Unlink(name);
  if (removed.has_value() || removed.error().code() == ErrorCode::kNotFound) return {};
  return removed.error().WithContext(name);
}

}  // namespace

Result<KeptList> KeptList::Open(io::IoBackend& backend, const std::string& directory) {
  FOREBAY_ASSIGN(auto opened, backend.OpenDirectory(directory));
  return KeptList(backend, std::move(opened));
}

// A queue belongs to the thread that has made it, and a departure is kept by any thread.
Result<std::unique_ptr<io::IoQueue>> KeptList::OpenQueue() const {
  return backend_->CreateQueue({.depth = 1});
}

std::optional<std::vector<NodeEntry>> KeptList::Find(const NodeEntry& own,
                                                     std::uint32_t node_count) {
  const auto try_read = [this]() -> Result<std::optional<NodeFile>> {
    FOREBAY_ASSIGN(const auto queue, OpenQueue());
    return ReadNodeFile(*directory_, *queue, kName);
  };
  Result<std::optional<NodeFile>> read = try_read();
  if (!read.has_value()) {
    // A node without it finds the others as at the first start.
    log::Warn("the list of nodes that an earlier daemon has left cannot be used: {}",
              read.error().ToString());
    return std::nullopt;
  }
  if (!*read || (*read)->nodes.size() != node_count) return std::nullopt;
  std::vector<NodeEntry> nodes = std::move((*read)->nodes);
  // Its writer has made sure of this; another version of Forebay may not have.
  bool is_good = CheckNodeList(nodes, node_count).has_value();
  for (std::uint32_t rank = 0; is_good && rank < node_count; ++rank) {
    is_good = nodes[rank].rank == NodeRank(rank);
  }
  if (!is_good) return std::nullopt;
  NodeEntry kept = nodes[own.rank.value()];
  kept.address = own.address;
  kept.nonce = own.nonce;
  if (kept == own) return nodes;
  log::Info("the list of nodes that an earlier daemon has left is of {}, and not of {} with the "
            "same capacity of the tiers, versions, data sets and secret",
            kept.Text(), own.Text());
  return std::nullopt;
}

Status KeptList::Keep(const std::vector<NodeEntry>& nodes) {
  FOREBAY_TRY(RemoveFile(*directory_, kDeparture));
  FOREBAY_ASSIGN(const auto queue, OpenQueue());
  const Status kept = WriteNodeFile(*directory_, *queue,
                                    {.kind = NodeFileKind::kComplete,
                                     .node_count = static_cast<std::uint32_t>(nodes.size()),
                                     .nodes = nodes},
                                    kName, kTemporary);
  if (!kept.has_value()) return kept.error().WithContext("keeping the list of nodes");
  return {};
}

Status KeptList::KeepDeparture(std::int64_t time_ms) {
  FOREBAY_TRY(RemoveFile(*directory_, kDeparture));
  FOREBAY_ASSIGN(const auto file, directory_->Open(kDeparture, io::OpenMode::kCreate));
  FOREBAY_ASSIGN(const auto queue, OpenQueue());
  const std::string text = std::to_string(time_ms);
  FOREBAY_TRY(io::WriteFully(*queue, *file, 0, std::as_bytes(std::span(text))));
  return io::DataSync(*queue, *file);
}

std::optional<std::int64_t> KeptList::FindDeparture() {
  const auto file = directory_->Open(kDeparture, io::OpenMode::kRead);
  if (!file.has_value() && file.error().code() == ErrorCode::kNotFound) return std::nullopt;
  const auto read = [&]() -> Result<std::int64_t> {
    if (!file.has_value()) return file.error();
    FOREBAY_ASSIGN(const io::FileInfo info, (*file)->Info());
    FOREBAY_ASSIGN(const auto queue, OpenQueue());
    std::string text(std::min(info.bytes, kDepartureBytesMax), '\0');
    FOREBAY_TRY(io::ReadFully(*queue, **file, 0, std::as_writable_bytes(std::span(text))));
    std::int64_t time_ms = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), time_ms);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && time_ms > 0 && time_ms <= limits::kLeaveMsMax) return time_ms;
    return Error(ErrorCode::kDataLoss, "it is damaged");
  }();
  if (read.has_value()) return *read;
  log::Warn("the daemon before this one was leaving the job, but its file {} cannot be used, so "
            "this one stays (remedy: forebay drain --node): {}",
            kDeparture, read.error().ToString());
  return std::nullopt;
}

void KeptList::Remove() {
  for (const char* const name : {kDeparture, kName}) {
    const Status removed = RemoveFile(*directory_, name);
    if (!removed.has_value()) log::Warn("could not be removed: {}", removed.error().ToString());
  }
}

}  // namespace forebay::rendezvous
