// Malformed tar archives: each is refused by name, offset and reason, however it is fed.
#include <gmock/gmock.h>

#include "server/catalog/testing/scan_fixture.h"
#include "server/catalog/testing/tar_text.h"

namespace forebay::catalog {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TarMalformedTest : public ScanFixture {
 protected:
  // One good sample, 1024 bytes, so that errors have an offset of their own.
  std::string good_ = TarFileText("good/1.jpg", "good");
};

TEST_F(TarMalformedTest, RefusesEveryTruncation) {
  const std::string text = good_ + GnuLongNameText(std::string(120, 'x') + ".jpg") +
                           TarFileText("short.jpg", "data") +
                           PaxHeaderText(PaxRecordText("path", "p.jpg")) +
                           TarFileText("q.jpg", PatternText(700, 1)) + TarEndText();
  for (std::size_t length = 0; length + 1024 <= text.size(); length += 3) {
    AddFile("a.tar", text.substr(0, length));
    EXPECT_THAT(ScanError(1000), AllOf(HasSubstr("DATA_LOSS"), HasSubstr("'a.tar' at offset")))
        << length;
  }
}

TEST_F(TarMalformedTest, RefusesAFlippedBitInAnyHeader) {
  const std::string text = good_ + TarFileText("good/2.jpg", "two") + TarEndText();
  for (std::size_t bit = 0; bit < 512 * 8; ++bit) {
    std::string damaged = text;
    damaged[1024 + bit / 8] = static_cast<char>(damaged[1024 + bit / 8] ^ (1 << (bit % 8)));
    AddFile("a.tar", damaged);
    const auto scanned = Scan();
    // The checksum field's last byte is padding that writers fill as they like.
    if (scanned.has_value()) {
      EXPECT_TRUE(bit / 8 >= 148 && bit / 8 < 156) << "bit " << bit;
    } else {
      EXPECT_THAT(scanned.error().message(), HasSubstr("'a.tar' at offset 1024"));
    }
  }
}

TEST_F(TarMalformedTest, RefusesPathTricks) {
  const std::vector<std::pair<std::string, std::string>> tricks = {
      {"../evil.jpg", "contains '..'"},       {"a/../../evil.jpg", "contains '..'"},
      {"a/..", "contains '..'"},              {"/etc/passwd.jpg", "is absolute"},
      {"//x.jpg", "is absolute"},
  };
  for (const auto& [path, reason] : tricks) {
    EXPECT_THAT(ScanErrorOf(good_ + TarFileText(path, "x") + TarEndText()),
                AllOf(HasSubstr("INVALID_ARGUMENT: 'a.tar' at offset 1024: member path"),
                      HasSubstr(reason)));
  }
  const std::string nul("a\0b.jpg", 7);
  EXPECT_THAT(ScanErrorOf(good_ + PaxHeaderText(PaxRecordText("path", nul)) +
                          TarFileText("x.jpg", "x") + TarEndText()),
              HasSubstr("'a.tar' at offset 2048: member path 'a\\x00b.jpg' contains a NUL byte"));
  EXPECT_THAT(ScanErrorOf(good_ + GnuLongNameText(nul) + TarFileText("x.jpg", "x") +
                          TarEndText()),
              HasSubstr("contains a NUL byte"));
  EXPECT_THAT(ScanErrorOf(good_ + PaxHeaderText(PaxRecordText("path", std::string(4096, 'x'))) +
                          TarFileText("x.jpg", "x") + TarEndText()),
              HasSubstr("kPathBytesMax"));
  EXPECT_THAT(ScanErrorOf(TarMemberText({.path = "../x", .data = "", .type = '2'}) +
                          TarEndText()),
              HasSubstr("contains '..'"));
  EXPECT_THAT(ScanErrorOf(TarFileText(".", "x") + TarEndText()), HasSubstr("without a path"));
}

TEST_F(TarMalformedTest, RefusesDuplicateMembersAndKeys) {
  EXPECT_THAT(ScanErrorOf(good_ + TarFileText("good/1.JPG", "again") + TarEndText()),
              HasSubstr("'a.tar' at offset 1024: duplicate member 'good/1.JPG': the sample has "
                        "field 'jpg' already"));
  EXPECT_THAT(ScanErrorOf(good_ + TarFileText("good/2.jpg", "x") +
                          TarFileText("good/1.cls", "1") + TarEndText()),
              HasSubstr("'a.tar' at offset 2048: duplicate key 'good/1': a sample at offset 0"));
}

TEST_F(TarMalformedTest, RefusesSizesThatLie) {
  std::string negative(12, '\xFF');
  std::string huge(12, '\xFF');
  huge[0] = '\x80';
  for (const std::string& field :
       {std::string("0000000000x\0", 12), std::string(12, ' '), std::string(12, '\0'), negative,
        huge, std::string("12 34567890\0", 12), std::string("-0000000001\0", 12)}) {
    EXPECT_THAT(ScanErrorOf(good_ + TarMemberText({.path = "x.jpg",
                                                   .data = "",
                                                   .size_field = field}) +
                            TarEndText()),
                HasSubstr("'a.tar' at offset 1024: malformed size"));
  }
  std::string wrapping = huge;
  for (std::size_t i = 1; i < 5; ++i) wrapping[i] = '\0';  // 2^56 - 1
  for (const std::string& field : {std::string("77777777777\0", 12), wrapping}) {
    EXPECT_THAT(ScanErrorOf(good_ + TarMemberText({.path = "x.jpg",
                                                   .data = "",
                                                   .size_field = field}) +
                            TarEndText()),
                HasSubstr("runs past the end of the archive"));
  }
  EXPECT_THAT(ScanErrorOf(good_ + PaxHeaderText(PaxRecordText("size", "999999999999999999")) +
                          TarFileText("x.jpg", "x") + TarEndText()),
              AllOf(HasSubstr("at offset 2048"), HasSubstr("runs past the end")));
  EXPECT_THAT(ScanErrorOf(good_ + TarMemberText({.path = "x.link",
                                                 .data = "data",
                                                 .type = '1'}) +
                          TarEndText()),
              HasSubstr("member of type '1' says that it has data"));
}

TEST_F(TarMalformedTest, RefusesLinksThatWouldBeFieldsOfSamples) {
  EXPECT_THAT(ScanErrorOf(good_ + TarMemberText({.path = "x/1.jpg", .data = "", .type = '1'}) +
                          TarEndText()),
              AllOf(HasSubstr("'a.tar' at offset 1024: member 'x/1.jpg' is a hard link to"),
                    HasSubstr("tar --hard-dereference")));
  EXPECT_THAT(ScanErrorOf(good_ + TarMemberText({.path = "x/1.jpg", .data = "", .type = '2'}) +
                          TarEndText()),
              AllOf(HasSubstr("is a symbolic link to"), HasSubstr("tar --dereference")));
}

TEST_F(TarMalformedTest, RefusesMalformedPaxRecords) {
  for (const std::string record :
       {"x", "5", "12 path=a", "8 path=a\n", "11 path=a\n", "0 path=a\n", "-9 path=a\n",
        "99 path=a\n",
        "9 =path=\n", "9 pathhhh\n", "3 \n", " 9 path=a\n", "99999999999999999999 a=b\n",
        "11 size=1x\n"}) {
    EXPECT_THAT(ScanErrorOf(good_ + PaxHeaderText(record) + TarFileText("x.jpg", "x") +
                            TarEndText()),
                AllOf(HasSubstr("'a.tar' at offset 1536"), HasSubstr("pax record")))
        << record;
  }
  EXPECT_THAT(ScanErrorOf(good_ + PaxHeaderText(PaxRecordText("path", "all.jpg"), 'g') +
                          TarEndText()),
              HasSubstr("global pax header"));
}

TEST_F(TarMalformedTest, RefusesSparseAndUnknownMembers) {
  EXPECT_THAT(ScanErrorOf(good_ + TarMemberText({.path = "x.jpg", .data = "", .type = 'S'}) +
                          TarEndText()),
              HasSubstr("UNIMPLEMENTED: 'a.tar' at offset 1024: sparse"));
  EXPECT_THAT(ScanErrorOf(good_ + PaxHeaderText(PaxRecordText("GNU.sparse.major", "1")) +
                          TarFileText("x.jpg", "x") + TarEndText()),
              HasSubstr("sparse"));
  for (const char type : {'M', 'X', '8', '\x01', '\xFF'}) {
    EXPECT_THAT(ScanErrorOf(good_ + TarMemberText({.path = "x", .data = "", .type = type}) +
                            TarEndText()),
                HasSubstr("'a.tar' at offset 1024: member of unknown type"));
  }
}

TEST_F(TarMalformedTest, RefusesBytesAfterTheEndMarker) {
  EXPECT_THAT(ScanErrorOf(good_ + TarEndText() + good_ + TarEndText()),
              HasSubstr("'a.tar' at offset 2048: bytes after the end-of-archive marker"));
  AddFile("a.tar", good_ + TarEndText() + std::string(10240, '\0'));
  EXPECT_TRUE(Scan().has_value());
}

TEST_F(TarMalformedTest, RefusesExtensionHeadersWithoutAMember) {
  EXPECT_THAT(ScanErrorOf(good_ + PaxHeaderText(PaxRecordText("path", "x.jpg")) + TarEndText()),
              HasSubstr("extension header without a member"));
}

TEST_F(TarMalformedTest, RefusesHugeExtensionHeaders) {
  EXPECT_THAT(ScanErrorOf(good_ + PaxHeaderText(std::string((1 << 20) + 1, 'x')) + TarEndText()),
              HasSubstr("RESOURCE_EXHAUSTED: 'a.tar' at offset 1024: extension header"));
}

TEST_F(TarMalformedTest, RefusesMoreFieldsThanTheLimit) {
  std::string text;
  for (int i = 0; i < 65; ++i) text += TarFileText("1.e" + std::to_string(i), "x");
  EXPECT_THAT(ScanErrorOf(text + TarEndText()),
              AllOf(HasSubstr("'a.tar' at offset 65536"), HasSubstr("kFieldCountMax")));
  EXPECT_THAT(ScanErrorOf(good_ + PaxHeaderText(PaxRecordText(
                                      "path", "1." + std::string(256, 'e'))) +
                          TarFileText("x", "x") + TarEndText()),
              HasSubstr("kNameBytesMax"));
}

TEST_F(TarMalformedTest, RefusesSamplesBeyond32Bits) {
  ArchivesBySize root({6ULL << 30});  // the scan asks for metadata only
  const auto builder = CreateScanBuilder(root, source_);
  ASSERT_TRUE(builder.has_value());
  std::vector<CutExtent> cut;
  const std::string header =
      TarMemberText({.path = "x.jpg", .data = "", .size_field = "50000000000"});  // 5 GiB
  const Status fed = (*builder)->Feed(TextBytes(good_ + header), cut);
  ASSERT_FALSE(fed.has_value());
  EXPECT_THAT(fed.error().ToString(),
              HasSubstr("RESOURCE_EXHAUSTED: '00000.tar' at offset 1024: sample 'x' exceeds"));
}

TEST_F(TarMalformedTest, RefusesAnArchiveThatIsNone) {
  EXPECT_THAT(ScanErrorOf(PatternText(2048, 1)),
              HasSubstr("'a.tar' at offset 0: tar header does not match its checksum"));
  EXPECT_THAT(ScanErrorOf(""), HasSubstr("'a.tar' at offset 0: truncated"));
  EXPECT_THAT(ScanErrorOf(TarEndText()), HasSubstr("has no samples"));
}

TEST_F(TarMalformedTest, RefusesUseOutOfTurnAndKeepsFailing) {
  AddFile("a.tar", good_ + TarEndText());
  const std::vector<std::byte> bytes = TextBytes(good_ + TarEndText());
  std::vector<CutExtent> cut;
  auto builder = CreateScanBuilder(*root_, source_).value();
  EXPECT_THAT(builder->Finish().error().message(), HasSubstr("has not been fed to its end"));
  ASSERT_TRUE(builder->Feed(bytes, cut).has_value());
  EXPECT_THAT(builder->Feed(bytes, cut).error().message(), HasSubstr("grew beyond its size"));
  EXPECT_THAT(builder->EndObject(cut).error().message(), HasSubstr("grew beyond its size"));
  EXPECT_FALSE(builder->Finish().has_value());

  builder = CreateScanBuilder(*root_, source_).value();
  ASSERT_TRUE(builder->Feed(std::span(bytes).first(1024), cut).has_value());
  EXPECT_THAT(builder->EndObject(cut).error().ToString(),
              HasSubstr("DATA_LOSS: 'a.tar' at offset 1024: the archive ends here"));

  builder = CreateScanBuilder(*root_, source_).value();
  ASSERT_TRUE(builder->Feed(bytes, cut).has_value());
  ASSERT_TRUE(builder->EndObject(cut).has_value());
  EXPECT_TRUE(builder->Finish().has_value());
  EXPECT_FALSE(builder->Feed(bytes, cut).has_value());
  EXPECT_FALSE(builder->EndObject(cut).has_value());
}

TEST_F(TarMalformedTest, RefusesSourcesItCannotScan) {
  EXPECT_THAT(ScanError(), HasSubstr("has no *.tar files"));
  AddFile("a.tar", good_ + TarEndText());
  source_.extent_bytes = 1023;
  EXPECT_THAT(ScanError(), HasSubstr("have at least 1024 bytes"));
  source_.extent_bytes = 4096;
  source_.format = Format::kIdx;
  EXPECT_THAT(ScanError(), HasSubstr("builds from metadata"));
}

}  // namespace
}  // namespace forebay::catalog
