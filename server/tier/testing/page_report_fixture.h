// For tests: reads what the kernel reports about the pages of a mapping of this process
// (/proc/self/smaps) and about the pages that the site has reserved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <sstream>
#include <string>

namespace forebay::tier::testing {

// Bytes of the mappings that begin in `memory` which smaps counts under one of `names`, such as
// "ShmemPmdMapped:": in huge pages that are mapped as such.
inline std::uint64_t MappedBytes(std::span<const std::byte> memory,
                                 std::initializer_list<std::string> names) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  std::ifstream smaps("/proc/self/smaps");
  std::uint64_t kib = 0;
  bool is_ours = false;
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    // A mapping begins with its addresses; lines "Name: <number> kB" about it follow.
    if (first.find('-') != std::string::npos && first.back() != ':') {
      const std::uintptr_t address = std::stoull(first, nullptr, 16);
      is_ours = address >= begin && address < begin + memory.size();
      continue;
    }
    for (const std::string& name : names) {
      std::uint64_t value = 0;
      if (is_ours && first == name && words >> value) kib += value;
    }
  }
  return kib * 1024;
}

inline std::uint64_t HugeMappedBytes(std::span<const std::byte> memory) {
  return MappedBytes(memory, {"ShmemPmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:"});
}

// Whether shared memory gets huge pages without MADV_COLLAPSE: the choice in brackets.
inline bool MakesHugePagesByItself() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string line;
  std::getline(file, line);
  return !line.empty() && line.find("[never]") == std::string::npos &&
         line.find("[deny]") == std::string::npos;
}

}  // namespace forebay::tier::testing
