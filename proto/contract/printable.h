// Makes text from data or from another program safe for a terminal, a log or a file name:
// afterwards it cannot move the cursor, change the terminal or begin a line of its own.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace forebay {

// Returns `text` with control characters written as \xNN: those of ASCII except line ends and tabs,
// those of Unicode (U+0080 to U+009F, also as single bytes), and characters that end a line or
// change the direction of writing. Other text passes unchanged, whether it is UTF-8 or not.
std::string PrintableText(std::string_view text);

// PrintableText for text that must stay on one line: also replaces line ends and tabs.
std::string PrintableLine(std::string_view text);

// Returns `name` in single quotes for an error message or a log, on one line: what PrintableLine
// replaces, single quotes and backslashes become \xNN, so that a file name cannot end the quotes. A
// name of more than 200 bytes is cut between two characters and ends with "...".
std::string Quoted(std::string_view name);

// The number of bytes at the end of `text`, 0 to 3, that begin a UTF-8 character without its rest.
std::size_t UnfinishedBytes(std::string_view text);

}  // namespace forebay
