// A tree of nodes under one lock. Simple before fast: each operation walks its path from the base,
// and a crash visits every node.
#include "server/io/testing/memory_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "proto/contract/mix64.h"
#include "proto/contract/printable.h"
#include "server/io/posix/path_resolver.h"
#include "server/io/posix/posix_file.h"

namespace forebay::io {
namespace {

// Every node that either tree reaches, in an order that depends on names only.
void Collect(const MemoryFileSystem::NodePtr& node,
             std::vector<MemoryFileSystem::NodePtr>& found, std::set<const MemoryNode*>& seen) {
  if (!seen.insert(node.get()).second) return;
  found.push_back(node);
  for (const auto& child : node->live_children) Collect(child.second, found, seen);
  for (const auto& child : node->durable_children) Collect(child.second, found, seen);
}

std::vector<MemoryFileSystem::NodePtr> AllNodes(const MemoryFileSystem::NodePtr& root) {
  std::vector<MemoryFileSystem::NodePtr> found;
  std::set<const MemoryNode*> seen;
  Collect(root, found, seen);
  return found;
}

bool Reaches(const MemoryNode& from, const MemoryNode* wanted) {
  if (&from == wanted) return true;
  for (const auto& child : from.live_children) {
    if (Reaches(*child.second, wanted)) return true;
  }
  return false;
}

void MarkDirty(MemoryNode& node, std::uint64_t begin, std::uint64_t end) {
  const bool is_clean = node.dirty_begin == node.dirty_end;
  node.dirty_begin = is_clean ? begin : std::min(node.dirty_begin, begin);
  node.dirty_end = is_clean ? end : std::max(node.dirty_end, end);
}

void MakeDurable(MemoryNode& node) {
  node.durable.resize(node.live.size());
  const std::uint64_t end = std::min<std::uint64_t>(node.dirty_end, node.live.size());
  if (node.dirty_begin < end) {
    std::memcpy(node.durable.data() + node.dirty_begin, node.live.data() + node.dirty_begin,
                end - node.dirty_begin);
  }
  node.dirty_begin = node.dirty_end = 0;
}

// Chooses the old or the new state for each block, for the size and for the children.
void KeepRandomSubset(MemoryNode& node, std::size_t torn_bytes, std::uint64_t& random) {
  if ((NextWord64(random) & 1) != 0) node.durable_children = node.live_children;
  MemoryNode::Bytes mixed = (NextWord64(random) & 1) != 0 ? node.live : node.durable;
  for (std::size_t begin = 0; begin < mixed.size(); begin += torn_bytes) {
    const MemoryNode::Bytes& source = (NextWord64(random) & 1) != 0 ? node.live : node.durable;
    const std::size_t end = std::min(begin + torn_bytes, mixed.size());
    for (std::size_t i = begin; i < end; ++i) {
      mixed[i] = i < source.size() ? source[i] : std::byte{0};
    }
  }
  node.durable = std::move(mixed);
}

}  // namespace

MemoryFileSystem::MemoryFileSystem(std::uint64_t capacity_bytes)
    : root_(MakeNode(true)), capacity_bytes_(capacity_bytes) {}

MemoryFileSystem::~MemoryFileSystem() {
  // Renames of directories can make a cycle between the live and the durable tree.
  for (const NodePtr& node : AllNodes(root_)) {
    node->live_children.clear();
    node->durable_children.clear();
  }
}

MemoryFileSystem::NodePtr MemoryFileSystem::MakeNode(bool is_directory) {
  auto node = std::make_shared<MemoryNode>();
  node->is_directory = is_directory;
  Touch(*node);
  return node;
}

Status MemoryFileSystem::CheckHandle(const Handle& handle) const {
  if (handle.generation == generation_) return {};
  return Error(ErrorCode::kUnavailable, "opened before the simulated crash");
}

Result<MemoryFileSystem::NodePtr> MemoryFileSystem::Walk(const Handle& base,
                                                         std::string_view path) const {
  FOREBAY_TRY(CheckHandle(base));
  NodePtr node = base.node;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
    if (!node->is_directory) return FileError(ENOTDIR, "open " + Quoted(name));
    const auto child = node->live_children.find(name);
    if (child == node->live_children.end()) return FileError(ENOENT, "open " + Quoted(name));
    node = child->second;
  }
  return node;
}

