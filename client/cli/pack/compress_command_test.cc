// `forebay compress bench`, `inspect --streams` and `--plot`, `pack --from`, images from packs.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/inspect/pack_streams.h"
#include "client/cli/testing/pack_command_test_folder.h"
#include "compress/decode/pack/byte_source.h"
#include "compress/decode/pack/pack_file.h"
#include "compress/encode/testing/pack_test_model.h"

namespace forebay::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

using CompressCommandTest = PackCommandTest;

std::vector<Json> Objects(const std::string& text) {
  std::vector<Json> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
  return all;
}

std::string Words(std::size_t count, std::uint32_t step) {
  std::string bytes;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t word = i * step / 7 & 0xFFFF;
    bytes += static_cast<char>(word & 0xFF);
    bytes += static_cast<char>(word >> 8);
  }
  return bytes;
}

TEST_F(CompressCommandTest, BenchMeasuresEachProfileAndZstd) {
  MakeImages(16, 1);
  const ForebayRun table = Forebay({"compress", "bench", Path("in"), "--repeats", "1"});
  ASSERT_EQ(table.code, 0) << table.err;
  for (const char* method : {"fast", "balanced", "dense", "zstd -3", "zstd -9", "16 samples"}) {
    EXPECT_THAT(table.out, HasSubstr(method));
  }
  const ForebayRun run = Forebay({"compress", "bench", Path("in"), "--profiles", "dense", "--zstd",
                               "1", "--repeats", "2", "--threads", "2", "--json"});
  ASSERT_EQ(run.code, 0) << run.out;
  const std::vector<Json> methods = Objects(run.out);
  ASSERT_EQ(methods.size(), 2U);
  EXPECT_EQ(methods[0]["schema"], "forebay.compress_bench.v1");
  EXPECT_EQ(methods[0]["method"], "dense");
  EXPECT_EQ(methods[1]["method"], "zstd -1");
  for (const Json& method : methods) {
    EXPECT_EQ(method["raw_bytes"], 16 * (kRows * kColumns + 4));
    EXPECT_GT(method["ratio"], 0.5);
    EXPECT_GT(method["encode_bytes_per_s"], 0.0);
    EXPECT_GT(method["decode_bytes_per_s"], 0.0);
  }
}

TEST_F(CompressCommandTest, BenchRefusesAMethodThatIsGivenTwice) {
  MakeImages(4);
  const ForebayRun profiles =
      Forebay({"compress", "bench", Path("in"), "--profiles", "fast", "dense", "fast"});
  EXPECT_EQ(profiles.code, 2);
  EXPECT_THAT(profiles.err, HasSubstr("--profiles: fast is given twice"));
  const ForebayRun levels = Forebay({"compress", "bench", Path("in"), "--zstd", "3", "3"});
  EXPECT_EQ(levels.code, 2);
  EXPECT_THAT(levels.err, HasSubstr("--zstd: 3 is given twice"));
}

TEST_F(CompressCommandTest, BenchTakesRawFilesPacksAndAPartOfThem) {
  Write("depth.raw", "head" + Words(10 * 32 * 48, 3));
  const ForebayRun raw =
      Forebay({"compress", "bench", Path("depth.raw"), "--dtype", "u16", "--shape", "32x48",
               "--header", "4", "--bytes", "6200", "--profiles", "fast", "--zstd", "3", "--json"});
  ASSERT_EQ(raw.code, 0) << raw.out;
  EXPECT_EQ(Objects(raw.out)[0]["samples"], 2);
  MakeImages(8);
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), Path("p.fbp")}).code, 0);
  EXPECT_EQ(Objects(Forebay({"compress", "bench", Path("p.fbp"), "--profiles", "fast", "--json"})
                        .out)[0]["samples"],
            8);
  EXPECT_EQ(Forebay({"compress", "bench", Path("none")}).code, 5);
  EXPECT_THAT(Forebay({"compress", "bench", Path("depth.raw")}).err, HasSubstr("--dtype"));
  EXPECT_EQ(Forebay({"compress", "bench", Path("in"), "--profiles", "best"}).code, 2);
  Write("empty.raw", "");
  EXPECT_EQ(Forebay({"compress", "bench", Path("empty.raw"), "--dtype", "u8", "--shape", "4"})
                .code, 2);
  EXPECT_EQ(Forebay({"compress"}).code, 2);
}

