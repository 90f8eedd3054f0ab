// Every key of the table: its default is valid, good values are taken, bad ones are refused with
// the key's name. Then whole files, edits of a good file that a careless user might make, and the
// generated reference.
#include "server/daemon/config/config.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"

namespace forebay::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::string_view kGoodFile = R"(# a site's file
[daemon]
socket = "/run/user/1000/f/forebayd.sock"
job_id = "42"
workers = 3
log_level = "debug"
exit_when_idle_s = 60

[tier.ram]
capacity = "8GiB"

[tier.ssd]
directory = "/local/forebay"
capacity = "50%"
direct = false

[stage]
readers = 4
request = "1MiB"

[[dataset]]
name = "faces"
path = "/gfs/faces"
format = "raw"
dtype = "f32"
shape = [3, 4]
header = 128
extent = "16MiB"
files = ["x=a.bin", "x=b.bin"]
stage_at_start = false
persist = true
compress = "dense"
copies = "2GiB"
[dataset.splits]
train = "train.txt"

[[dataset]]
name = "digits"
path = "/gfs/digits"
)";

struct KeyCase {
  std::string_view key;
  std::string_view good;
  std::string_view bad;  // empty: any text is taken, and checked where it is used
};

constexpr auto kKeyCases = std::to_array<KeyCase>({
    {"daemon.socket", "/run/f/forebayd.sock", ""},
    {"daemon.state_dir", "/var/lib/forebay", ""},
    {"daemon.job_id", "1234[5].pbs", ""},
    {"daemon.log_level", "warn", "loud"},
    {"daemon.log_format", "json", "xml"},
    {"daemon.workers", "256", "257"},
    {"daemon.io_backend", "threads", "magic"},
    {"daemon.huge_pages", "transparent", "2MiB"},
    {"nodes.rendezvous", "directory:/gfs/rendezvous", "directory:here"},
    {"nodes.free_places", "1024", "1025"},
    {"nodes.rendezvous_timeout_s", "600", "0"},
    {"nodes.late_ms", "0", "30001"},
    {"nodes.probe_answer_ms", "700", "99"},
    {"nodes.suspicion_s", "30", "0"},
    {"nodes.lost_readers_s", "0", "-1"},
    {"peer.interface", "10.1.0.0/16", ""},
    {"peer.ports", "7000-7099", "7099-7000"},
    {"peer.secret", "file:/dev/shm/secret", "/dev/shm/secret"},
    {"peer.allow_plaintext", "true", "yes"},
    {"peer.remote_clients", "false", "no"},
    {"peer.transport", "mpi", "udp"},
    {"peer.payload_connections", "false", "no"},
    {"peer.channels", "16384", "0"},
    {"peer.module", "/site/lib/libforebay_mpi.so", ""},
    {"daemon.metrics_listen", "127.0.0.1:0", ""},
    {"daemon.exit_when_idle_s", "5", "-1"},
    {"tier.ram.capacity", "12%", "12 parsecs"},
    {"tier.ssd.directory", "/local/forebay", ""},
    {"tier.ssd.capacity", "500GB", "101%"},
    {"tier.ssd.direct", "false", "no"},
    {"tier.scrub.enabled", "false", "off"},
    {"tier.scrub.bytes_per_second", "1GiB", "1KiB"},
    {"slots.capacity", "64MiB", "1KiB"},
    {"decode.capacity", "64MiB", "much"},
    {"stream.view_pin_capacity", "1GiB", ""},
    {"stage.readers", "1", "0"},
    {"stage.requests", "64", "0"},
    {"stage.request", "64MiB", "65MiB"},
    {"stage.job_bytes_per_second", "50MB", "999999"},
    {"stage.job_opens_per_second", "100", "1000000001"},
    {"stage.job_requests", "512", "16777217"},
    {"stage.retry_for", "0", "86401"},
    {"stage.retry_max_interval", "1", "0"},
    {"stage.hung_after", "1", "0"},
    {"stage.read_ahead", "false", "no"},
});

Status Load(const std::string& text, Config& config) {
  return LoadConfigText(text, "site.toml", config);
}

std::string RefusalOf(const std::string& text) {
  Config config = DefaultConfig();
  Status loaded = Load(text, config);
  if (loaded.has_value()) loaded = CheckConfig(config);
  return loaded.has_value() ? "" : loaded.error().message();
}

class ConfigFileTest : public ::testing::Test {
 protected:
  ConfigFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fbcXXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~ConfigFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& text) const {
    const std::string path = folder_ + "/forebayd.toml";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::string folder_;
};

