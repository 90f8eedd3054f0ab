// Text that comes from data or from another program, made fit for a terminal, a log or a file name:
// it moves no cursor, changes no terminal and begins no line of its own.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace forebay {

// `text` with its control characters written as "\x1b" is here: those of ASCII but line ends and
// tabs, those of Unicode (U+0080 to U+009F, also as a byte of its own), and what ends lines or
// turns the direction of reading. Other text passes, whether it is UTF-8 or not.
std::string PrintableText(std::string_view text);

// The same of what must stay on one line, as a name: line ends and tabs are written so, too.
std::string PrintableLine(std::string_view text);

// How many bytes at the end of `text`, 0 to 3, are a UTF-8 character whose rest has not come.
std::size_t UnfinishedBytes(std::string_view text);

}  // namespace forebay