TEST_F(CompressCommandTest, RawFilesArePackedWithoutADaemon) {
  const std::string words = Words(10 * 32 * 48, 3);
  Write("depth.raw", "head" + words);
  const std::vector<std::string> command = {"pack", "--from", Path("depth.raw"), Path("d.fbp"),
                                            "--dtype", "u16", "--shape", "32x48", "--header", "4"};
  const ForebayRun run = Forebay(command);
  ASSERT_EQ(run.code, 0) << run.err;
  ASSERT_EQ(Forebay({"unpack", Path("d.fbp"), "--to", Path("out")}).code, 0);
  EXPECT_EQ(Elements("out/data.npy"), words);
  const auto with = [&](std::size_t at, const std::string& value) {
    auto changed = command;
    changed[3] = Path("x.fbp");
    changed[at] = value;
    return Forebay(changed);
  };
  EXPECT_EQ(with(5, "u17").code, 2);
  EXPECT_EQ(with(7, "32x").code, 2);
  EXPECT_EQ(with(7, "0").code, 2);
  EXPECT_THAT(with(7, "32x49").err, HasSubstr("whole records"));
  EXPECT_THAT(with(9, "99999999").err, HasSubstr("whole records"));
  EXPECT_THAT(Forebay({"pack", "--images", Path("in"), Path("x.fbp"), "--dtype", "u8"}).err,
              HasSubstr("--from"));
  EXPECT_EQ(Forebay({"pack", "--from", Path("a"), "--images", Path("b"), Path("x.fbp")}).code, 2);
  EXPECT_FALSE(fs::exists(Path("x.fbp.part")));
}

TEST_F(CompressCommandTest, PacksArePackedAnew) {
  const std::string pixels = MakeImages(20);
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), Path("a.fbset"), "--shard-size", "20kB"}).code,
            0);
  const ForebayRun run = Forebay({"pack", "--from", Path("a.fbset"), Path("b.fbp"), "--profile",
                               "dense", "--samples-per-chunk", "5"});
  ASSERT_EQ(run.code, 0) << run.err;
  ASSERT_EQ(Forebay({"unpack", Path("b.fbp"), "--to", Path("out")}).code, 0);
  EXPECT_EQ(Elements("out/image.npy"), pixels);
  const Json json = Forebay({"inspect", Path("b.fbp"), "--json"}).last();
  EXPECT_EQ(json["keyed"], true);
  EXPECT_EQ(json["provenance"]["profile"], "dense");
  EXPECT_EQ(json["provenance"]["class.label.1"], "dog");
  EXPECT_EQ(json["fields"][1]["kind"], "label");
}

// Services refuse such packs; every command that shows or converts them reads them.
TEST_F(CompressCommandTest, PacksThatTakeMuchMemoryToDecodeAreShownAndConverted) {
  const auto bytes = compress::PackOfNarrowFrames();
  compress::WriteFile(Path("narrow.fbp"), bytes);
  const std::vector<std::vector<std::string>> commands = {
      {"inspect", Path("narrow.fbp"), "--verify"},
      {"verify", Path("narrow.fbp")},
      {"unpack", Path("narrow.fbp"), "--to", Path("before")},
      {"pack", "--from", Path("narrow.fbp"), Path("wide.fbp"), "--samples-per-chunk", "1"},
      {"unpack", Path("wide.fbp"), "--to", Path("after")}};
  for (const auto& command : commands) {
    const ForebayRun run = Forebay(command);
    EXPECT_EQ(run.code, 0) << command[0] << ": " << run.err;
  }
  EXPECT_EQ(compress::ReadFile(Path("before/thread.npy")),
            compress::ReadFile(Path("after/thread.npy")));
  // What was converted is read without more memory than a service has.
  const auto source = compress::OpenByteSource(Path("wide.fbp"));
  EXPECT_TRUE(compress::PackFile::Open(**source).has_value());
}

