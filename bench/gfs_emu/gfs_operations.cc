// libfuse calls these functions on its threads, one per request in flight. Each asks for the fault
// that is due, reserves its time in the model, does the work on the backing folder, and sleeps
// until its deadline before it answers. A read is carried out before its time is reserved, because
// it costs what it answers.
#include "bench/gfs_emu/gfs_operations.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/gfs_emu/gfs_filesystem.h"
#include "bench/gfs_emu/parked_requests.h"

namespace forebay::bench {
namespace {

// The hidden folder's names, beneath which nothing is throttled.
constexpr std::string_view kControlFolder = ".gfs_emu";
constexpr std::string_view kCountersPath = ".gfs_emu/counters.json";
constexpr std::string_view kControlPath = ".gfs_emu/control";

// What an open file is: a backing file, or the text of the counters when it was opened.
struct Handle {
  UniqueFd fd;
  std::string text;
};

// What an open directory lists.
struct Listing {
  struct Entry {
    std::string name;
    ino_t number = 0;
    mode_t mode = 0;
  };
  std::vector<Entry> entries;
};

GfsMount& MountOf(fuse_req_t request) {
  return *static_cast<GfsMount*>(fuse_req_userdata(request));
}

GfsFilesystem& FilesystemOf(fuse_req_t request) { return *MountOf(request).filesystem; }

pid_t ThreadOf(fuse_req_t request) { return fuse_req_ctx(request)->pid; }

bool IsControl(std::string_view path) {
  return path == kControlFolder || path == kCountersPath || path == kControlPath;
}

// Sleeps to the deadline, in slices, so that a long stall does not outlive the session. With
// `ends_with_client` false is returned early where the client is being killed.
bool WaitUntil(fuse_req_t request, std::int64_t deadline_ns, bool ends_with_client = false) {
  // A slice bounds how long an unmount waits for requests that are sleeping.
  constexpr std::int64_t kSliceNs = 50'000'000;
  fuse_session* const session = MountOf(request).session;
  const std::optional<Requester> client =
      ends_with_client ? std::optional(Requester(ThreadOf(request))) : std::nullopt;
  for (std::int64_t now_ns = MonotonicNs(); now_ns < deadline_ns; now_ns = MonotonicNs()) {
    // The mount is going away: answering early is better than keeping its clients.
    if (fuse_session_exited(session) != 0) return true;
    if (client && client->IsBeingKilled()) return false;
    const std::int64_t until_ns = std::min(deadline_ns, now_ns + kSliceNs);
    const timespec until{.tv_sec = until_ns / 1'000'000'000, .tv_nsec = until_ns % 1'000'000'000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  }
  return true;
}

// Every request but those for the control files passes here: the fault that is due befalls it,
// or `carry_out` answers it. That is called with the kind of a fault which changes the answer,
// perhaps later and on another thread, so it must own what it needs.
template <typename CarryOut>
void Arrive(fuse_req_t request, GfsFilesystem::Arrival arrival, CarryOut carry_out) {
  // Faults are taken before anything is charged: a request that fails takes no disk time.
  arrival.thread_id = ThreadOf(request);
  const std::optional<Fault> fault = FilesystemOf(request).TakeFault(arrival);
  if (!fault) {
    carry_out(std::nullopt);
    return;
  }
  switch (fault->kind) {
    case FaultKind::kStall:
      if (WaitUntil(request, MonotonicNs() + fault->ms * 1'000'000, /*ends_with_client=*/true)) {
        carry_out(std::nullopt);
      } else {
        fuse_reply_err(request, EINTR);
      }
      return;
    // The thread returns to libfuse and serves others. The request is carried out when the faults
    // are cleared.
    case FaultKind::kHang:
      MountOf(request).parked->Park(
          request, fault->clear_count,
          [carry_out = std::move(carry_out)]() mutable { carry_out(std::nullopt); });
      return;
    case FaultKind::kShort:
    case FaultKind::kFlip: carry_out(fault->kind); return;
    case FaultKind::kError:
    case FaultKind::kOutage:
    case FaultKind::kRemount: fuse_reply_err(request, fault->error_number); return;
  }
}

std::string ChildPath(const std::string& parent, const char* name) {
  // Paths are kept without "./", so that globs of faults match what a user sees beneath the mount.
  return parent == "." ? std::string(name) : parent + "/" + name;
}

// Attributes of a control file or of a backing object. Returns an errno, 0 for success.
int StatPath(const GfsFilesystem& filesystem, const std::string& path, struct stat& attributes) {
  if (IsControl(path)) {
    attributes = {};
    attributes.st_mode = path == kControlFolder ? S_IFDIR | 0555
                         : path == kControlPath ? S_IFREG | 0644
                                                : S_IFREG | 0444;
    attributes.st_nlink = 1;
    attributes.st_uid = getuid();
    attributes.st_gid = getgid();
    return 0;
  }
  if (fstatat(filesystem.backing_fd(), path.c_str(), &attributes, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno;
  }
  return 0;
}

void Init(void*, fuse_conn_info* connection) {
  // Reads of 1 MiB are the largest that FUSE allows; clients ask for more, and the kernel cuts.
  // StreamTracker puts the pieces together again.
  connection->max_read = kGfsReadBytesMax;
  connection->max_write = kGfsReadBytesMax;  // libfuse derives the pages of a request from it
  // The page cache is bypassed (direct_io), and readahead would ask for bytes that no client
  // wanted.
  connection->max_readahead = 0;
  // The kernel allows 12 asynchronous reads of a mount by default. If 12 reads of one client were
  // not answered, all clients of the mount would wait.
  connection->max_background = 1024;
}

void ReplyEntry(fuse_req_t request, const std::string& path) {
  GfsFilesystem& filesystem = FilesystemOf(request);
  fuse_entry_param entry{};
  if (const int error = StatPath(filesystem, path, entry.attr); error != 0) {
    fuse_reply_err(request, error);
    return;
  }
  // Timeouts of attributes and entries stay 0 in `entry`, so the kernel asks again each time and
  // every look-up is counted.
  entry.ino = filesystem.NumberOf(path);
  fuse_reply_entry(request, &entry);
}

void Lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  const std::string path = ChildPath(FilesystemOf(request).object(parent).path, name);
  if (IsControl(path)) {
    ReplyEntry(request, path);
    return;
  }
  Arrive(request, {.operation = GfsOperation::kLookup, .number = parent, .path = path},
         [request, path](std::optional<FaultKind>) {
           WaitUntil(request, FilesystemOf(request).ChargeMetadata(ThreadOf(request),
                                                                   GfsOperation::kLookup));
           ReplyEntry(request, path);
         });
}

void ReplyAttributes(fuse_req_t request, const std::string& path) {
  struct stat attributes{};
  if (const int error = StatPath(FilesystemOf(request), path, attributes); error != 0) {
    fuse_reply_err(request, error);
    return;
  }
  fuse_reply_attr(request, &attributes, 0);
}

void Getattr(fuse_req_t request, fuse_ino_t number, fuse_file_info*) {
  const std::string& path = FilesystemOf(request).object(number).path;
  if (IsControl(path)) {
    ReplyAttributes(request, path);
    return;
  }
  Arrive(request, {.operation = GfsOperation::kGetattr, .number = number, .path = path},
         [request, &path](std::optional<FaultKind>) {
           WaitUntil(request, FilesystemOf(request).ChargeMetadata(ThreadOf(request),
                                                                   GfsOperation::kGetattr));
           ReplyAttributes(request, path);
         });
}

// Truncating the control file is how a shell's ">" begins; everything else is read-only.
void Setattr(fuse_req_t request, fuse_ino_t number, struct stat*, int to_set,
             fuse_file_info* file) {
  if (FilesystemOf(request).object(number).path != kControlPath ||
      (to_set & ~FUSE_SET_ATTR_SIZE & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID)) != 0) {
    fuse_reply_err(request, EROFS);
    return;
  }
  Getattr(request, number, file);
}

void Readlink(fuse_req_t request, fuse_ino_t number) {
  GfsFilesystem& filesystem = FilesystemOf(request);
  // Reading a link costs nothing here, because looking it up was charged already.
  std::array<char, PATH_MAX> target{};
  const ssize_t bytes = readlinkat(filesystem.backing_fd(), filesystem.object(number).path.c_str(),
                                   target.data(), target.size() - 1);
  if (bytes < 0) {
    fuse_reply_err(request, errno);
    return;
  }
  fuse_reply_readlink(request, target.data());
}

void ReplyOpen(fuse_req_t request, fuse_file_info file, std::unique_ptr<Handle> handle) {
  // Every read of a client comes here, also if the same bytes were read before. This is stricter
  // than a real client of a GFS, which caches; peers that profit from a cache are measured on a
  // folder without this mount.
  file.direct_io = 1;
  file.keep_cache = 0;
  Handle* const opened = handle.release();
  file.fh = reinterpret_cast<std::uint64_t>(opened);
  // An interrupted open is never released by the kernel.
  if (fuse_reply_open(request, &file) == -ENOENT) handle.reset(opened);
}

void Open(fuse_req_t request, fuse_ino_t number, fuse_file_info* file) {
  GfsFilesystem& filesystem = FilesystemOf(request);
  GfsFilesystem::Object& object = filesystem.object(number);
  const bool writes = (file->flags & O_ACCMODE) != O_RDONLY;
  if (writes && object.path != kControlPath) {
    fuse_reply_err(request, EROFS);
    return;
  }
  if (IsControl(object.path)) {
    auto handle = std::make_unique<Handle>();
    if (object.path == kCountersPath) handle->text = filesystem.CountersJson();
    ReplyOpen(request, *file, std::move(handle));
    return;
  }
  // Objects live as long as the mount, so the reference stays valid when the request is parked.
  Arrive(request, {.operation = GfsOperation::kOpen, .number = number, .path = object.path},
         [request, &filesystem, &object, info = *file](std::optional<FaultKind>) {
           WaitUntil(request, filesystem.ChargeOpen(ThreadOf(request), object));
           auto handle = std::make_unique<Handle>();
           handle->fd = UniqueFd(openat(filesystem.backing_fd(), object.path.c_str(),
                                        O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
           if (!handle->fd.valid()) {
             fuse_reply_err(request, errno);
             return;
           }
           ReplyOpen(request, info, std::move(handle));
         });
}

Handle& HandleOf(const fuse_file_info* file) { return *reinterpret_cast<Handle*>(file->fh); }

void Release(fuse_req_t request, fuse_ino_t, fuse_file_info* file) {
  const std::unique_ptr<Handle> handle(&HandleOf(file));
  fuse_reply_err(request, 0);
}

void ReplyText(fuse_req_t request, const std::string& text, std::size_t size, off_t offset) {
  const std::size_t begin = std::min(static_cast<std::size_t>(offset), text.size());
  fuse_reply_buf(request, text.data() + begin, std::min(size, text.size() - begin));
}

// Reads up to `size` bytes; returns how many, or a negative errno.
ssize_t ReadFully(int fd, char* buffer, std::size_t size, off_t offset) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t bytes = pread(fd, buffer + done, size - done,
                                offset + static_cast<off_t>(done));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return -errno;
    if (bytes == 0) break;
    done += static_cast<std::size_t>(bytes);
  }
  return static_cast<ssize_t>(done);
}

struct ReadSpan {
  std::size_t bytes = 0;
  off_t offset = 0;
};

// Answers a read of the backing file, with what `fault` makes of it.
void ReplyRead(fuse_req_t request, GfsFilesystem::Object& object, const Handle& handle,
               const ReadSpan& span, std::optional<FaultKind> fault) {
  // Each thread of libfuse has one buffer, so that only its first read allocates memory.
  thread_local std::vector<char> buffer;
  buffer.resize(std::max<std::size_t>(span.bytes, kGfsReadBytesMax));
  const ssize_t got = ReadFully(handle.fd.get(), buffer.data(), span.bytes, span.offset);
  if (got < 0) {
    fuse_reply_err(request, static_cast<int>(-got));
    return;
  }
  auto bytes = static_cast<std::size_t>(got);
  // Half of what there is and no error: this is how a truncated object looks to a client that
  // believes the size which it read before.
  if (fault == FaultKind::kShort) bytes /= 2;
  WaitUntil(request, FilesystemOf(request).ChargeRead(
                         ThreadOf(request), object,
                         {.offset = static_cast<std::uint64_t>(span.offset), .bytes = bytes}));
  if (fault == FaultKind::kFlip && bytes > 0) {
    // The bit lies in the middle of the answer, where there is neither a header nor an end of a
    // file. One bit is the hardest case for a checksum.
    buffer[bytes / 2] = static_cast<char>(buffer[bytes / 2] ^ 0x10);
  }
  fuse_reply_buf(request, buffer.data(), bytes);
}

void Read(fuse_req_t request, fuse_ino_t number, std::size_t size, off_t offset,
          fuse_file_info* file) {
  GfsFilesystem::Object& object = FilesystemOf(request).object(number);
  const Handle& handle = HandleOf(file);
  if (IsControl(object.path)) {
    ReplyText(request, handle.text, size, offset);
    return;
  }
  Arrive(request, {.operation = GfsOperation::kRead, .number = number, .path = object.path},
         [request, &object, &handle, span = ReadSpan{.bytes = size, .offset = offset}](
             std::optional<FaultKind> fault) {
           ReplyRead(request, object, handle, span, fault);
         });
}

void Write(fuse_req_t request, fuse_ino_t number, const char* data, std::size_t size, off_t,
           fuse_file_info*) {
  GfsMount& mount = MountOf(request);
  GfsFilesystem& filesystem = *mount.filesystem;
  if (filesystem.object(number).path != kControlPath) {
    fuse_reply_err(request, EROFS);
    return;
  }
  // A write is taken as whole lines. A shell's echo writes once; a writer that cuts a line in two
  // gets EINVAL.
  const bool is_understood = filesystem.Control({data, size}).has_value();
  // What hung goes on before the writer does, so that it finds the counters as they stay.
  mount.parked->ResumeBefore(filesystem.clear_count());
  if (is_understood) {
    fuse_reply_write(request, size);
  } else {
    fuse_reply_err(request, EINVAL);
  }
}

std::optional<Listing> ReadListing(const GfsFilesystem& filesystem, const std::string& path) {
  UniqueFd fd(openat(filesystem.backing_fd(), path.c_str(),
                     O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return std::nullopt;
  // The listing is read as a whole at opendir: readdir then answers from one state of the folder,
  // however long the client takes.
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(fdopendir(fd.get()), closedir);
  if (directory == nullptr) return std::nullopt;
  static_cast<void>(fd.Release());  // the DIR owns it now
  Listing listing;
  while (const dirent* entry = readdir(directory.get())) {
    listing.entries.push_back({.name = entry->d_name,
                               .number = entry->d_ino,
                               .mode = static_cast<mode_t>(DTTOIF(entry->d_type))});
  }
  return listing;
}

void ReplyOpendir(fuse_req_t request, fuse_file_info file, std::unique_ptr<Listing> listing) {
  Listing* const opened = listing.release();
  file.fh = reinterpret_cast<std::uint64_t>(opened);
  if (fuse_reply_open(request, &file) == -ENOENT) listing.reset(opened);
}

void Opendir(fuse_req_t request, fuse_ino_t number, fuse_file_info* file) {
  GfsFilesystem& filesystem = FilesystemOf(request);
  const std::string& path = filesystem.object(number).path;
  if (IsControl(path)) {
    ReplyOpendir(request, *file, std::make_unique<Listing>());
    return;
  }
  Arrive(request, {.operation = GfsOperation::kReaddir, .number = number, .path = path},
         [request, &filesystem, &path, info = *file](std::optional<FaultKind>) {
           WaitUntil(request,
                     filesystem.ChargeMetadata(ThreadOf(request), GfsOperation::kReaddir));
           std::optional<Listing> listing = ReadListing(filesystem, path);
           if (!listing) {
             fuse_reply_err(request, errno);
             return;
           }
           ReplyOpendir(request, info, std::make_unique<Listing>(std::move(*listing)));
         });
}

void ReplyReaddir(fuse_req_t request, const std::vector<Listing::Entry>& entries,
                  const ReadSpan& span) {
  std::vector<char> buffer(span.bytes);
  std::size_t used = 0;
  for (auto i = static_cast<std::size_t>(span.offset); i < entries.size(); ++i) {
    struct stat attributes{};
    attributes.st_ino = entries[i].number;
    attributes.st_mode = entries[i].mode;
    const std::size_t needed =
        fuse_add_direntry(request, buffer.data() + used, buffer.size() - used,
                          // The offset that is given back is the index of the next entry.
                          entries[i].name.c_str(), &attributes, static_cast<off_t>(i + 1));
    if (needed > buffer.size() - used) break;
    used += needed;
  }
  fuse_reply_buf(request, buffer.data(), used);
}

void Readdir(fuse_req_t request, fuse_ino_t number, std::size_t size, off_t offset,
             fuse_file_info* file) {
  const auto& entries = reinterpret_cast<const Listing*>(file->fh)->entries;
  const ReadSpan span = {.bytes = size, .offset = offset};
  const std::string& path = FilesystemOf(request).object(number).path;
  if (IsControl(path)) {
    ReplyReaddir(request, entries, span);
    return;
  }
  Arrive(request, {.operation = GfsOperation::kReaddir, .number = number, .path = path},
         [request, &entries, span](std::optional<FaultKind>) {
           WaitUntil(request, FilesystemOf(request).ChargeMetadata(ThreadOf(request),
                                                                   GfsOperation::kReaddir));
           ReplyReaddir(request, entries, span);
         });
}

void Releasedir(fuse_req_t request, fuse_ino_t, fuse_file_info* file) {
  const std::unique_ptr<Listing> listing(reinterpret_cast<Listing*>(file->fh));
  fuse_reply_err(request, 0);
}

void Statfs(fuse_req_t request, fuse_ino_t) {
  struct statvfs attributes{};
  if (fstatvfs(FilesystemOf(request).backing_fd(), &attributes) != 0) {
    fuse_reply_err(request, errno);
    return;
  }
  fuse_reply_statfs(request, &attributes);
}

// A read-only mount would refuse these in the kernel, but it would refuse writes to the control
// file too.
void Mkdir(fuse_req_t request, fuse_ino_t, const char*, mode_t) { fuse_reply_err(request, EROFS); }
void Unlink(fuse_req_t request, fuse_ino_t, const char*) { fuse_reply_err(request, EROFS); }
void Create(fuse_req_t request, fuse_ino_t, const char*, mode_t, fuse_file_info*) {
  fuse_reply_err(request, EROFS);
}
void Rename(fuse_req_t request, fuse_ino_t, const char*, fuse_ino_t, const char*, unsigned) {
  fuse_reply_err(request, EROFS);
}

fuse_lowlevel_ops MakeOperations() {
  fuse_lowlevel_ops operations{};
  operations.init = Init;
  operations.lookup = Lookup;
  operations.getattr = Getattr;
  operations.setattr = Setattr;
  operations.readlink = Readlink;
  operations.open = Open;
  operations.release = Release;
  operations.read = Read;
  operations.write = Write;
  operations.opendir = Opendir;
  operations.readdir = Readdir;
  operations.releasedir = Releasedir;
  operations.statfs = Statfs;
  operations.mkdir = Mkdir;
  operations.unlink = Unlink;
  operations.rmdir = Unlink;
  operations.create = Create;
  operations.rename = Rename;
  return operations;
}

}  // namespace

const fuse_lowlevel_ops& GfsOperations() {
  static const fuse_lowlevel_ops operations = MakeOperations();
  return operations;
}

}  // namespace forebay::bench