TEST(ConfigTest, AWholeFileIsTaken) {
  Config config = DefaultConfig();
  const Status loaded = Load(std::string(kGoodFile), config);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().ToString();
  ASSERT_TRUE(CheckConfig(config).has_value());
  EXPECT_EQ(config.socket, "/run/user/1000/f/forebayd.sock");
  EXPECT_EQ(config.workers, 3U);
  EXPECT_EQ(config.exit_when_idle_s, 60U);
  EXPECT_FALSE(config.ssd_direct);
  EXPECT_EQ(config.stage_request, "1MiB");
  EXPECT_EQ(config.slots_capacity, "512MiB") << "what is not set keeps its default";
  ASSERT_EQ(config.datasets.size(), 2U);
  const stage::DatasetOptions& faces = config.datasets[0];
  EXPECT_EQ(faces.source.name, "faces");
  const catalog::FormatSettings& settings = faces.source.settings;
  EXPECT_THAT(settings.Find("shape")->Dimensions().value(), ElementsAre(3U, 4U));
  EXPECT_EQ(settings.Find("header")->Bytes().value(), 128U);
  EXPECT_EQ(faces.source.extent_bytes, 16 * limits::kMiB);
  EXPECT_EQ(settings.Find("files")->Texts().value().size(), 2U);
  EXPECT_EQ(faces.splits.at("train"), "train.txt");
  EXPECT_FALSE(faces.stage_at_start);
  EXPECT_TRUE(faces.persist);
  EXPECT_EQ(faces.compression, stage::Compression::kDense);
  EXPECT_EQ(faces.copy_bytes, 2 * limits::kGiB);
  EXPECT_EQ(config.datasets[1].copy_bytes, 0U);
  EXPECT_EQ(config.datasets[1].compression, stage::Compression::kOff);
  EXPECT_TRUE(config.datasets[1].stage_at_start);
}

TEST(ConfigTest, FlagsOverrideTheFile) {
  Config config = DefaultConfig();
  ASSERT_TRUE(Load("daemon.workers = 3", config).has_value());
  ASSERT_TRUE(SetConfigKey(config, "daemon.workers", "5").has_value());
  EXPECT_EQ(config.workers, 5U);
}

TEST(ConfigTest, EveryDefaultIsAGoodValue) {
  Config config = DefaultConfig();
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_TRUE(key.set(config, std::string(key.default_text)).has_value()) << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
  }
}

TEST(ConfigTest, EveryKeyTakesGoodValuesAndNamesItselfForBadOnes) {
  ASSERT_EQ(ConfigKeys().size(), kKeyCases.size()) << "a new key needs its case here";
  for (const KeyCase& entry : kKeyCases) {
    Config config = DefaultConfig();
    const Status good = SetConfigKey(config, entry.key, std::string(entry.good));
    EXPECT_TRUE(good.has_value()) << entry.key;
    if (entry.bad.empty()) continue;
    const Status bad = SetConfigKey(config, entry.key, std::string(entry.bad));
    ASSERT_FALSE(bad.has_value()) << entry.key;
    EXPECT_EQ(bad.error().code(), ErrorCode::kInvalidArgument) << entry.key;
    EXPECT_THAT(bad.error().message(), HasSubstr("'" + std::string(entry.key) + "'"));
  }
}

