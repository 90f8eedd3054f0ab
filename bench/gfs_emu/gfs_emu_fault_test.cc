// Faults of a mounted gfs_emu, as a client meets them through the kernel.
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/gfs_emu/testing/gfs_emu_fixture.h"
#include "proto/contract/unique_fd.h"

namespace forebay::bench::gfs_emu_fault_test {

constexpr std::size_t kMiB = 1024 * 1024;

class GfsEmuFault : public GfsEmuFixture {
 protected:
  // The operations below return 0 or the errno with which they failed.
  static int ErrnoOf(bool succeeded) { return succeeded ? 0 : errno; }

  static int ReadByte(const UniqueFd& fd) {
    char byte = 0;
    return ErrnoOf(pread(fd.get(), &byte, 1, 0) == 1);
  }
  static int Fstat(const UniqueFd& fd) {
    struct stat info {};
    return ErrnoOf(fstat(fd.get(), &info) == 0);
  }
  int Open(const std::string& name) { return ErrnoOf(OpenObject(name).valid()); }
  int Stat(const std::string& name) {
    struct stat info {};
    return ErrnoOf(stat((mount() / name).c_str(), &info) == 0);
  }
  int List(const std::string& name) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(mount() / name, error), end;
         !error && entry != end; entry.increment(error)) {
    }
    return error.value();
  }
  std::uint64_t InjectedByRule(std::size_t index) {
    return Counters()["faults"].at(index)["injected"].get<std::uint64_t>();
  }

  // A process of its own that reads a byte of `name`, which hangs. Returns once it does.
  pid_t StartHangingReader(const std::string& name) {
    const std::uint64_t before = process_->InjectedCount();
    const std::string path = mount() / name;
    const pid_t pid = fork();
    if (pid == 0) {
      const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
      char byte = 0;
      _exit(pread(fd, &byte, 1, 0) == 1 ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    AwaitFaults(before + 1);
    return pid;
  }
};

TEST_F(GfsEmuFault, InjectsAndCountsEveryFaultOfReads) {
  MakeObject("a.bin", kMiB);
  MakeObject("b.bin", kMiB);
  Mount({"--preset", "unlimited"});
  ASSERT_TRUE(Control("fault eio a.bin after=1 count=1\nfault short a.bin after=2\n"
                      "fault flip a.bin after=3 count=1\nfault stall a.bin after=4 ms=300"));
  const UniqueFd fd = OpenObject("a.bin");
  std::vector<char> buffer(1000);
  const auto read_once = [&] { return pread(fd.get(), buffer.data(), buffer.size(), 0); };
  const auto is_intact = [&] {
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      if (buffer[i] != PatternByte(i)) return false;
    }
    return true;
  };
  EXPECT_EQ(read_once(), 1000);
  EXPECT_EQ(read_once(), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(read_once(), 500);
  EXPECT_EQ(read_once(), 1000);
  EXPECT_FALSE(is_intact());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(read_once(), 1000);
  EXPECT_GE(SecondsSince(begin), 0.29);
  EXPECT_EQ(read_once(), 1000);
  EXPECT_TRUE(is_intact());
  const UniqueFd other = OpenObject("b.bin");
  EXPECT_EQ(pread(other.get(), buffer.data(), buffer.size(), 0), 1000);
  EXPECT_EQ(Counters()["total"]["faults"], 4);
  for (const auto& rule : Counters()["faults"]) EXPECT_EQ(rule["injected"], 1) << rule;
  EXPECT_FALSE(Control("fault melt a.bin"));
  EXPECT_FALSE(Control("explode"));
}

TEST_F(GfsEmuFault, EachOperationFailsWithTheErrnoOfItsRuleAsOftenAsItSays) {
  MakeObject("class0/a.bin", 100);
  MakeObject("class0/b.bin", 100);
  Mount({"--preset", "unlimited"});
  const UniqueFd fd = OpenObject("class0/a.bin");
  const auto fault = [this](const std::string& rule) {
    ASSERT_TRUE(Control("clear\nfault " + rule));
  };
  fault("eremoteio class0/a.bin count=1");
  EXPECT_EQ(ReadByte(fd), EREMOTEIO);
  EXPECT_EQ(ReadByte(fd), 0);
  EXPECT_EQ(InjectedByRule(0), 1U);
  fault("eio class0/a.bin ops=getattr count=1");
  EXPECT_EQ(Fstat(fd), EIO);
  EXPECT_EQ(Fstat(fd), 0);
  EXPECT_EQ(InjectedByRule(0), 1U);
  fault("etimedout class0/b.bin ops=lookup count=1");
  EXPECT_EQ(Stat("class0/b.bin"), ETIMEDOUT);
  EXPECT_EQ(Stat("class0/b.bin"), 0);
  EXPECT_EQ(InjectedByRule(0), 1U);
  fault("enotconn class0 ops=readdir count=2");
  EXPECT_EQ(List("class0"), ENOTCONN);
  EXPECT_EQ(List("class0"), ENOTCONN);
  EXPECT_EQ(List("class0"), 0);
  EXPECT_EQ(InjectedByRule(0), 2U);
  fault("eio class0/a.bin ops=open count=1");
  EXPECT_EQ(Open("class0/a.bin"), EIO);
  EXPECT_EQ(Open("class0/a.bin"), 0);
  EXPECT_EQ(InjectedByRule(0), 1U);
  // The kernel tries once more by itself: where an open was stale, and where it knew the name that
  // was looked up.
  fault("eio class0/b.bin ops=lookup count=1");
  EXPECT_EQ(Stat("class0/b.bin"), 0);
  EXPECT_EQ(InjectedByRule(0), 1U);
  fault("eio class0/b.bin ops=lookup count=2");
  EXPECT_EQ(Stat("class0/b.bin"), EIO);
  EXPECT_EQ(InjectedByRule(0), 2U);
  fault("estale class0/a.bin ops=open count=1");
  EXPECT_EQ(Open("class0/a.bin"), 0);
  EXPECT_EQ(InjectedByRule(0), 1U);
  fault("estale class0/a.bin ops=open,lookup count=0");
  EXPECT_EQ(Open("class0/a.bin"), ESTALE);
  EXPECT_GE(InjectedByRule(0), 2U);
}

TEST_F(GfsEmuFault, AnOutageFailsEveryOperationAndEndsByItself) {
  MakeObject("class0/a.bin", 100);
  Mount({"--preset", "unlimited"});
  const UniqueFd fd = OpenObject("class0/a.bin");
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(Control("fault outage * ms=4000 errno=ESTALE"));
  EXPECT_EQ(ReadByte(fd), ESTALE);
  EXPECT_EQ(Fstat(fd), ESTALE);
  EXPECT_EQ(Stat("class0/a.bin"), ESTALE);
  EXPECT_EQ(Open("class0/a.bin"), ESTALE);
  EXPECT_EQ(List("class0"), ESTALE);
  EXPECT_EQ(List("."), ESTALE);
  ASSERT_LT(SecondsSince(begin), 4) << "too slow a machine to tell";
  EXPECT_EQ(Counters()["faults"].at(0)["is_over"], false);
  EXPECT_GE(InjectedByRule(0), 6U);
  while (ReadByte(fd) != 0) std::this_thread::yield();
  EXPECT_GE(SecondsSince(begin), 4);
  EXPECT_LT(SecondsSince(begin), 60);
  EXPECT_EQ(Fstat(fd), 0);
  EXPECT_EQ(Stat("class0/a.bin"), 0);
  EXPECT_EQ(Open("class0/a.bin"), 0);
  EXPECT_EQ(List("class0"), 0);
  EXPECT_EQ(Counters()["faults"].at(0)["is_over"], true);
}

TEST_F(GfsEmuFault, ARemountMakesWhatWasOpenedStaleForEver) {
  std::filesystem::create_directories(backing() / "set/inner");
  MakeObject("set/inner/a.bin", 100);
  MakeObject("b.bin", 100);
  Mount({"--preset", "unlimited"});
  const UniqueFd folder(open((mount() / "set").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const UniqueFd fd = OpenObject("set/inner/a.bin");
  const UniqueFd other = OpenObject("b.bin");
  const auto open_beneath = [&] {
    return ErrnoOf(UniqueFd(openat(folder.get(), "inner/a.bin", O_RDONLY | O_CLOEXEC)).valid());
  };
  ASSERT_EQ(open_beneath(), 0);
  ASSERT_TRUE(Control("fault remount set*"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ReadByte(fd), ESTALE);
    EXPECT_EQ(Fstat(fd), ESTALE);
    EXPECT_EQ(open_beneath(), ESTALE);
  }
  EXPECT_EQ(ReadByte(other), 0) << "the pattern does not name it";
  const UniqueFd anew = OpenObject("set/inner/a.bin");
  EXPECT_EQ(ReadByte(anew), 0);
  EXPECT_EQ(ReadByte(fd), ESTALE);
  EXPECT_GE(InjectedByRule(0), 10U);
  ASSERT_TRUE(Control("clear"));
  EXPECT_EQ(ReadByte(fd), ESTALE) << "no server makes an old handle good";
  EXPECT_EQ(ReadByte(anew), 0);
}

TEST_F(GfsEmuFault, AHangingRequestIsAnsweredAfterClear) {
  MakeObject("a.bin", 100);
  Mount({"--preset", "unlimited"});
  ASSERT_TRUE(Control("fault hang a.bin count=1"));
  std::atomic<bool> answered = false;
  std::thread reader([&] {
    EXPECT_EQ(ReadByte(OpenObject("a.bin")), 0);
    answered = true;
  });
  AwaitFaults(1);
  // Everybody else is served meanwhile.
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ReadByte(OpenObject("a.bin")), 0);
  EXPECT_FALSE(answered);
  EXPECT_TRUE(Control("clear"));
  reader.join();
  EXPECT_EQ(process_->InjectedCount(), 1U);
}

TEST_F(GfsEmuFault, MoreHangingRequestsThanThreadsLeaveTheMountUsable) {
  MakeObject("a.bin", 100);
  MakeObject("b.bin", 100);
  Mount({"--preset", "unlimited", "--threads", "4"});
  ASSERT_TRUE(Control("fault hang a.bin ops=open,read,getattr count=0"));
  std::vector<std::thread> readers;
  for (int i = 0; i < 20; ++i) {
    readers.emplace_back([this] { EXPECT_EQ(Open("a.bin"), 0); });
  }
  AwaitFaults(20);
  EXPECT_EQ(ReadByte(OpenObject("b.bin")), 0);
  EXPECT_TRUE(Control("clear"));
  for (std::thread& reader : readers) reader.join();
}

TEST_F(GfsEmuFault, AKilledClientOfAHangingRequestDies) {
  MakeObject("a.bin", 100);
  Mount({"--preset", "unlimited"});
  for (const char* fault : {"fault hang a.bin", "fault stall a.bin ms=3600000"}) {
    ASSERT_TRUE(Control(fault));
    const pid_t pid = StartHangingReader("a.bin");
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_LT(SecondsSince(begin), 60);
  }
  EXPECT_EQ(ReadByte(OpenObject("a.bin")), 0);
}

TEST_F(GfsEmuFault, ASignalThatKillsNobodyEndsNoWait) {
  MakeObject("a.bin", 100);
  Mount({"--preset", "unlimited"});
  struct sigaction ignored_before {};
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};  // without SA_RESTART: an interrupted call would say so
  ASSERT_EQ(sigaction(SIGUSR1, &nothing, &ignored_before), 0);
  ASSERT_TRUE(Control("fault hang a.bin count=1"));
  std::atomic<bool> answered = false;
  std::thread reader([&] {
    EXPECT_EQ(ReadByte(OpenObject("a.bin")), 0);
    answered = true;
  });
  AwaitFaults(1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(pthread_kill(reader.native_handle(), SIGUSR1), 0);
    // Several looks of gfs_emu after its clients: each takes a moment that nothing else marks.
    for (int look = 0; look < 200; ++look) (void)Counters();
  }
  EXPECT_FALSE(answered);
  EXPECT_TRUE(Control("clear"));
  reader.join();
  EXPECT_EQ(process_->InjectedCount(), 1U);
  sigaction(SIGUSR1, &ignored_before, nullptr);
}

TEST_F(GfsEmuFault, AClientThatIsKilledAfterAnotherSignalDies) {
  MakeObject("a.bin", 100);
  Mount({"--preset", "unlimited"});
  ASSERT_TRUE(Control("fault hang a.bin"));
  const pid_t pid = StartHangingReader("a.bin");
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  ASSERT_EQ(kill(pid, SIGCONT), 0);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
}

// As io_uring's workers do: they ask, and end after some seconds without work.
TEST_F(GfsEmuFault, AThreadThatEndsWithoutWaitingLeavesItsRequestHanging) {
  MakeObject("a.bin", 4096);
  Mount({"--preset", "unlimited"});
  aio_context_t context = 0;
  ASSERT_EQ(syscall(SYS_io_setup, 1, &context), 0) << std::strerror(errno);
  const UniqueFd fd(open((mount() / "a.bin").c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  ASSERT_TRUE(fd.valid());
  alignas(4096) char buffer[4096] = {};
  iocb read = {};
  read.aio_lio_opcode = IOCB_CMD_PREAD;
  read.aio_fildes = static_cast<std::uint32_t>(fd.get());
  read.aio_buf = reinterpret_cast<std::uintptr_t>(buffer);
  read.aio_nbytes = sizeof(buffer);
  ASSERT_TRUE(Control("fault hang a.bin ops=read"));
  std::thread([&] {
    iocb* reads[] = {&read};
    EXPECT_EQ(syscall(SYS_io_submit, context, 1, reads), 1);
    AwaitFaults(1);
  }).join();
  for (int look = 0; look < 200; ++look) (void)Counters();
  io_event event = {};
  timespec patience = {};
  EXPECT_EQ(syscall(SYS_io_getevents, context, 0, 1, &event, &patience), 0) << "it was answered";
  ASSERT_TRUE(Control("clear"));
  patience.tv_sec = 20;
  EXPECT_EQ(syscall(SYS_io_getevents, context, 1, 1, &event, &patience), 1);
  EXPECT_EQ(event.res, 4096);
  EXPECT_EQ(syscall(SYS_io_destroy, context), 0);
}

TEST_F(GfsEmuFault, UnmountsOnSignalEvenWhileRequestsAreNotAnswered) {
  for (const char* fault :
       {"fault stall a.bin count=0 ms=3600000", "fault hang a.bin ops=open,read count=0"}) {
    MakeObject("a.bin", kMiB);
    Mount({"--preset", "unlimited"});
    ASSERT_TRUE(Control(fault));
    // It ends, with whatever the unmount makes of it.
    std::thread reader([this] { (void)ReadByte(OpenObject("a.bin")); });
    AwaitFaults(1);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(process_->Stop(), EXIT_SUCCESS);
    EXPECT_LT(SecondsSince(begin), 60);
    reader.join();
    EXPECT_FALSE(IsMounted(mount()));
    EXPECT_TRUE(std::filesystem::is_empty(mount()));
  }
}

}  // namespace forebay::bench::gfs_emu_fault_test
