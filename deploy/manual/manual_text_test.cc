// Texts that would mean something to roff or to a shell stand in pages and scripts as they are.
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deploy/manual/command_description.h"
#include "deploy/manual/completion.h"
#include "deploy/manual/man_page.h"

namespace forebay::manual {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ManualTextTest : public ::testing::Test {
 protected:
  CommandDescription Described() { return Describe(app_); }
  std::string Page() {
    const ManualFacts facts = {.section = 1, .version = "1.2-3", .sections = {}, .see_also = {}};
    return ManualPages(Described(), facts)[0].text;
  }

  CLI::App app_{"Does things. And more.", "a-program"};
  std::string text_;
  std::vector<std::string> texts_;
  int number_ = 0;
  unsigned long bytes_ = 0;
};

TEST_F(ManualTextTest, ValuesAreToldFromTheirTypes) {
  app_.add_option("--file", text_)->check(CLI::ExistingFile);
  app_.add_option("--to", text_)->type_name("FOLDER");
  app_.add_option("--tier", text_)->check(CLI::IsMember({"ram", "ssd"}));
  app_.add_option("--count", number_)->check(CLI::Range(1, 7));
  app_.add_option("--bytes", bytes_)->transform(CLI::AsSizeValue(false));
  app_.add_option("--hidden", text_)->group("");
  app_.add_option("NAMES", texts_)->required()->type_name("NAME|FILE");
  const CommandDescription program = Described();
  ASSERT_EQ(program.options.size(), 6U) << "--help and five";
  EXPECT_EQ(program.options[0].kind, ValueKind::kNone);
  EXPECT_EQ(program.options[1].kind, ValueKind::kFile);
  EXPECT_EQ(program.options[2].kind, ValueKind::kFolder);
  EXPECT_EQ(program.options[3].kind, ValueKind::kChoice);
  EXPECT_THAT(program.options[3].choices, ElementsAre("ram", "ssd"));
  EXPECT_EQ(program.options[4].kind, ValueKind::kWord);
  EXPECT_EQ(program.options[4].range, "1 to 7");
  EXPECT_EQ(program.options[5].value, "SIZE");
  ASSERT_EQ(program.arguments.size(), 1U);
  EXPECT_EQ(program.arguments[0].kind, ValueKind::kFile);
  EXPECT_TRUE(program.arguments[0].repeats);
}

TEST_F(ManualTextTest, RoffSeesNoRequestAndNoEscape) {
  app_.add_option("--odd", text_, ".SH NOT A SECTION\n'br\nC:\\fBold `x` \"y\" ~ ^ a-b")
      ->required();
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("\n\\&.SH NOT A SECTION\n\\&\\(aqbr\nC:\\(rsfBold \\(gax\\(ga "
                              "\\(dqy\\(dq \\(ti \\(ha a\\-b.\n"));
  EXPECT_THAT(page, HasSubstr("\na\\-program \\- Does things\n")) << "one sentence";
  EXPECT_THAT(page, HasSubstr("\\fBa\\-program\\fR \\fB\\-\\-odd\\fR \\fITEXT\\fR [\\fIOPTIONS"));
  EXPECT_THAT(page, HasSubstr("\"a\\-program 1.2\\-3\""));
}

TEST_F(ManualTextTest, ShellsSeeNoQuoteAndNoSubstitution) {
  app_.add_option("--odd", text_, "it's $(rm x) [a]: `b`\\");
  const std::string zsh = ZshCompletion(Described());
  EXPECT_THAT(zsh, HasSubstr("'--odd=[it'\\''s $(rm x) \\[a\\]\\: `b`\\\\]:TEXT: '"));
  EXPECT_THAT(zsh, HasSubstr("#compdef a-program\n"));
  const std::string bash = BashCompletion(Described());
  EXPECT_THAT(bash, HasSubstr("complete -F _a_program a-program\n"));
  EXPECT_THAT(bash, HasSubstr("options='-h --help --odd'"));
  EXPECT_THAT(bash, Not(HasSubstr("rm x"))) << "help is no part of it";
}

}  // namespace
}  // namespace forebay::manual
