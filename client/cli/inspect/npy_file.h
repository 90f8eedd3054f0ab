// Writes arrays in NumPy's format, version 1.0, row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/tensor.h"
#include "proto/contract/unique_fd.h"

namespace forebay::cli {

// The header of an array of little-endian elements: a multiple of 64 bytes. bf16, which NumPy
// lacks, is declared as u16.
std::string NpyHeader(Dtype dtype, std::span<const std::uint64_t> shape);

// A file that is written from its front and exists only when it is whole: one that was not
// finished is removed. Move-only.
class NewFile {
 public:
  // Creates `name` in an open folder; `path` is for messages. kAlreadyExists where it exists,
  // be it a link.
  static Result<NewFile> Create(int folder, const std::string& name, std::string path);
  NewFile(NewFile&&) = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  Status Append(std::span<const std::byte> bytes);
  // Closes the file, which stays, but is removed where closing fails. It is not synced.
  Status Finish();

 private:
  NewFile(int folder, std::string name, std::string path, UniqueFd file)
      : folder_(folder), name_(std::move(name)), path_(std::move(path)), file_(std::move(file)) {}
  void Remove();

  int folder_;  // borrowed
  std::string name_, path_;
  UniqueFd file_;
};

}  // namespace forebay::cli
