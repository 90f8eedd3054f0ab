// NewFile: a file of `forebay unpack` stays only where it was finished without an error. The test
// provokes the error of closing by closing the file's descriptor before NewFile does.
#include "client/cli/inspect/npy_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <gtest/gtest.h>

#include "client/cli/testing/pack_command_test_folder.h"

namespace forebay::cli {
namespace {

namespace fs = std::filesystem;

class NewFileTest : public PackCommandTest {
 protected:
  Result<NewFile> Create() const {
    return NewFile::Create(opened_.get(), "array.npy", folder_ + "/array.npy");
  }
  bool Exists() const { return fs::exists(folder_ + "/array.npy"); }

  // The descriptor of this process that is open on the file, or -1.
  int DescriptorOfFile() const {
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // the listing's own descriptor may be closed by now
      if (fs::read_symlink(entry.path(), gone) == fs::canonical(folder_) / "array.npy") {
        return std::stoi(entry.path().filename().string());
      }
    }
    return -1;
  }

  UniqueFd opened_{::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
};

TEST_F(NewFileTest, OnlyAFinishedFileStays) {
  {
    auto file = Create();
    ASSERT_TRUE(file.has_value()) << file.error().ToString();
    EXPECT_TRUE(Exists());
  }
  EXPECT_FALSE(Exists());
  auto file = Create();
  ASSERT_TRUE(file.has_value()) << file.error().ToString();
  EXPECT_TRUE(file->Finish().has_value());
  EXPECT_TRUE(Exists());
}

TEST_F(NewFileTest, AFileThatCannotBeClosedIsRemoved) {
  auto file = Create();
  ASSERT_TRUE(file.has_value()) << file.error().ToString();
  const int descriptor = DescriptorOfFile();
  ASSERT_GE(descriptor, 0);
  ::close(descriptor);
  EXPECT_FALSE(file->Finish().has_value());
  EXPECT_FALSE(Exists());
}

}  // namespace
}  // namespace forebay::cli