TEST_F(CompressCommandTest, ImagesComeBackAsTheFilesTheyWere) {
  MakeImages(8);
  Write("deep/a.pgm", "P5\n3 2\n4000\n" + std::string("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0A"
                                                      "\x0B\x0C", 12));
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), Path("p.fbp")}).code, 0);
  ASSERT_EQ(Forebay({"unpack", Path("p.fbp"), "--to", Path("out"), "--images"}).code, 0);
  const std::string made = Read("in/cat/100.ppm");
  const std::string back = Read("out/image/cat/100.ppm");
  const std::size_t pixels = static_cast<std::size_t>(kRows) * kColumns * 3;
  EXPECT_EQ(back.substr(back.size() - pixels), made.substr(made.size() - pixels));
  EXPECT_EQ(back.substr(0, back.size() - pixels), "P6\n24 20\n255\n");
  EXPECT_TRUE(fs::exists(Path("out/label.npy"))) << "what is no image is an array";
  ASSERT_EQ(Forebay({"pack", "--images", Path("deep"), Path("d.fbp")}).code, 0);
  ASSERT_EQ(Forebay({"unpack", Path("d.fbp"), "--to", Path("deep2"), "--images"}).code, 0);
  EXPECT_EQ(Read("deep2/image/a.pgm"), Read("deep/a.pgm"));
}

TEST_F(CompressCommandTest, ForceReplacesWhenTheNewPackIsWhole) {
  MakeImages(4);
  const std::string pack = Path("p.fbp");
  Write("p.fbp", "old");
  Write("p.fbp.part", "unfinished");
  EXPECT_EQ(Forebay({"pack", "--images", Path("in"), pack}).code, 1);
  EXPECT_EQ(Read("p.fbp"), "old");
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), pack, "--force"}).code, 0);
  EXPECT_EQ(Forebay({"verify", pack}).code, 0);
  // What fails leaves the old one.
  const std::string before = Read("p.fbp");
  Write("in/dog/103.ppm", "P6 2 2 255\n");
  EXPECT_NE(Forebay({"pack", "--images", Path("in"), pack, "--force"}).code, 0);
  EXPECT_EQ(Read("p.fbp"), before);
  EXPECT_EQ(Forebay({"pack", "--images", Path("in"), pack, "--force", "--append"}).code, 2);
}

TEST_F(CompressCommandTest, BothBoundsAreKept) {
  const std::string pixels = MakeImages(8, 1);
  for (const std::string bound : {"both:3,0.9", "either:1,0.01"}) {
    const std::string name = bound.substr(0, 4);
    ASSERT_EQ(Forebay({"pack", "--images", Path("in"), Path(name + ".fbp"), "--bound", bound}).code,
              0);
    ASSERT_EQ(Forebay({"unpack", Path(name + ".fbp"), "--to", Path(name)}).code, 0);
    const std::string decoded = Elements(name + "/image.npy");
    ASSERT_EQ(decoded.size(), pixels.size());
    int largest = 0;
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<unsigned char>(pixels[i]) -
                                           static_cast<unsigned char>(decoded[i])));
    }
    EXPECT_GT(largest, 0) << bound;
    EXPECT_LE(largest, 3) << bound;
  }
}

// Pictures as large as the plane codec wants them, with noise: prediction pays, copies do not.
void WriteFrames(const std::string& folder) {
  fs::create_directories(folder);
  std::mt19937 random(5);
  for (int i = 0; i < 12; ++i) {
    std::string pixels;
    for (int y = 0; y < 64; ++y) {
      for (int x = 0; x < 80; ++x) {
        pixels += static_cast<char>((x / 2 + y + i * 3 + static_cast<int>(random() % 4)) & 0xFF);
      }
    }
    std::ofstream(folder + "/" + std::to_string(100 + i) + ".pgm", std::ios::binary)
        << "P5 80 64 255\n" << pixels;
  }
}