Result<MemoryFileSystem::Parent> MemoryFileSystem::WalkToParent(const Handle& base,
                                                                std::string_view path) const {
  const auto [directory, name] = SplitLeaf(path);
  FOREBAY_ASSIGN(const NodePtr node, Walk(base, directory));
  if (!node->is_directory) return FileError(ENOTDIR, "open " + Quoted(path));
  return Parent{node.get(), std::string(name)};
}

Result<MemoryFileSystem::Handle> MemoryFileSystem::Find(const Handle& base,
                                                        std::string_view path) const {
  MutexLock lock(mutex_);
  FOREBAY_ASSIGN(NodePtr node, Walk(base, path));
  return Handle{std::move(node), generation_};
}

Result<MemoryFileSystem::Handle> MemoryFileSystem::OpenFile(const Handle& base,
                                                            std::string_view path,
                                                            OpenMode mode) {
  MutexLock lock(mutex_);
  if (mode == OpenMode::kUnnamed || mode == OpenMode::kUnnamedDirect) {
    FOREBAY_ASSIGN(const NodePtr directory, Walk(base, path));
    if (!directory->is_directory) return FileError(ENOTDIR, "open " + Quoted(path));
    NodePtr node = MakeNode(false);
    // As a file that was unlinked while it is open, its bytes do not count against the capacity.
    node->is_linked = false;
    return Handle{std::move(node), generation_};
  }
  FOREBAY_ASSIGN(const Parent parent, WalkToParent(base, path));
  const auto child = parent.node->live_children.find(parent.name);
  const bool is_there = child != parent.node->live_children.end();
  const bool must_create = mode == OpenMode::kCreate || mode == OpenMode::kCreateDirect;
  if (is_there && must_create) return FileError(EEXIST, "open " + Quoted(path));
  if (is_there && child->second->is_directory) {
    return Error(ErrorCode::kInvalidArgument, Quoted(path) + " is not a regular file", EISDIR);
  }
  if (is_there) return Handle{child->second, generation_};
  if (!must_create && mode != OpenMode::kAppend) {
    return FileError(ENOENT, "open " + Quoted(path));
  }
  NodePtr node = MakeNode(false);
  parent.node->live_children.emplace(parent.name, node);
  Touch(*parent.node);
  return Handle{std::move(node), generation_};
}

Result<std::vector<DirectoryEntry>> MemoryFileSystem::List(const Handle& base,
                                                           std::string_view path) const {
  MutexLock lock(mutex_);
  FOREBAY_ASSIGN(const NodePtr node, Walk(base, path));
  if (!node->is_directory) return FileError(ENOTDIR, "list " + Quoted(path));
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, child] : node->live_children) {
    entries.push_back({name, child->is_directory, !child->is_directory});
  }
  return entries;
}

Status MemoryFileSystem::MakeDirectory(const Handle& base, std::string_view path) {
  MutexLock lock(mutex_);
  FOREBAY_ASSIGN(const Parent parent, WalkToParent(base, path));
  if (parent.node->live_children.count(parent.name) != 0) {
    return FileError(EEXIST, "make directory " + Quoted(path));
  }
  parent.node->live_children.emplace(parent.name, MakeNode(true));
  Touch(*parent.node);
  return {};
}

Status MemoryFileSystem::Rename(const Handle& base, std::string_view from, std::string_view to) {
  MutexLock lock(mutex_);
  const auto fail = [&](int system_errno) {
    return FileError(system_errno, "rename " + Quoted(from) + " to " + Quoted(to));
  };
  FOREBAY_ASSIGN(const Parent source, WalkToParent(base, from));
  FOREBAY_ASSIGN(const Parent target, WalkToParent(base, to));
  const auto moving = source.node->live_children.find(source.name);
  if (moving == source.node->live_children.end()) return fail(ENOENT);
  const NodePtr node = moving->second;
  if (node->is_directory && Reaches(*node, target.node)) return fail(EINVAL);
  const auto existing = target.node->live_children.find(target.name);
  if (existing != target.node->live_children.end()) {
    MemoryNode& replaced = *existing->second;
    if (&replaced == node.get()) return {};
    if (replaced.is_directory && !node->is_directory) return fail(EISDIR);
    if (!replaced.is_directory && node->is_directory) return fail(ENOTDIR);
    if (!replaced.live_children.empty()) return fail(ENOTEMPTY);
    Drop(replaced);
  }
  target.node->live_children[target.name] = node;
  source.node->live_children.erase(source.name);
  Touch(*source.node);
  Touch(*target.node);
  return {};
}

