#include "tests/model/model_node.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "proto/contract/check.h"
#include "server/stage/cataloguing/saved_catalog.h"

namespace forebay::model {
namespace {

constexpr std::uint64_t kDiskBytes = 1ULL << 30;

// For what must work: files of a memory back end.
void Must(const Status& status) { FOREBAY_CHECK(status.has_value()); }
template <typename T>
T Must(Result<T> result) {
  FOREBAY_CHECK(result.has_value());
  return std::move(*result);
}

std::string ParentOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Moves a file and makes that durable.
void Move(io::MemoryBackend& memory, const std::string& from, const std::string& to) {
  const auto root = Must(memory.OpenDirectory("/"));
  Must(root->Rename(from.substr(1), to.substr(1)));
  Must(root->Sync(ParentOf(from).substr(1)));
  Must(root->Sync(ParentOf(to).substr(1)));
}

// Hidden objects have flat names.
std::string HiddenName(std::string path) {
  for (char& c : path) {
    if (c == '/') c = '_';
  }
  return "/away/" + path;
}

}  // namespace

ModelNode::ModelNode(const SequencePlan& plan, std::string folder)
    : plan_(plan),
      folder_(std::move(folder)),
      catalog_name_(stage::SavedCatalogName(plan.data.Source())),
      memory_({.capacity_bytes = kDiskBytes,
               .completion_seed = plan.tiers.completion_seed}) {
  for (const char* directory : {"/gfs", "/ssd", "/state", "/away"}) {
    Must(memory_.AddDirectory(directory));
  }
}

Status ModelNode::Start() {
  FOREBAY_CHECK(rooms_ == nullptr);
  const TierPlan& tiers = plan_.tiers;
  stream::ServeOptions options;
  options.ram_bytes = tiers.ram.capacity_bytes;
  options.ram_plan = tiers.ram;
  options.slot_bytes = 64 << 20;  // for any batch that is drawn
  options.ssd_bytes = tiers.ssd_bytes;
  options.extent_bytes = plan_.data.extent_bytes;
  options.readers = tiers.readers;
  options.workers = tiers.workers;
  options.persist = tiers.persists;
  options.source = plan_.data.Source();
  options.compression = tiers.compression;
  options.request_bytes = plan_.data.extent_bytes / 4;
  options.scan_depth = 2;
  // Long enough for a fault that strikes once, short enough for one that stays.
  options.patience = stage::PatienceOptions{.retry_for_ms = 8, .retry_max_interval_ms = 1};
  if (tiers.saves_state) {
    FOREBAY_ASSIGN(catalogs_, backend_.OpenDirectory("/state"));
    options.catalogs = catalogs_.get();
    options.catalog_path = folder_;
    BringStateToFolder();
  }
  FOREBAY_ASSIGN(rooms_, stream::ServeFixture::Create(backend_, 0, options));
  return {};
}

void ModelNode::Stop() {
  rooms_.reset();
  catalogs_.reset();
}

std::string ModelNode::state_path(std::string_view suffix) const {
  return "/state/" + catalog_name_ + std::string(suffix);
}

void ModelNode::BringStateToFolder() {
  if (!plan_.tiers.saves_state) return;
  const std::string path = folder_ + "/" + catalog_name_;
  const auto found = memory_.FileBytes(state_path(""));
  if (!found.has_value()) {
    std::filesystem::remove(path);
    brought_.clear();
    return;
  }
  if (*found == brought_ && std::filesystem::exists(path)) return;
  brought_ = *found;
  // A new file: the one before may be mapped.
  std::filesystem::remove(path);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(brought_.data()),
             static_cast<std::streamsize>(brought_.size()));
  FOREBAY_CHECK(file.good());
}

void ModelNode::RemoveState() {
  const auto state = Must(memory_.OpenDirectory("/state"));
  for (const io::DirectoryEntry& entry : Must(state->List(""))) Must(state->Unlink(entry.name));
  Must(state->Sync(""));
}

bool ModelNode::FlipBit(const std::string& path, std::uint64_t draw) {
  const std::uint64_t bytes = FileBytes(path);
  if (bytes == 0) return false;
  Must(memory_.FlipBit(path, draw % (bytes * 8)));
  return true;
}

io::FaultInjector& ModelNode::faults(FaultPlace place) {
  switch (place) {
    case FaultPlace::kGfs: return gfs_faults_;
    case FaultPlace::kSsd: return ssd_faults_;
    case FaultPlace::kState: break;
  }
  return state_faults_;
}

std::int64_t ModelNode::PutObject(const std::string& path, std::string_view bytes) {
  Must(memory_.AddFile("/gfs/" + path, std::as_bytes(std::span(bytes))));
  const auto root = Must(memory_.OpenDirectory("/gfs"));
  return Must(root->Stat(path)).mtime_ns;
}

void ModelNode::FlipObject(const std::string& path, std::uint64_t bit) {
  Must(memory_.FlipBit("/gfs/" + path, bit));
}

void ModelNode::HideObject(const std::string& path) {
  Move(memory_, "/gfs/" + path, HiddenName(path));
}

void ModelNode::ShowObject(const std::string& path) {
  Move(memory_, HiddenName(path), "/gfs/" + path);
}

std::uint64_t ModelNode::FileBytes(const std::string& path) const {
  const auto bytes = memory_.FileBytes(path);
  return bytes.has_value() ? bytes->size() : 0;
}

void ModelNode::TruncateFile(const std::string& path, std::uint64_t bytes) {
  const auto root = Must(memory_.OpenDirectory("/"));
  const auto file = Must(root->Open(path.substr(1), io::OpenMode::kAppend));
  Must(file->Truncate(bytes));
}

void ModelNode::RemoveFile(const std::string& path) {
  const auto root = Must(memory_.OpenDirectory("/"));
  Must(root->Unlink(path.substr(1)));
}

void ModelNode::FillDisk(std::uint64_t spare_bytes) {
  const auto root = Must(memory_.OpenDirectory("/"));
  const io::Directory::Space space = Must(root->FreeSpace());
  memory_.SetCapacity(space.total_bytes - space.free_bytes + spare_bytes);
}

void ModelNode::FreeDisk() { memory_.SetCapacity(kDiskBytes); }

}  // namespace forebay::model