TEST(ConfigTest, AnUnknownKeyNamesTheNearest) {
  Config config = DefaultConfig();
  const Status set = SetConfigKey(config, "tier.ram.capasity", "1GiB");
  ASSERT_FALSE(set.has_value());
  EXPECT_EQ(set.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(set.error().message(), HasSubstr("'tier.ram.capasity'"));
  EXPECT_THAT(set.error().message(), HasSubstr("nearest: 'tier.ram.capacity'"));
  EXPECT_THAT(RefusalOf("\n\n[daemon]\nsockett = \"/x\""),
              HasSubstr("site.toml:4: unknown key 'daemon.sockett' (nearest: 'daemon.socket')"));
}

// A name that no misspelling explains is not compared with every key, which would take a step for
// each pair of bytes, nor repeated in full.
TEST(ConfigTest, AVeryLongUnknownKeyIsCutAndNamesNoNearest) {
  Config config = DefaultConfig();
  const Status set = SetConfigKey(config, "tier.ram.capacity" + std::string(1 << 20, 'x'), "1");
  ASSERT_FALSE(set.has_value());
  EXPECT_EQ(set.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(set.error().message(), HasSubstr("unknown key 'tier.ram.capacityxx"));
  EXPECT_THAT(set.error().message(), Not(HasSubstr("nearest")));
  EXPECT_LT(set.error().message().size(), 200U);
}

TEST(ConfigTest, BadTomlNamesFileAndLine) {
  EXPECT_THAT(RefusalOf("[daemon]\nworkers = 3\nlog_level = \"in"), StartsWith("site.toml:3: "));
  EXPECT_THAT(RefusalOf("[daemon\n"), StartsWith("site.toml:1: "));
  EXPECT_THAT(RefusalOf("a = 1\na = 2"), StartsWith("site.toml:2: "));
}

TEST(ConfigTest, NestingWithoutEndIsRefused) {
  std::string dotted;
  for (int i = 0; i < 200'000; ++i) dotted += "a.";
  EXPECT_THAT(RefusalOf("x = 1\n" + dotted + "b = 1"), StartsWith("site.toml:2: a key has more"));
  EXPECT_THAT(RefusalOf("[" + dotted + "b]\nc = 1"), StartsWith("site.toml:1: a key has more"));
  EXPECT_THAT(RefusalOf("a = " + std::string(200'000, '[')), HasSubstr("nested"));
}

TEST(ConfigTest, TheSameDataSetTwiceIsRefused) {
  const std::string one = "[[dataset]]\nname = \"d\"\npath = \"/gfs/d\"\n";
  EXPECT_THAT(RefusalOf(one + one), HasSubstr("'d' is configured twice"));
}

TEST(ConfigTest, MoreDataSetsThanTheLimitAreRefused) {
  std::string text;
  for (std::uint32_t i = 0; i <= limits::kDatasetCountMax; ++i) {
    text += "[[dataset]]\nname = \"d" + std::to_string(i) + "\"\npath = \"/gfs\"\n";
  }
  EXPECT_THAT(RefusalOf(text), HasSubstr("257 data sets are configured, at most 256"));
}

// Edits of kGoodFile that a careless user might make, one replacement each. `named` must be part of
// the error message.
struct Mutation {
  std::string_view from;
  std::string_view to;
  std::string_view named;
};

constexpr auto kMutations = std::to_array<Mutation>({
    {"[daemon]", "[deamon]", "deamon"},
    {"socket =", "soket =", "nearest: 'daemon.socket'"},
    {"\"/run/user/1000/f/forebayd.sock\"", "[\"/run\"]", "daemon.socket"},
    {"job_id = \"42\"", "job_id = 4.2", "daemon.job_id"},
    {"job_id = \"42\"", "job = \"42\"", "daemon.job"},
    {"workers = 3", "workers = -3", "daemon.workers"},
    {"workers = 3", "workers = 1000", "daemon.workers"},
    {"workers = 3", "workers = \"three\"", "daemon.workers"},
    {"workers = 3", "workers = true", "daemon.workers"},
    {"workers = 3", "workers = 3 4", "site.toml:5"},
    {"workers = 3", "workers", "site.toml:5"},
    {"\"debug\"", "\"verbose\"", "daemon.log_level"},
    {"\"debug\"", "debug", "site.toml:6"},
    {"exit_when_idle_s = 60", "exit_when_idle_s = 6000000000", "daemon.exit_when_idle_s"},
    {"exit_when_idle_s = 60", "exit_when_idle_s = 1979-05-27", "daemon.exit_when_idle_s"},
    {"\"8GiB\"", "\"8 GigaBytes\"", "tier.ram.capacity"},
    {"\"8GiB\"", "\"0\"", "tier.ram.capacity"},
    {"\"8GiB\"", "\"\"", "tier.ram.capacity"},
    {"\"50%\"", "\"150%\"", "tier.ssd.capacity"},
    {"\"50%\"", "0.5", "tier.ssd.capacity"},
    {"direct = false", "direct = 0", "tier.ssd.direct"},
    {"readers = 4", "readers = 0", "stage.readers"},
    {"readers = 4", "readers = 65", "stage.readers"},
    {"request = \"1MiB\"", "request = \"1GiB\"", "stage.request"},
    {"request = \"1MiB\"", "request = \"1\"", "stage.request"},
    {"[[dataset]]\nname = \"faces\"", "[dataset]\nname = \"faces\"", "site.toml:"},
    {"name = \"faces\"", "name = \"../faces\"", "dataset key 'name'"},
    {"name = \"faces\"", "name = 5", "dataset key 'name'"},
    {"name = \"faces\"", "names = \"faces\"", "dataset key 'names'"},
    {"\"/gfs/faces\"", "\"gfs/faces\"", "dataset key 'path'"},
    {"\"raw\"", "\"hdf5\"", "dataset key 'format'"},
    {"\"f32\"", "\"float\"", "dataset key 'dtype'"},
    {"shape = [3, 4]", "shape = [3, 0]", "dataset key 'shape'"},
    {"shape = [3, 4]", "shape = []", "dataset key 'shape'"},
    {"shape = [3, 4]", "shape = \"3x4\"", "dataset key 'shape'"},
    {"header = 128", "header = -1", "dataset key 'header'"},
    {"\"16MiB\"", "\"65MiB\"", "dataset key 'extent'"},
    {"\"x=a.bin\"", "\"a.bin\"", "dataset key 'files'"},
    {"stage_at_start = false", "stage_at_start = \"no\"", "dataset key 'stage_at_start'"},
    {"train = \"train.txt\"", "train = 1", "dataset key 'splits'"},
    {"\"dense\"", "\"zip\"", "dataset key 'compress'"},
});

TEST(ConfigTest, MutatedFilesAreRefusedAndNameWhatIsWrong) {
  for (const Mutation& mutation : kMutations) {
    std::string text(kGoodFile);
    const std::size_t at = text.find(mutation.from);
    ASSERT_NE(at, std::string::npos) << "no mutation was made: " << mutation.from;
    text.replace(at, mutation.from.size(), mutation.to);
    const std::string refusal = RefusalOf(text);
    EXPECT_THAT(refusal, HasSubstr(std::string(mutation.named)))
        << mutation.from << " -> " << mutation.to;
    EXPECT_THAT(refusal, HasSubstr("site.toml:")) << mutation.to;
  }
}

TEST(ConfigTest, FilesOfPacksAreNamedWithoutFields) {
  constexpr std::string_view kPacks = "[[dataset]]\nname = \"p\"\npath = \"/gfs/p\"\n"
                                      "format = \"pack\"\nfiles = [\"b.pack\", \"k=v.pack\"]\n";
  Config config = DefaultConfig();
  const Status loaded = Load(std::string(kPacks), config);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().ToString();
  ASSERT_EQ(config.datasets.size(), 1U);
  const catalog::DatasetSource& source = config.datasets[0].source;
  EXPECT_EQ(source.format, catalog::Format::kPack);
  EXPECT_THAT(source.settings.Find("files")->Texts().value(), ElementsAre("b.pack", "k=v.pack"));
  std::string text(kPacks);
  text.replace(text.find("b.pack"), 6, "");
  EXPECT_THAT(RefusalOf(text), HasSubstr("dataset key 'files'"));
}

TEST(ConfigTest, EveryTruncationIsTakenOrRefusedWithItsLine) {
  for (std::size_t length = 0; length < kGoodFile.size(); ++length) {
    Config config = DefaultConfig();
    const Status loaded = Load(std::string(kGoodFile.substr(0, length)), config);
    if (!loaded.has_value()) {
      EXPECT_THAT(loaded.error().message(), StartsWith("site.toml:")) << length;
    }
  }
}

TEST_F(ConfigFileTest, FilesAreReadAndNamed) {
  Config config = DefaultConfig();
  ASSERT_TRUE(LoadConfigFile(Write(std::string(kGoodFile)), config).has_value());
  EXPECT_EQ(config.job_id, "42");
  const std::string path = Write("[daemon]\nnope = 1");
  const Status refused = LoadConfigFile(path, config);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), StartsWith(path + ":2: "));
}

TEST_F(ConfigFileTest, AMissingFileIsNamed) {
  Config config = DefaultConfig();
  const Status refused = LoadConfigFile(folder_ + "/none.toml", config);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(refused.error().message(), HasSubstr("none.toml"));
}

TEST_F(ConfigFileTest, ReadsNoMoreThanTheLimit) {
  Config config = DefaultConfig();
  const std::string most(limits::kConfigFileBytesMax, '\n');
  EXPECT_TRUE(LoadConfigFile(Write(most), config).has_value());
  const Status refused = LoadConfigFile(Write(most + "\n"), config);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("kConfigFileBytesMax"));
  const Status endless = LoadConfigFile("/dev/zero", config);
  ASSERT_FALSE(endless.has_value());
  EXPECT_EQ(endless.error().code(), ErrorCode::kResourceExhausted);
}

TEST(ConfigReferenceTest, TheDocumentIsWhatTheProgramPrints) {
  std::ifstream file(FOREBAY_CONFIGURATION_MD);
  ASSERT_TRUE(file) << FOREBAY_CONFIGURATION_MD;
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), ConfigReference())
      << "write it anew: forebayd --config-reference > docs/configuration.md";
}

TEST(ConfigReferenceTest, NamesEveryKey) {
  const std::string reference = ConfigReference();
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_THAT(reference, HasSubstr("`" + std::string(key.name) + "`"));
  }
  for (const DatasetKey& key : DatasetKeys()) {
    EXPECT_THAT(reference, HasSubstr("`" + std::string(key.name) + "`"));
  }
}

}  // namespace
}  // namespace forebay::daemon
