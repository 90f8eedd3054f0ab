// What all commands of `forebay` share: finding the daemon, help, usage errors and exit codes.
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/exit_code.h"
#include "client/cli/program.h"
#include "client/cli/testing/daemon_command_test.h"
#include "client/cli/testing/forebay_run.h"
#include "client/testing/fake_daemon.h"

namespace forebay::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using forebay::testing::FakeDaemon;

TEST(Cli, WantOfRoomIsNoRefusalOfAnotherUsersDaemon) {
  EXPECT_EQ(static_cast<int>(ExitCodeOf(ErrorCode::kResourceExhausted)), 7);
  EXPECT_EQ(static_cast<int>(ExitCodeOf(ErrorCode::kPermissionDenied)), 6);
}

// Which daemon is meant matters only to commands that ask one.
TEST_F(CliTest, OfSeveralDaemonsOfAJobOneIsToBeNamed) {
  const std::string base = daemon_.folder() + "/forebay-two";
  std::filesystem::create_directories(base);
  std::filesystem::create_directories(base + "-0123abcd");
  const FakeDaemon first({.job_id = "two", .socket_path = base + "/forebayd.sock"});
  const FakeDaemon second({.job_id = "two", .socket_path = base + "-0123abcd/forebayd.sock"});
  setenv("XDG_RUNTIME_DIR", daemon_.folder().c_str(), 1);
  setenv("FOREBAY_JOB_ID", "two", 1);
  const ForebayRun status = Forebay({"status"});
  const ForebayRun help = Forebay({"help", "status"});
  const ForebayRun audit = Forebay({"audit", daemon_.folder() + "/none"});
  unsetenv("XDG_RUNTIME_DIR");
  unsetenv("FOREBAY_JOB_ID");
  EXPECT_EQ(status.code, 2);
  EXPECT_THAT(status.err, AllOf(HasSubstr(first.address()), HasSubstr(second.address()),
                                HasSubstr("--address")));
  EXPECT_EQ(help.code, 0) << help.err;
  EXPECT_EQ(audit.code, 5) << audit.err;
}

TEST(Cli, NoDaemonHasACodeOfItsOwn) {
  const ForebayRun run = Forebay({"status", "--address", "unix:/nonexistent/forebayd.sock"});
  EXPECT_EQ(run.code, 4);
  EXPECT_THAT(run.err, HasSubstr("start forebayd"));
}

TEST(Cli, UsageErrorsAndHelp) {
  EXPECT_EQ(Forebay({}).code, 2);
  EXPECT_EQ(Forebay({"fly"}).code, 2);
  EXPECT_EQ(Forebay({"status", "--address", "tcp:localhost"}).code, 2);
  const ForebayRun help = Forebay({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"datasets", "stage", "status", "verify", "evict", "order", "audit",
                              "bench", "drain", "launch", "pack", "unpack", "inspect",
                              "Exit codes:"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
  }
  EXPECT_EQ(Forebay({"stage", "--help"}).code, 0);
  EXPECT_THAT(Forebay({"--version"}).out, HasSubstr("forebay "));
}

TEST(CommandLineTest, AWordThatIsNoCommandIsNamedWithTheNearestOne) {
  const auto run = [](std::vector<std::string> arguments) {
    std::ostringstream out, err;
    const int code = RunForebay(std::move(arguments), {.out = out, .err = err});
    return std::make_tuple(code, out.str(), err.str());
  };
  const auto [code, out, err] = run({"stauts", "--json"});
  EXPECT_EQ(code, 2);
  EXPECT_THAT(err, AllOf(HasSubstr("'stauts'"), HasSubstr("did you mean 'status'?")));
  EXPECT_THAT(std::get<2>(run({"frobnicate"})),
              AllOf(HasSubstr("'frobnicate'"), HasSubstr("forebay help"),
                    Not(HasSubstr("did you mean"))));
  EXPECT_THAT(std::get<1>(run({"help", "stage"})), HasSubstr("--rebuild"));
  EXPECT_EQ(std::get<0>(run({"help"})), 0);
  EXPECT_THAT(std::get<1>(run({"help"})), HasSubstr("Exit codes"));
  EXPECT_THAT(std::get<1>(run({"-V"})), HasSubstr("forebay "));
  EXPECT_THAT(std::get<1>(run({"help", "compress", "bench"})), HasSubstr("forebay compress bench"));
  EXPECT_EQ(std::get<0>(run({"help", "stauts"})), 2);
  EXPECT_THAT(std::get<2>(run({"help", "stauts"})), HasSubstr("did you mean 'status'?"));
}

}  // namespace
}  // namespace forebay::cli
