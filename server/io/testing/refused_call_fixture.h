// Runs code on a thread for which the kernel refuses one system call, like a site's policy or an
// old kernel. Uses a seccomp filter, which ends with the thread.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <array>
#include <cstddef>
#include <functional>
#include <thread>

namespace forebay::io::testing {

// Returns false if the filter could not be installed; then `body` did not run.
inline bool RunWithRefusedCall(unsigned call, unsigned refusal_errno,
                               const std::function<void()>& body) {
  bool is_installed = false;
  std::thread thread([&] {
    std::array<sock_filter, 4> filter = {{
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | refusal_errno},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    }};
    sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
    is_installed = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                   ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
    if (is_installed) body();
  });
  thread.join();
  return is_installed;
}

}  // namespace forebay::io::testing
