// Manual pages in roff, with the macros of man(7).
#pragma once

#include <string>
#include <vector>

#include "deploy/manual/command_description.h"

namespace forebay::manual {

// What a page says beside the options.
struct ManualSection {
  struct Entry {
    std::string term;
    std::string text;
  };
  std::string title;  // "EXIT STATUS"
  std::string text;   // before the entries; may be empty
  std::vector<Entry> entries;
};

struct ManualFacts {
  int section = 1;
  std::string version;
  std::vector<ManualSection> sections;  // in every page of the program
  std::vector<std::string> see_also;    // "forebayd(8)"
};

struct ManualPage {
  std::string file_name;  // "forebay-stage.1"
  std::string text;
};

// One page of the program, and one of each of its commands, whatever their depth.
std::vector<ManualPage> ManualPages(const CommandDescription& program, const ManualFacts& facts);

}  // namespace forebay::manual
