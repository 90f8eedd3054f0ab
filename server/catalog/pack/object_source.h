// ObjectSource: lets the decoder of packs (compress::PackFile) read a file of a data set through
// the I/O interface of `io`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "compress/decode/pack/byte_source.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/io_backend.h"

namespace forebay::catalog {

// Borrows the queue, which no one else may use while this lives. Errors name the path. Several
// threads may read; their reads wait for each other. Reads block.
class ObjectSource final : public compress::ByteSource {
 public:
  static Result<std::unique_ptr<ObjectSource>> Open(io::Directory& root, io::IoQueue& queue,
                                                    const std::string& path);

  // Size and modification time when the file was opened.
  const io::FileInfo& info() const { return info_; }
  std::uint64_t size() const override { return info_.bytes; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const override;
  // kFailedPrecondition if size or modification time differ from info().
  Status CheckUnchanged() const;

 private:
  ObjectSource(io::IoQueue& queue, std::string path, std::unique_ptr<io::File> file,
               const io::FileInfo& info)
      : queue_(queue), path_(std::move(path)), file_(std::move(file)), info_(info) {}

  mutable Mutex mutex_;  // held during a read
  io::IoQueue& queue_ FOREBAY_GUARDED_BY(mutex_);
  const std::string path_;
  const std::unique_ptr<io::File> file_;
  const io::FileInfo info_;
};

}  // namespace forebay::catalog
