// `forebay`: the command line of a daemon.
#include <unistd.h>

#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "client/cli/exit_code.h"
#include "client/cli/program.h"
#include "proto/contract/printable.h"

int main(int argc, char** argv) {
  try {
    return forebay::cli::RunForebay(
        std::vector<std::string>(argv + 1, argv + argc),
        {.out = std::cout, .err = std::cerr, .terminal = ::isatty(STDOUT_FILENO) == 1});
  // Our own code returns errors. An exception comes from the standard library, for example when
  // memory runs out, and should not look like a crash.
  } catch (const std::exception& thrown) {
    std::cerr << "forebay: " << forebay::PrintableLine(thrown.what()) << '\n';
    return static_cast<int>(forebay::cli::ExitCode::kFailure);
  }
}
