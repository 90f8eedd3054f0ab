// Writes the seed corpora of the fuzz targets, which are checked in: catalog_fuzz_seeds FOLDER
// makes FOLDER/<target>/, which is tests/fuzz/corpus.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "compress/encode/testing/pack_test_model.h"
#include "server/catalog/dataset_source.h"
#include "server/catalog/testing/catalog_test_fixture.h"
#include "server/catalog/testing/record_text.h"
#include "server/catalog/testing/scan_builder.h"
#include "server/catalog/testing/tar_text.h"

namespace forebay::catalog {
namespace {

class SeedWriter {
 public:
  explicit SeedWriter(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void Write(const std::string& target, const std::string& text) {
    std::filesystem::create_directories(folder_ / target);
    const std::string name = "seed" + std::to_string(count_++);
    std::ofstream file(folder_ / target / name, std::ios::binary);
    file << text;
    file.close();
    is_good_ = is_good_ && file.good();
  }
  bool is_good() const { return is_good_; }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
  bool is_good_ = true;
};

// A small data set of each format as a catalog image.
void WriteCatalogs(SeedWriter& seeds) {
  io::MemoryBackend backend;
  const std::string tar = TarFileText("1.jpg", "one") + TarFileText("1.cls", "1") +
                          TarFileText("2.jpg", PatternText(5000, 2)) + TarEndText();
  const std::vector<std::pair<std::string, std::string>> files = {
      {"/folder/a/1", "one"},  {"/folder/a/2", "two"}, {"/folder/b/3", PatternText(2000, 3)},
      {"/idx/x-idx1-ubyte", IdxText(0x08, {3}, "abc")},
      {"/idx/y-idx2-ubyte", IdxText(0x0C, {3, 400}, PatternText(4800, 4))},
      {"/tar/a.tar", tar}};
  for (const auto& [path, text] : files) {
    if (!backend.AddFile(path, TextBytes(text)).has_value()) return;
  }
  DatasetSource source;
  source.name = "seed";
  source.extent_bytes = 1024;
  for (const char* path : {"/folder", "/idx"}) {
    auto root = backend.OpenDirectory(path);
    const auto catalog = BuildFromMetadata(backend, **root, source, nullptr);
    if (catalog.has_value()) seeds.Write("catalog", BytesText((*catalog)->image()));
  }
  auto root = backend.OpenDirectory("/tar");
  auto builder = CreateScanBuilder(**root, source);
  std::vector<CutExtent> cut;
  if (!(*builder)->Feed(TextBytes(tar), cut).has_value()) return;
  if (!(*builder)->EndObject(cut).has_value()) return;
  const auto catalog = (*builder)->Finish();
  if (catalog.has_value()) seeds.Write("catalog", BytesText((*catalog)->image()));
}

// Packs with and without keys, in few and in many extents.
void WritePackCatalogs(SeedWriter& seeds) {
  const compress::TestFolder folder;
  DatasetSource source;
  source.name = "seed";
  for (const bool keyed : {true, false}) {
    io::MemoryBackend backend;
    for (const char* path : {"/packs/a.pack", "/packs/b.pack"}) {
      compress::PackModel model = compress::MakeModel(keyed ? 3 : 9, keyed ? 1 : 2);
      model.schema.keyed = keyed;
      if (!keyed) model.keys.clear();
      if (!backend.AddFile(path, compress::WritePack(model, folder)).has_value()) return;
    }
    auto root = backend.OpenDirectory("/packs");
    source.extent_bytes = keyed ? 2000 : 32'768;
    const auto catalog = BuildFromMetadata(backend, **root, source, nullptr);
    if (catalog.has_value()) seeds.Write("catalog", BytesText((*catalog)->image()));
  }
}

void WriteTars(SeedWriter& seeds) {
  seeds.Write("tar", TarFileText("a/1.jpg", "one") + TarFileText("a/1.cls", "7") +
                              TarEndText());
  seeds.Write("tar", GnuLongNameText(std::string(120, 'g') + ".jpg") +
                              TarFileText("s.jpg", "gnu") + TarEndText());
  seeds.Write("tar", PaxHeaderText(PaxRecordText("path", "p.jpg") +
                                        PaxRecordText("size", "3")) +
                              TarFileText("s.jpg", "pax") + TarEndText());
}

void WriteJsonLines(SeedWriter& seeds) {
  seeds.Write("jsonl", "{\"a\": 1}\n{\"a\": 2}\r\n\n \t\r\n[3]");
  seeds.Write("jsonl", "\xEF\xBB\xBF{}\n12345\r\n1234\r\r\n     \n");
  seeds.Write("jsonl", "\xEF\xBB");
  seeds.Write("jsonl", std::string("\xFF\xFE{\0}\0\n\0", 8));
  seeds.Write("jsonl", std::string("\0\0\xFE\xFF\0\0\0{", 8));
}

void WriteHeaders(SeedWriter& seeds) {
  seeds.Write("record_header", IdxText(0x0D, {2, 3}, std::string(24, 'x')));
  seeds.Write("record_header",
              NpyText("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
                      std::string(24, 'x')));
}

void WriteSelections(SeedWriter& seeds) {
  for (const char* spec : {"all", "range:10:20", "hash:0:0.9:7", "hash:.25:1"}) {
    seeds.Write("selection", spec);
  }
  seeds.Write("selection", std::string("list:val\0# ids\n7\n3\n", 19));
}

// Parts of the catalog of an archive, in the form for messages, padded to the size that
// catalog_part_fuzz.cc expects.
void WriteParts(SeedWriter& seeds) {
  const std::string small = TarFileText("1.jpg", "one") + TarFileText("1.cls", "1");
  for (const std::string& text : {small, small + TarFileText("2.jpg", PatternText(5000, 2))}) {
    const std::string tar = text + std::string(12'288 - text.size(), '\0');
    io::MemoryBackend backend;
    if (!backend.AddFile("/tar/a.tar", TextBytes(tar)).has_value()) return;
    auto root = backend.OpenDirectory("/tar");
    DatasetSource source;
    source.name = "seed";
    source.extent_bytes = 1024;
    ScanPlan plan = PlanScan(**root, source).value();
    plan.objects[0].mtime_ns = 0;
    ObjectScan scan(plan, ObjectId(0));
    std::vector<CutExtent> cut;
    if (!scan.Feed(TextBytes(tar), cut).has_value() || !scan.End(cut).has_value()) return;
    MemorySink sink;
    const auto part = scan.TakePart();
    if (!EncodePart(TablesOf(plan.format, *part), sink).has_value()) return;
    seeds.Write("catalog_part", BytesText(sink.Release()));
  }
}

}  // namespace
}  // namespace forebay::catalog

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: catalog_fuzz_seeds FOLDER\n");
    return 2;
  }
  forebay::catalog::SeedWriter seeds(argv[1]);
  forebay::catalog::WriteCatalogs(seeds);
  forebay::catalog::WriteTars(seeds);
  forebay::catalog::WriteHeaders(seeds);
  forebay::catalog::WriteSelections(seeds);
  forebay::catalog::WritePackCatalogs(seeds);
  forebay::catalog::WriteJsonLines(seeds);
  forebay::catalog::WriteParts(seeds);
  return seeds.is_good() ? 0 : 1;
}
