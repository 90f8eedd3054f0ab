// The program `forebay`, for its main file and for tests.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace forebay::cli {

struct ProgramStreams {
  std::ostream& out;
  std::ostream& err;
  bool terminal = false;
};

// Parses `arguments` (without the program's name) and runs the command. Returns the exit code.
int RunForebay(std::vector<std::string> arguments, const ProgramStreams& streams);

}  // namespace forebay::cli
