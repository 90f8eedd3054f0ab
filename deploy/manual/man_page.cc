// Writes the roff text of manual pages: one page for a program and one for each command below it.
// All words come from the description of the command line, so pages cannot differ from --help.
// Everything that is not ours passes through Escaped, because roff takes a period or a quote at the
// beginning of a line for a request.
#include "deploy/manual/man_page.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include <fmt/format.h>

namespace forebay::manual {
namespace {

// `text` as roff prints it: nothing in it is a request, an escape or a typographic sign.
std::string Escaped(std::string_view text) {
  std::string escaped;
  // A request is recognised at the beginning of a line only, and "\&" prints nothing.
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) escaped += "\\&";
    line_begins = c == '\n';
    // Otherwise roff prints typographic quotes and hyphens, which a shell does not accept when an
    // example is copied from the page.
    switch (c) {
      case '\\': escaped += "\\(rs"; break;
      case '-': escaped += "\\-"; break;
      case '\'': escaped += "\\(aq"; break;
      case '`': escaped += "\\(ga"; break;
      case '^': escaped += "\\(ha"; break;
      case '~': escaped += "\\(ti"; break;
      case '"': escaped += "\\(dq"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

// Fonts are switched within the line, because requests for fonts would need a line for each word.
std::string Bold(std::string_view text) { return "\\fB" + Escaped(text) + "\\fR"; }
std::string Italic(std::string_view text) { return "\\fI" + Escaped(text) + "\\fR"; }

std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// Lines that begin with a space stand as they are; others are filled. An empty line parts.
std::string Paragraphs(std::string_view text) {
  std::string out;
  bool verbatim = false;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    // Tables and examples of a help text are indented, and would be run together into one
    // paragraph.
    if (line.starts_with(' ') != verbatim) {
      verbatim = !verbatim;
      out += verbatim ? ".PP\n.nf\n" : ".fi\n.PP\n";
    }
    out += line.empty() ? ".PP" : Escaped(line);
    out += '\n';
  }
  // Filling is turned on again, or all that follows on the page would stay unfilled.
  return verbatim ? out + ".fi\n" : out;
}

std::string Sentence(std::string text) {
  if (!text.empty() && !text.ends_with('.')) text += '.';
  return text;
}

// A choice is one of words that stand for themselves; other values are placeholders.
std::string Value(const OptionDescription& option) {
  const std::string many = option.repeats ? "..." : "";
  if (option.kind == ValueKind::kChoice) return Escaped(option.value) + many;
  return Italic(option.value) + many;
}

std::string Entry(std::string_view heading, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", heading, text);
}

std::string OptionEntry(const OptionDescription& option) {
  std::string heading;
  for (const std::string& name : option.names) {
    heading += (heading.empty() ? "" : ", ") + Bold(name);
  }
  // A flag has no value, so nothing stands behind its names.
  if (option.kind != ValueKind::kNone) heading += " " + Value(option);
  std::string text = Escaped(Sentence(option.help));
  if (!option.range.empty()) text += "\nAllowed: " + Escaped(Sentence(option.range));
  if (option.required) text += "\nRequired.";
  return Entry(heading, text);
}

std::string ArgumentEntry(const OptionDescription& argument) {
  return Entry(Italic(argument.names.front()), Escaped(Sentence(argument.help)));
}

std::string Synopsis(const CommandDescription& command) {
  std::string text = Bold(command.Name(" "));
  for (const OptionDescription& option : command.options) {
    // Options that may be left out are summed up as OPTIONS, because some commands have twenty of
    // them.
    if (option.required) text += " " + Bold(option.names.back()) + " " + Value(option);
  }
  text += " [" + Italic("OPTIONS") + "]";
  if (!command.commands.empty()) text += " " + Italic("COMMAND") + " ...";
  for (const OptionDescription& argument : command.arguments) {
    const std::string word =
        Italic(argument.names.front()) + (argument.repeats ? "..." : "");
    text += argument.required ? " " + word : " [" + word + "]";
  }
  return ".SH SYNOPSIS\n" + text + '\n';
}

std::string Section(const ManualSection& section) {
  std::string text = ".SH " + section.title + '\n' + Paragraphs(section.text);
  for (const ManualSection::Entry& entry : section.entries) {
    text += Entry(Bold(entry.term), Escaped(entry.text));
  }
  return text;
}

// "forebay-stage(1)", in bold up to the section.
std::string Reference(const std::string& page) {
  const std::size_t section = page.rfind('(');
  return Bold(page.substr(0, section)) + page.substr(section);
}

std::string NameSection(const CommandDescription& command) {
  // One sentence on one line, as whatis(1) wants it.
  std::string summary = command.summary.substr(0, command.summary.find('\n'));
  summary = summary.substr(0, summary.find(". "));
  if (summary.ends_with('.')) summary.pop_back();
  return fmt::format(".SH NAME\n{} \\- {}\n", Escaped(command.Name("-")), Escaped(summary));
}

std::string CommandsSection(const CommandDescription& command, int section) {
  if (command.commands.empty()) return {};
  std::string text = ".SH COMMANDS\n";
  for (const CommandDescription& below : command.commands) {
    text += Entry(Reference(fmt::format("{}({})", below.Name("-"), section)),
                  Escaped(Sentence(below.summary)));
  }
  return text;
}

std::string SeeAlso(const CommandDescription& command, const ManualFacts& facts) {
  std::string list;
  const auto add = [&list](const std::string& page) {
    list += (list.empty() ? "" : ",\n") + Reference(page);
  };
  // A command's page leads back to the page of its program, which lists all commands.
  if (command.words.size() > 1) add(fmt::format("{}({})", command.words.front(), facts.section));
  for (const std::string& page : facts.see_also) add(page);
  return list.empty() ? list : ".SH SEE ALSO\n" + list + '\n';
}

std::string Page(const CommandDescription& command, const CommandDescription& program,
                 const ManualFacts& facts) {
  // No date, so that the same sources give the same pages on every day.
  std::string text = fmt::format(".TH \"{}\" {} \"\" \"{} {}\" \"Forebay\"\n",
                                 Escaped(Upper(command.Name("-"))), facts.section,
                                 Escaped(command.words.front()), Escaped(facts.version));
  text += NameSection(command) + Synopsis(command);
  text += ".SH DESCRIPTION\n" + Paragraphs(Sentence(command.summary));
  if (!command.footer.empty()) text += ".PP\n" + Paragraphs(command.footer);
  text += CommandsSection(command, facts.section);
  if (!command.arguments.empty()) text += ".SH ARGUMENTS\n";
  for (const OptionDescription& argument : command.arguments) text += ArgumentEntry(argument);
  // Always there: every command has --help at least.
  text += ".SH OPTIONS\n";
  for (const OptionDescription& option : command.options) text += OptionEntry(option);
  // A reader of a command's page should not have to look up the options of the program elsewhere.
  if (&command != &program) {
    text += ".SH OPTIONS OF ALL COMMANDS\n";
    for (const OptionDescription& option : program.options) {
      // Where a command has an option of the same names, its own is the one that counts.
      const auto same = [&option](const auto& own) { return own.names == option.names; };
      if (!std::ranges::any_of(command.options, same)) text += OptionEntry(option);
    }
  }
  for (const ManualSection& section : facts.sections) text += Section(section);
  return text + SeeAlso(command, facts);
}

void AddPages(const CommandDescription& command, const CommandDescription& program,
              const ManualFacts& facts, std::vector<ManualPage>& pages) {
  pages.push_back({.file_name = fmt::format("{}.{}", command.Name("-"), facts.section),
                   .text = Page(command, program, facts)});
  for (const CommandDescription& below : command.commands) AddPages(below, program, facts, pages);
}

}  // namespace

std::vector<ManualPage> ManualPages(const CommandDescription& program, const ManualFacts& facts) {
  std::vector<ManualPage> pages;
  AddPages(program, program, facts, pages);
  return pages;
}

}  // namespace forebay::manual