Status MemoryFileSystem::Remove(const Handle& base, std::string_view path, bool is_directory) {
  MutexLock lock(mutex_);
  FOREBAY_ASSIGN(const Parent parent, WalkToParent(base, path));
  const auto child = parent.node->live_children.find(parent.name);
  const std::string what = "remove " + Quoted(path);
  if (child == parent.node->live_children.end()) return FileError(ENOENT, what);
  if (child->second->is_directory != is_directory) {
    return FileError(is_directory ? ENOTDIR : EISDIR, what);
  }
  if (!child->second->live_children.empty()) return FileError(ENOTEMPTY, what);
  Drop(*child->second);
  parent.node->live_children.erase(child);
  Touch(*parent.node);
  return {};
}

Status MemoryFileSystem::SyncDirectory(const Handle& base, std::string_view path) {
  MutexLock lock(mutex_);
  FOREBAY_ASSIGN(const NodePtr node, Walk(base, path));
  if (!node->is_directory) return FileError(ENOTDIR, "sync directory " + Quoted(path));
  node->durable_children = node->live_children;
  return {};
}

Result<FileInfo> MemoryFileSystem::Info(const Handle& file) const {
  MutexLock lock(mutex_);
  FOREBAY_TRY(CheckHandle(file));
  FileInfo info;
  info.bytes = file.node->live.size();
  info.mtime_ns = file.node->mtime_ns;
  info.is_directory = file.node->is_directory;
  info.is_regular = !file.node->is_directory;
  return info;
}

Result<std::uint64_t> MemoryFileSystem::Read(const Handle& file, std::uint64_t offset,
                                             std::span<std::byte> buffer) const {
  MutexLock lock(mutex_);
  FOREBAY_TRY(CheckHandle(file));
  const MemoryNode::Bytes& live = file.node->live;
  if (offset >= live.size() || buffer.empty()) return std::uint64_t{0};
  const std::uint64_t count = std::min<std::uint64_t>(buffer.size(), live.size() - offset);
  std::memcpy(buffer.data(), live.data() + offset, count);
  return count;
}

Result<std::uint64_t> MemoryFileSystem::Write(const Handle& file, OpenMode mode,
                                              std::uint64_t offset,
                                              std::span<const std::byte> data) {
  MutexLock lock(mutex_);
  FOREBAY_TRY(CheckHandle(file));
  MemoryNode& node = *file.node;
  const std::uint64_t begin = mode == OpenMode::kAppend ? node.live.size() : offset;
  if (data.empty()) return std::uint64_t{0};
  FOREBAY_TRY(Grow(node, begin + data.size()));
  std::memcpy(node.live.data() + begin, data.data(), data.size());
  MarkDirty(node, begin, begin + data.size());
  Touch(node);
  return std::uint64_t{data.size()};
}

Result<std::uint64_t> MemoryFileSystem::SyncData(const Handle& file) {
  MutexLock lock(mutex_);
  FOREBAY_TRY(CheckHandle(file));
  MakeDurable(*file.node);
  return std::uint64_t{0};
}

Status MemoryFileSystem::Resize(const Handle& file, std::uint64_t bytes, bool may_shrink) {
  MutexLock lock(mutex_);
  FOREBAY_TRY(CheckHandle(file));
  MemoryNode& node = *file.node;
  if (bytes > node.live.size()) {
    FOREBAY_TRY(Grow(node, bytes));
  } else if (may_shrink) {
    ChangeSize(node, bytes);
  }
  Touch(node);
  return {};
}

Status MemoryFileSystem::Grow(MemoryNode& node, std::uint64_t bytes) {
  if (bytes <= node.live.size()) return {};
  const std::uint64_t growth = bytes - node.live.size();
  const std::uint64_t free = capacity_bytes_ - std::min(capacity_bytes_, used_bytes_);
  if (growth > free) {
    return FileError(ENOSPC, "grow a file by " + std::to_string(growth) + " bytes");
  }
  ChangeSize(node, bytes);
  return {};
}

void MemoryFileSystem::ChangeSize(MemoryNode& node, std::uint64_t bytes) {
  const std::uint64_t before = node.live.size();
  node.live.resize(bytes);
  if (node.is_linked) used_bytes_ = used_bytes_ + bytes - before;
  MarkDirty(node, std::min(before, bytes), std::max(before, bytes));
}

// A name was removed from the live tree. Its bytes are free at once, as on a file system that
// commits its journal quickly.
void MemoryFileSystem::Drop(MemoryNode& node) {
  node.is_linked = false;
  used_bytes_ -= node.live.size();
}

