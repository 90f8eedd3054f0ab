// Test support: a data set in memory, and checks that every catalog must pass. For tests only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "server/catalog/catalog.h"
#include "server/catalog/dataset_source.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::catalog {

// `count` bytes that depend on `seed` and position, so that a shifted or swapped read is noticed.
std::string PatternText(std::size_t count, std::uint64_t seed);
std::vector<std::byte> TextBytes(std::string_view text);
std::string BytesText(std::span<const std::byte> bytes);

// An in-memory root "/data".
class CatalogFixture : public ::testing::Test {
 protected:
  CatalogFixture();

  void AddFile(const std::string& path, std::string_view text);
  std::string FileText(std::string_view path) const;
  // BuildFromMetadata on the root.
  Result<std::shared_ptr<const Catalog>> Build();
  // Calls Build, which must fail, and returns the error's text.
  std::string BuildError();

  // The bytes of an extent, read from its objects like the stager does.
  std::string ExtentText(const Catalog& catalog, ExtentId extent) const;
  // The bytes of a range, continued over extents.
  std::string RangeText(const Catalog& catalog, const Range& range) const;
  // One field of one sample; "(absent)" or "#<constant>" if it has no bytes.
  std::string FieldText(const Catalog& catalog, SampleId sample, FieldId field) const;
  // Asserts that extents, sample ranges and pieces agree with each other.
  void ExpectConsistent(const Catalog& catalog) const;

  io::MemoryBackend backend_;
  std::unique_ptr<io::Directory> root_;
  DatasetSource source_;

 private:
  void ExpectPartConsistent(const Catalog& catalog, std::uint32_t part) const;
};

}  // namespace forebay::catalog
