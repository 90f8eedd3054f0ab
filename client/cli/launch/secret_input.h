// Reads the secret of the job for `forebay launch` from a descriptor. This is for launchers of jobs
// that can hand over neither an environment nor a file that is safe.
#pragma once

#include <string>

#include "proto/contract/result.h"

namespace forebay::cli {

// Reads the first line that the descriptor `fd` gives, without its end; the end of the input ends
// the line, too. What follows the line is not read, and stays for the command that launch runs. A
// descriptor other than standard input, output and error is closed on exec from then on. Blocks
// until the line has come. Errors, which never have a part of the secret: kInvalidArgument (the
// line is empty, longer than 4,096 bytes, or has a byte 0); those of reading.
Result<std::string> ReadSecretLine(int fd);

}  // namespace forebay::cli
