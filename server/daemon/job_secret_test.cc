// Tests where a node finds the secret of its job, and which files it refuses.
#include "server/daemon/job_secret.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"

namespace forebay::daemon::job_secret_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kNowS = 1'795'000'000;
const std::string kSecret = "0123456789abcdef0123456789abcdef";

class JobSecretTest : public ::testing::Test {
 protected:
  ~JobSecretTest() override { unsetenv(kSecretVariable); }

  void Write(const std::string& text, int mode = 0600) {
    std::ofstream(path_, std::ios::binary) << text;
    ASSERT_EQ(chmod(path_.c_str(), static_cast<mode_t>(mode)), 0);
    config_.peer_secret = "file:" + path_;
  }
  Result<peer::NodeCertificates> Find() const { return FindCertificates(config_, "job", kNowS); }
  std::string Authority() const {
    const auto found = Find();
    EXPECT_TRUE(found.has_value()) << found.error().ToString();
    return found.has_value() && !found->empty() ? peer::AuthorityDigest(*found).value_or("") : "";
  }
  void ExpectRefused(const std::string& text) const {
    const auto refused = Find();
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message(),
                AllOf(HasSubstr(text), HasSubstr(path_), Not(HasSubstr(kSecret))));
  }

  const io::testing::TempFolder folder_;
  const std::string path_ = folder_ / "secret";
  Config config_ = DefaultConfig();
};

TEST_F(JobSecretTest, WithoutOneThereAreNoCertificates) { EXPECT_EQ(Authority(), ""); }

TEST_F(JobSecretTest, FileAndVariableAreTheSame) {
  Write(kSecret + "\n");
  const std::string of_file = Authority();
  EXPECT_NE(of_file, "");
  config_.peer_secret = "";
  setenv(kSecretVariable, kSecret.c_str(), 1);
  EXPECT_EQ(Authority(), of_file);
  config_.peer_secret = "none";
  EXPECT_EQ(Authority(), "");
}

TEST_F(JobSecretTest, AVariableThatIsSetAndTooShortIsAnError) {
  setenv(kSecretVariable, "", 1);
  const auto refused = Find();
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr(kSecretVariable), HasSubstr("0 bytes, at least 32")));
}

TEST_F(JobSecretTest, TheVariableIsOverwrittenInPlace) {
  std::string variable = std::string(kSecretVariable) + "=" + kSecret;
  ASSERT_EQ(putenv(variable.data()), 0);  // the environment refers to this memory
  ForgetSecretVariable();
  EXPECT_EQ(variable.find(kSecret.substr(0, 4)), std::string::npos);
  EXPECT_FALSE(Find().has_value());
  unsetenv(kSecretVariable);
  ForgetSecretVariable();  // there is none
}

TEST_F(JobSecretTest, FilesThatOthersMayUseAreRefused) {
  for (const int mode : {0640, 0604, 0620, 0601}) {
    Write(kSecret, mode);
    ExpectRefused("other users may use it");
  }
}

TEST_F(JobSecretTest, WhatIsNoSecretIsRefused) {
  Write(kSecret.substr(1));
  ExpectRefused("31 bytes");
  Write(std::string(4097, 'x'));
  ExpectRefused("more than 4096 bytes");
  std::filesystem::remove(path_);
  ExpectRefused("No such file");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ExpectRefused("no ordinary file");
}

TEST_F(JobSecretTest, AFileOnANetworkFileSystemIsAtRisk) {
  Write(kSecret);
  for (const auto& [type, name] : {std::pair(0x6969U, "(NFS)"), std::pair(0x0bd00bd0U, "(Lustre)"),
                                   std::pair(0xff534d42U, "(CIFS)"),
                                   std::pair(0x65735546U, "(FUSE)")}) {
    const auto type_of = [&, type = type](const std::string& path) {
      EXPECT_EQ(path, path_);
      return std::uint64_t{type};
    };
    EXPECT_THAT(SecretFileRisk(config_, type_of),
                AllOf(HasSubstr(path_), HasSubstr(name), Not(HasSubstr(kSecret))));
  }
  config_.peer_secret = "";
  EXPECT_EQ(SecretFileRisk(config_, [](const std::string&) { return 0x6969; }), "");
}

TEST_F(JobSecretTest, ALocalFileAndOneThatIsNotThereAreNoRisk) {
  Write(kSecret);
  EXPECT_EQ(SecretFileRisk(config_, [](const std::string&) { return 0x01021994; }), "");
  EXPECT_NE(FileSystemType("/proc"), 0U);
  EXPECT_EQ(FileSystemType("/proc"), FileSystemType("/proc/self/status"));
  EXPECT_EQ(FileSystemType(folder_ / "nothing"), 0U);
}

TEST_F(JobSecretTest, AFileOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  Write(kSecret);
  ASSERT_EQ(chown(path_.c_str(), 12'345, 12'345), 0);
  ExpectRefused("another user");
}

}  // namespace forebay::daemon::job_secret_test
