#include "tests/fault/sample_files.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "proto/contract/check.h"
#include "proto/contract/mix64.h"

namespace forebay::fault {
namespace {

constexpr std::uint64_t kRecordBytes = 4096;
constexpr std::uint64_t kTarBlockBytes = 512;

std::vector<std::byte> RandomBytes(std::uint64_t count, std::uint64_t& random_state) {
  std::vector<std::byte> bytes((count + 7) / 8 * 8);
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    const std::uint64_t word = NextWord64(random_state);
    std::memcpy(bytes.data() + at, &word, sizeof(word));
  }
  bytes.resize(count);
  return bytes;
}

// Half to one and a half times `mean`.
std::uint64_t RandomSize(std::uint64_t mean, std::uint64_t& random_state) {
  return mean / 2 + NextWord64(random_state) % mean;
}

void Append(std::ofstream& file, std::span<const std::byte> bytes) {
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

// The header of a regular file in POSIX's ustar format.
std::array<char, kTarBlockBytes> TarHeader(const std::string& name, std::uint64_t bytes) {
  std::array<char, kTarBlockBytes> header{};
  name.copy(header.data(), 100);
  std::snprintf(header.data() + 100, 8, "%07o", 0644U);
  std::snprintf(header.data() + 108, 8, "%07o", 0U);
  std::snprintf(header.data() + 116, 8, "%07o", 0U);
  std::snprintf(header.data() + 124, 12, "%011llo", static_cast<unsigned long long>(bytes));
  std::snprintf(header.data() + 136, 12, "%011o", 0U);
  header[156] = '0';
  std::memcpy(header.data() + 257, "ustar\00000", 8);
  std::memset(header.data() + 148, ' ', 8);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(header.data() + 148, 8, "%06o", sum);
  return header;
}

void AppendMember(std::ofstream& tar, const std::string& name, std::span<const std::byte> bytes) {
  const auto header = TarHeader(name, bytes.size());
  tar.write(header.data(), header.size());
  Append(tar, bytes);
  const std::array<char, kTarBlockBytes> padding{};
  const std::uint64_t over = bytes.size() % kTarBlockBytes;
  if (over > 0) tar.write(padding.data(), static_cast<std::streamsize>(kTarBlockBytes - over));
}

void WriteRecords(const std::string& folder, std::uint64_t bytes, std::uint64_t random_state,
                  SampleFiles& files) {
  std::ofstream file(folder + "/x.bin", std::ios::binary);
  for (std::uint64_t i = 0; i < bytes / kRecordBytes; ++i) {
    const auto record = RandomBytes(kRecordBytes, random_state);
    Append(file, record);
    files.hashes.push_back(SampleHash(record));
  }
  FOREBAY_CHECK(file.good());
  files.config = "format = \"raw\"\nfiles = [\"x=x.bin\"]\nshape = [" +
                 std::to_string(kRecordBytes) + "]\n";
}

void WriteTars(const std::string& folder, std::uint64_t bytes, std::uint64_t random_state,
               SampleFiles& files) {
  constexpr int kShards = 3;
  for (int shard = 0; shard < kShards; ++shard) {
    std::ofstream tar(folder + "/shard-" + std::to_string(shard) + ".tar", std::ios::binary);
    for (std::uint64_t i = 0; i < bytes / kShards / kRecordBytes; ++i) {
      const auto sample = RandomBytes(RandomSize(kRecordBytes, random_state), random_state);
      AppendMember(tar, std::to_string(shard * 100'000 + i) + ".bin", sample);
      files.hashes.push_back(SampleHash(sample));
    }
    const std::array<char, 2 * kTarBlockBytes> end{};
    tar.write(end.data(), end.size());
    FOREBAY_CHECK(tar.good());
  }
  files.config = "format = \"tar\"\n";
}

void WriteFolder(const std::string& folder, std::uint64_t bytes, std::uint64_t random_state,
                 SampleFiles& files) {
  constexpr std::uint64_t kFileBytes = 32'768;
  constexpr int kClasses = 4;
  for (std::uint64_t i = 0; i < bytes / kFileBytes; ++i) {
    const std::string path = folder + "/class" + std::to_string(i % kClasses);
    std::filesystem::create_directories(path);
    const auto sample = RandomBytes(RandomSize(kFileBytes, random_state), random_state);
    std::ofstream file(path + "/" + std::to_string(i) + ".jpg", std::ios::binary);
    Append(file, sample);
    FOREBAY_CHECK(file.good());
    files.hashes.push_back(SampleHash(sample));
  }
  files.config = "format = \"image-folder\"\n";
}

}  // namespace

std::uint64_t SampleHash(std::span<const std::byte> bytes) {
  std::uint64_t hash = bytes.size();
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t part = std::min(bytes.size(), sizeof(word));
    std::memcpy(&word, bytes.data(), part);
    hash = Mix64(hash ^ word) + kGolden64;
    bytes = bytes.subspan(part);
  }
  return hash;
}

SampleFiles WriteSamples(const std::string& folder, Format format, std::uint64_t bytes,
                         std::uint64_t seed) {
  SampleFiles files;
  switch (format) {
    case Format::kRecords: WriteRecords(folder, bytes, seed, files); break;
    case Format::kTar: WriteTars(folder, bytes, seed, files); break;
    case Format::kFolder: WriteFolder(folder, bytes, seed, files); break;
  }
  std::ranges::sort(files.hashes);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files.bytes += entry.file_size();
    files.reads += (entry.file_size() + kRequestBytes - 1) / kRequestBytes;
  }
  return files;
}

}  // namespace forebay::fault