TEST_F(CompressCommandTest, StreamsShowCodersBitsAndPredictors) {
  WriteFrames(Path("frames"));
  for (const std::string profile : {"fast", "balanced", "dense"}) {
    ASSERT_EQ(Forebay({"pack", "--images", Path("frames"), Path(profile + ".fbp"), "--profile",
                       profile}).code, 0);
    const ForebayRun run = Forebay({"inspect", Path(profile + ".fbp"), "--streams", "--json"});
    ASSERT_EQ(run.code, 0) << run.err;
    std::uint64_t raw = 0, coded = 0, blocks = 0;
    for (const Json& line : Objects(run.out)) {
      if (line["schema"] != "forebay.inspect_stream.v1") continue;
      raw += line["raw_bytes"].get<std::uint64_t>();
      coded += line["coded_bytes"].get<std::uint64_t>();
      if (!line.contains("blocks")) continue;
      for (const auto& count : line["blocks"]) blocks += count.get<std::uint64_t>();
    }
    EXPECT_EQ(raw, 12U * 64 * 80);
    EXPECT_GT(coded, 0U);
    EXPECT_LT(coded, fs::file_size(Path(profile + ".fbp")));
    if (profile == "dense") {
      EXPECT_GT(blocks, 0U);
    }
  }
  const ForebayRun table = Forebay({"inspect", Path("dense.fbp"), "--streams"});
  for (const char* words : {"wavefront", "bits/value", "predictors", "plane"}) {
    EXPECT_THAT(table.out, HasSubstr(words));
  }
  Flip("dense.fbp", fs::file_size(Path("dense.fbp")) / 2);
  const ForebayRun damaged = Forebay({"inspect", Path("dense.fbp"), "--streams"});
  EXPECT_EQ(damaged.code, 3);
  EXPECT_THAT(damaged.err, HasSubstr("chunk of field image"));
}

TEST_F(CompressCommandTest, PlotsAreWritten) {
  WriteFrames(Path("a<b"));
  const std::string pack = Path("dense.fbp");
  ASSERT_EQ(Forebay({"pack", "--images", Path("a<b"), pack, "--profile", "dense"}).code, 0);
  ASSERT_EQ(Forebay({"inspect", pack, "--plot", Path("p.svg")}).code, 0);
  const std::string svg = Read("p.svg");
  for (const char* words : {"<svg xmlns", "ratio", "stored bytes by coder", "blocks by prediction",
                            ">wavefront<", ">sample<", "</svg>"}) {
    EXPECT_THAT(svg, HasSubstr(words));
  }
  EXPECT_EQ(Forebay({"inspect", pack, "--plot", Path("q.svg"), "--plot-field", "none"}).code, 5);
  EXPECT_EQ(Forebay({"inspect", pack, "--plot", Path("no/such/q.svg")}).code, 5);
}

TEST(PackPlot, JoinsManyColumnsAndEscapesNames) {
  std::vector<PlotColumn> columns;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    columns.push_back({.first_sample = i * 8, .samples = 8, .raw_bytes = 800, .stored_bytes = 200,
                       .coder_bytes = {{"wavefront", 150}, {"heads", 50}}});
  }
  const std::string svg = PlotOf("a<b & \"c\"", columns);
  EXPECT_THAT(svg, HasSubstr("a&lt;b &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, Not(HasSubstr("blocks by prediction"))) << "there are none";
  std::size_t bars = 0;
  for (std::size_t at = 0; (at = svg.find("<rect", at)) != std::string::npos; ++at) ++bars;
  EXPECT_GT(bars, 200U);
  EXPECT_LT(bars, 500U);
  EXPECT_THAT(PlotOf("nothing", {}), HasSubstr("no samples"));
}

TEST(PackPlot, RatiosOfZeroAreDrawnAtThePanelsBottom) {
  // Byte strings without a byte: chunks that store heads only.
  const std::string svg = PlotOf("empty", {{.first_sample = 0, .samples = 8, .raw_bytes = 0,
                                            .stored_bytes = 64, .coder_bytes = {{"heads", 64}}}});
  EXPECT_THAT(svg, HasSubstr("<path d=\"M70.00 230.00H790.00\""));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace forebay::cli
