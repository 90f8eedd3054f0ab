// Runs a fuzz harness over the files of a corpus, for compilers without libFuzzer.
//
// Fails where the corpus is empty or unreadable: a replay that replayed nothing proves nothing.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

int ReplayFolder(const char* folder) {
  std::error_code error;
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    if (!file.good() && !file.eof()) {
      std::fprintf(stderr, "cannot read %s\n", entry.path().c_str());
      return -1;
    }
    const std::vector<std::uint8_t> bytes(text.begin(), text.end());
    // Named before it runs, so that a crash tells which input it was.
    std::printf("%s: %zu bytes\n", entry.path().filename().c_str(), bytes.size());
    std::fflush(stdout);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    ++count;
  }
  if (error) std::fprintf(stderr, "cannot read %s: %s\n", folder, error.message().c_str());
  return error ? -1 : count;
}

}  // namespace

int main(int argument_count, char** arguments) {
  int total = 0;
  for (int i = 1; i < argument_count; ++i) {
    const int count = ReplayFolder(arguments[i]);
    if (count < 0) return 2;
    total += count;
  }
  std::printf("%d inputs replayed\n", total);
  return total > 0 ? 0 : 2;
}
