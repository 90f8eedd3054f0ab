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
#include "server/rendezvous/host_port.h"
#include "server/rendezvous/node_file.h"

namespace forebay::rendezvous {
namespace {

constexpr const char* kName = "forebayd.nodes";
constexpr const char* kTemporary = "forebayd.nodes.new";
// A number of milliseconds, in decimal. If it is missing or no number, the next daemon stays, so it
// needs no checksum.
constexpr const char* kDeparture = "forebayd.leaves";
constexpr std::uint64_t kDepartureBytesMax = 20;  // digits
// The address of the node that was in the place before. If it is missing or no address, that node
// is not told, so it needs no checksum, either.
constexpr const char* kBefore = "forebayd.before";
constexpr std::uint64_t kBeforeBytesMax = limits::kHostNameBytesMax + 8;  // "[host]:65535"

// Returns whether `name` is gone.
Status RemoveFile(io::Directory& directory, const char* name) {
  const Status removed = directory.Unlink(name);
  if (removed.has_value() || removed.error().code() == ErrorCode::kNotFound) return {};
  return removed.error().WithContext(name);
}

// Whether the entry that was kept is that of a daemon which is started again.
bool IsOwn(const NodeEntry& kept, const NodeEntry& own) {
  if (kept.identity == own.identity) {
    const Status room = CheckRoom(kept, own);
    if (room.has_value()) return true;
    log::Info("the list of nodes that an earlier daemon has left is not used: {}",
              room.error().ToString());
    return false;
  }
  log::Info("the list of nodes that an earlier daemon has left is of {}, and not of {}",
            kept.Text(), own.Text());
  return false;
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

// Empty: there is none that can be used.
std::vector<NodeEntry> KeptList::ReadList() const {
  const auto try_read = [this]() -> Result<std::optional<NodeFile>> {
    FOREBAY_ASSIGN(const auto queue, OpenQueue());
    return ReadNodeFile(*directory_, *queue, kName);
  };
  Result<std::optional<NodeFile>> read = try_read();
  if (!read.has_value()) {
    // A node without it finds the others as at the first start.
    log::Warn("the list of nodes that an earlier daemon has left cannot be used: {}",
              read.error().ToString());
    return {};
  }
  if (!*read) return {};
  std::vector<NodeEntry> nodes = std::move((*read)->nodes);
  // Its writer has made sure of this; another version of Forebay may not have.
  bool is_good = CheckNodeList(nodes, static_cast<std::uint32_t>(nodes.size())).has_value();
  for (std::uint32_t rank = 0; is_good && rank < nodes.size(); ++rank) {
    is_good = nodes[rank].rank == NodeRank(rank);
  }
  if (!is_good) nodes.clear();
  return nodes;
}

std::optional<std::vector<NodeEntry>> KeptList::Find(const NodeEntry& own,
                                                     std::uint32_t node_count) {
  std::vector<NodeEntry> nodes = ReadList();
  if (nodes.size() != node_count || !IsOwn(nodes[own.rank.value()], own)) return std::nullopt;
  return nodes;
}

std::optional<KeptList::OwnPlace> KeptList::FindOwn(const NodeEntry& own) {
  std::vector<NodeEntry> nodes = ReadList();
  const auto found = std::ranges::find(nodes, own.identity, &NodeEntry::identity);
  if (found == nodes.end() || !IsOwn(*found, own)) return std::nullopt;
  const NodeRank rank = found->rank;
  return OwnPlace{.nodes = std::move(nodes), .rank = rank};
}

Status KeptList::Keep(const std::vector<NodeEntry>& nodes, const std::string& address_before) {
  FOREBAY_TRY(RemoveFile(*directory_, kDeparture));
  FOREBAY_TRY(RemoveAddressBefore());
  if (!address_before.empty()) FOREBAY_TRY(WriteText(kBefore, address_before));
  return Update(nodes);
}

Status KeptList::Update(const std::vector<NodeEntry>& nodes) {
  FOREBAY_ASSIGN(const auto queue, OpenQueue());
  const Status kept = WriteNodeFile(*directory_, *queue,
                                    {.kind = NodeFileKind::kComplete,
                                     .node_count = static_cast<std::uint32_t>(nodes.size()),
                                     .nodes = nodes},
                                    kName, kTemporary);
  if (!kept.has_value()) return kept.error().WithContext("keeping the list of nodes");
  return {};
}

// Replaces the file.
Status KeptList::WriteText(const char* name, const std::string& text) {
  FOREBAY_TRY(RemoveFile(*directory_, name));
  FOREBAY_ASSIGN(const auto file, directory_->Open(name, io::OpenMode::kCreate));
  FOREBAY_ASSIGN(const auto queue, OpenQueue());
  FOREBAY_TRY(io::WriteFully(*queue, *file, 0, std::as_bytes(std::span(text))));
  return io::DataSync(*queue, *file);
}

// Nullopt: there is no such file. Of a longer one, the first `bytes_max` bytes.
Result<std::optional<std::string>> KeptList::ReadText(const char* name,
                                                      std::uint64_t bytes_max) const {
  const auto file = directory_->Open(name, io::OpenMode::kRead);
  if (!file.has_value() && file.error().code() == ErrorCode::kNotFound) return std::nullopt;
  if (!file.has_value()) return file.error();
  FOREBAY_ASSIGN(const io::FileInfo info, (*file)->Info());
  FOREBAY_ASSIGN(const auto queue, OpenQueue());
  std::string text(std::min(info.bytes, bytes_max), '\0');
  FOREBAY_TRY(io::ReadFully(*queue, **file, 0, std::as_writable_bytes(std::span(text))));
  return std::optional(std::move(text));
}

Status KeptList::KeepDeparture(std::int64_t time_ms) {
  return WriteText(kDeparture, std::to_string(time_ms));
}

std::optional<std::int64_t> KeptList::FindDeparture() {
  const auto read = [this]() -> Result<std::optional<std::int64_t>> {
    FOREBAY_ASSIGN(const auto text, ReadText(kDeparture, kDepartureBytesMax));
    if (!text) return std::nullopt;
    std::int64_t time_ms = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), time_ms);
    const bool is_number = error == std::errc() && end == text->data() + text->size();
    if (is_number && time_ms > 0 && time_ms <= limits::kLeaveMsMax) return time_ms;
    return Error(ErrorCode::kDataLoss, "it is damaged");
  }();
  if (read.has_value()) return *read;
  log::Warn("the daemon before this one was leaving the job, but its file {} cannot be used, so "
            "this one stays (remedy: forebay drain --node): {}",
            kDeparture, read.error().ToString());
  return std::nullopt;
}

std::string KeptList::FindAddressBefore() {
  const auto read = [this]() -> Result<std::string> {
    FOREBAY_ASSIGN(const auto text, ReadText(kBefore, kBeforeBytesMax));
    if (!text) return std::string();
    FOREBAY_ASSIGN(const HostPort address, ParseHostPort(*text));
    if (address.port != 0) return *text;
    return Error(ErrorCode::kDataLoss, "it has no port");
  }();
  if (read.has_value()) return *read;
  log::Warn("the file {}, with the address of the node that was in the place of this one before, "
            "cannot be used, so that node is not told; if it stood still and goes on, stop its "
            "daemon: {}",
            kBefore, read.error().ToString());
  return {};
}

Status KeptList::RemoveAddressBefore() { return RemoveFile(*directory_, kBefore); }

void KeptList::Remove() {
  for (const char* const name : {kDeparture, kBefore, kName}) {
    const Status removed = RemoveFile(*directory_, name);
    if (!removed.has_value()) log::Warn("could not be removed: {}", removed.error().ToString());
  }
}

}  // namespace forebay::rendezvous