MemoryFileSystem::Handle MemoryFileSystem::Root() const {
  MutexLock lock(mutex_);
  return {root_, generation_};
}

Directory::Space MemoryFileSystem::FreeSpace() const {
  MutexLock lock(mutex_);
  return {.free_bytes = capacity_bytes_ - std::min(capacity_bytes_, used_bytes_),
          .total_bytes = capacity_bytes_};
}

void MemoryFileSystem::SetCapacity(std::uint64_t capacity_bytes) {
  MutexLock lock(mutex_);
  capacity_bytes_ = capacity_bytes;
}

void MemoryFileSystem::Crash(const CrashOptions& options) {
  MutexLock lock(mutex_);
  std::uint64_t random = options.seed;
  const std::size_t torn_bytes = std::max<std::size_t>(options.torn_bytes, 1);
  const std::vector<NodePtr> nodes = AllNodes(root_);
  for (const NodePtr& node : nodes) {
    if (options.mode == CrashMode::kRandomSubset) KeepRandomSubset(*node, torn_bytes, random);
    if (options.mode == CrashMode::kRenameWithoutData) node->durable_children = node->live_children;
    node->live = node->durable;
    node->live_children = node->durable_children;
    node->dirty_begin = node->dirty_end = 0;
    node->is_linked = false;
  }
  used_bytes_ = 0;
  for (const NodePtr& node : AllNodes(root_)) {
    node->is_linked = true;
    used_bytes_ += node->live.size();
  }
  ++generation_;
}

MemoryFileSystem::NodePtr MemoryFileSystem::AddDirectoryLocked(std::string_view relative_path) {
  NodePtr node = root_;
  while (!relative_path.empty()) {
    const std::size_t slash = relative_path.find('/');
    const std::string name(relative_path.substr(0, slash));
    relative_path = slash == std::string_view::npos ? std::string_view()
                                                    : relative_path.substr(slash + 1);
    NodePtr& child = node->live_children[name];
    if (child == nullptr) child = MakeNode(true);
    node->durable_children[name] = child;
    node = child;
  }
  return node;
}

MemoryFileSystem::Handle MemoryFileSystem::AddDirectory(std::string_view relative_path) {
  MutexLock lock(mutex_);
  return {AddDirectoryLocked(relative_path), generation_};
}

void MemoryFileSystem::AddFile(std::string_view relative_path,
                               std::span<const std::byte> bytes) {
  MutexLock lock(mutex_);
  const auto [directory, name] = SplitLeaf(relative_path);
  const NodePtr parent = AddDirectoryLocked(directory);
  const std::string key(name);
  if (const auto old = parent->live_children.find(key); old != parent->live_children.end()) {
    Drop(*old->second);
  }
  NodePtr node = MakeNode(false);
  node->live.assign(bytes.begin(), bytes.end());
  node->durable = node->live;
  used_bytes_ += bytes.size();
  parent->live_children[key] = node;
  parent->durable_children[key] = node;
}

Result<std::vector<std::byte>> MemoryFileSystem::FileBytes(std::string_view relative_path) const {
  MutexLock lock(mutex_);
  FOREBAY_ASSIGN(const NodePtr node, Walk({root_, generation_}, relative_path));
  if (node->is_directory) return FileError(EISDIR, "read " + Quoted(relative_path));
  return node->live;
}

Status MemoryFileSystem::FlipBit(std::string_view relative_path, std::uint64_t bit_index) {
  MutexLock lock(mutex_);
  FOREBAY_ASSIGN(const NodePtr node, Walk({root_, generation_}, relative_path));
  const std::uint64_t at = bit_index / 8;
  if (at >= node->live.size()) {
    return Error(ErrorCode::kOutOfRange, "bit " + std::to_string(bit_index) + " of " +
                                             Quoted(relative_path) + " is beyond its end");
  }
  const auto mask = static_cast<std::byte>(1U << (bit_index % 8));
  node->live[at] ^= mask;
  if (at < node->durable.size()) node->durable[at] ^= mask;
  return {};
}

void MemoryFileSystem::CountOpenFile(int change) {
  MutexLock lock(mutex_);
  open_file_count_ += static_cast<std::size_t>(change);
  open_file_peak_ = std::max(open_file_peak_, open_file_count_);
}

std::size_t MemoryFileSystem::open_file_peak() const {
  MutexLock lock(mutex_);
  return open_file_peak_;
}

std::size_t MemoryFileSystem::open_file_count() const {
  MutexLock lock(mutex_);
  return open_file_count_;
}

}  // namespace forebay::io
