// Tests what is taken for a secret, what is left for the command, and which input is refused.
#include "client/cli/launch/secret_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/testing/forebay_run.h"
#include "proto/contract/unique_fd.h"

namespace forebay::cli::secret_input_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

const std::string kSecret(64, 'a');

class SecretInputTest : public ::testing::Test {
 protected:
  SecretInputTest() {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(pipe(ends.data()), 0);  // without O_CLOEXEC, as a shell hands it over
    input_ = UniqueFd(ends[0]);
    output_ = UniqueFd(ends[1]);
  }
  void Write(const std::string& text) {
    ASSERT_EQ(write(output_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::string Read() {
    const auto read = ReadSecretLine(input_.get());
    EXPECT_TRUE(read.has_value()) << read.error().ToString();
    return read.value_or("");
  }
  void ExpectRefused(const std::string& why) {
    const auto read = ReadSecretLine(input_.get());
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(read.error().message(),
                AllOf(HasSubstr("--secret-fd " + std::to_string(input_.get())), HasSubstr(why),
                      Not(HasSubstr("aaa"))));
  }

  UniqueFd input_, output_;
};

TEST_F(SecretInputTest, OneLineIsReadAndTheRestIsLeft) {
  Write(kSecret + "\nfor the command");
  EXPECT_EQ(Read(), kSecret);
  std::array<char, 32> rest{};
  EXPECT_EQ(read(input_.get(), rest.data(), rest.size()), 15);
  EXPECT_STREQ(rest.data(), "for the command");
}

TEST_F(SecretInputTest, TheEndOfTheInputEndsTheLine) {
  Write(kSecret);
  output_.Reset();
  EXPECT_EQ(Read(), kSecret);
}

TEST_F(SecretInputTest, TheLineMayHaveTheEndThatWindowsWrites) {
  Write(kSecret + "\r\n");
  EXPECT_EQ(Read(), kSecret);
}

TEST_F(SecretInputTest, TheCommandDoesNotInheritTheDescriptor) {
  Write(kSecret + "\n");
  EXPECT_EQ(fcntl(input_.get(), F_GETFD) & FD_CLOEXEC, 0);
  Read();
  EXPECT_EQ(fcntl(input_.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_F(SecretInputTest, AnEmptyLineIsRefused) {
  Write("\n");
  ExpectRefused("there is no secret");
  output_.Reset();
  ExpectRefused("forebay secret");
}

TEST_F(SecretInputTest, ALineThatIsNoSecretIsRefused) {
  Write("aaa" + std::string(1, '\0') + kSecret + "\n");
  ExpectRefused("byte 0");
  EXPECT_EQ(Read(), kSecret);
  Write(std::string(4096, 'a') + "\n");
  EXPECT_EQ(Read().size(), 4096U);
  Write(std::string(4097, 'a') + "\n");
  ExpectRefused("more than 4096 bytes");
}

TEST_F(SecretInputTest, ADescriptorThatIsNotOpenIsAnError) {
  const int fd = input_.get();
  input_.Reset();
  const auto read = ReadSecretLine(fd);
  ASSERT_FALSE(read.has_value());
  EXPECT_THAT(read.error().message(), AllOf(HasSubstr("--secret-fd"), HasSubstr("Bad file")));
}

TEST(SecretCommandTest, EverySecretIsAnotherOne) {
  const ForebayRun first = Forebay({"secret"});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, MatchesRegex("[0-9a-f]{64}\n"));
  EXPECT_NE(Forebay({"secret"}).out, first.out);
  const Json json = Forebay({"secret", "--json"}).last();
  EXPECT_EQ(json["schema"], "forebay.secret.v1");
  EXPECT_EQ(json["secret"].get<std::string>().size(), 64U);
}

}  // namespace forebay::cli::secret_input_test
