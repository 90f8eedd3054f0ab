// The commands of `forebay` against a daemon from memory, run in the test's own process.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include "client/cli/command_context.h"
#include "client/cli/exit_code.h"
#include "client/cli/printable_stream.h"
#include "client/cli/program.h"
#include "client/cli/testing/forebay_run.h"
#include "client/testing/fake_admin_service.h"
#include "client/testing/fake_daemon.h"
#include "forebay/client.h"

namespace forebay::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using forebay::testing::FakeAdminService;
using forebay::testing::FakeDaemon;

v1::StageProgress Progress(const std::string& state, std::uint64_t staged, bool done) {
  v1::StageProgress progress;
  v1::DatasetStatus& dataset = *progress.mutable_dataset();
  dataset.set_name("fake");
  dataset.set_state(state);
  dataset.set_samples(1'281'167);
  dataset.set_total_bytes(1000);
  dataset.set_staged_bytes(staged);
  if (state == "failed") dataset.set_error("object 7 has changed");
  progress.set_done(done);
  return progress;
}

class CliTest : public ::testing::Test {
 protected:
  std::vector<std::string> With(std::vector<std::string> arguments) const {
    arguments.push_back("--address");
    arguments.push_back(daemon_.address());
    return arguments;
  }

  FakeAdminService admin_;
  FakeDaemon daemon_{{.samples = 100, .admin = admin_.service(), .socket_path = {}}};
};

TEST_F(CliTest, StatusShowsTiersDataSetsStreamsAndTheGfs) {
  admin_.status.set_job_id("job-1");
  admin_.status.mutable_gfs()->set_opens(16);
  admin_.status.mutable_gfs()->set_hung(2);
  admin_.status.mutable_gfs()->set_hung_oldest("read of '/gfs/a.bin\nram'");
  admin_.status.mutable_gfs()->set_hung_oldest_ms(42'000);
  admin_.status.mutable_gfs()->set_is_yielding(true);
  v1::GfsCap& heir = *admin_.status.mutable_gfs()->add_caps();
  heir.set_name("opens");
  heir.set_inherited(18.75);
  heir.set_inherited_from(0);
  admin_.status.mutable_gfs()->add_caps()->set_name("bytes");
  admin_.status.add_tiers()->set_name("ram");
  *admin_.status.add_datasets() = Progress("staged", 1000, true).dataset();
  admin_.status.add_streams()->set_name("train");
  const ForebayRun table = Forebay(With({"status"}));
  EXPECT_EQ(table.code, 0) << table.err;
  for (const char* words : {"job 'job-1'", "GFS: 16 opens", "ram", "1,281,167", "train",
                            "borrowed 0.0/s, inherited 18.8/s from node 0, which is lost)",
                            "borrowed 0.0 MB/s)", "gfs calls not answered 2",
                            R"(read of '/gfs/a.bin\x0aram')", "only here it is slow"}) {
    EXPECT_THAT(table.out, HasSubstr(words));
  }
  const ForebayRun json = Forebay(With({"status", "--json"}));
  ASSERT_EQ(json.lines().size(), 1U);
  EXPECT_EQ(json.lines()[0]["schema"], "forebay.status.v1");
  EXPECT_EQ(json.lines()[0]["gfs"]["opens"], 16);
  EXPECT_EQ(json.lines()[0]["gfs"]["hung"], 2);
  EXPECT_EQ(json.lines()[0]["gfs"]["is_yielding"], true);
  EXPECT_EQ(json.lines()[0]["gfs"]["caps"][0]["inherited_from"], 0);
  EXPECT_TRUE(json.lines()[0]["gfs"]["caps"][1]["inherited_from"].is_null());
  EXPECT_EQ(json.lines()[0]["gfs"]["hung_oldest_ms"], 42'000);
  EXPECT_EQ(json.lines()[0]["datasets"][0]["samples"], 1'281'167);
}

// Sets every field of the message and of the messages in it to its number, or to a text of it.
void FillEveryField(google::protobuf::Message& message) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  const google::protobuf::Reflection& fields = *message.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const Field* field = type.field(i);
    switch (field->cpp_type()) {
      case Field::CPPTYPE_MESSAGE:
        FillEveryField(field->is_repeated() ? *fields.AddMessage(&message, field)
                                            : *fields.MutableMessage(&message, field));
        break;
      case Field::CPPTYPE_STRING:
        fields.SetString(&message, field, std::to_string(field->number()));
        break;
      case Field::CPPTYPE_BOOL: fields.SetBool(&message, field, true); break;
      case Field::CPPTYPE_UINT32:
        fields.SetUInt32(&message, field, static_cast<std::uint32_t>(field->number()));
        break;
      case Field::CPPTYPE_UINT64:
        fields.SetUInt64(&message, field, static_cast<std::uint64_t>(field->number()));
        break;
      case Field::CPPTYPE_INT64: fields.SetInt64(&message, field, field->number()); break;
      case Field::CPPTYPE_DOUBLE: fields.SetDouble(&message, field, field->number()); break;
      default: FAIL() << "no value for " << field->full_name();
    }
  }
}

// Every field that FillEveryField has set is a member of the same name and value.
void ExpectEveryField(const google::protobuf::Descriptor& type, const Json& json) {
  using Field = google::protobuf::FieldDescriptor;
  for (int i = 0; i < type.field_count(); ++i) {
    const Field* field = type.field(i);
    const auto found = json.find(field->name());
    if (found == json.end()) {
      ADD_FAILURE() << "no member " << field->full_name();
    } else if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
      ExpectEveryField(*field->message_type(), field->is_repeated() ? found->at(0) : *found);
    } else if (field->cpp_type() == Field::CPPTYPE_STRING) {
      EXPECT_EQ(*found, std::to_string(field->number())) << field->full_name();
    } else if (field->cpp_type() == Field::CPPTYPE_BOOL) {
      EXPECT_EQ(*found, true) << field->full_name();
    } else {
      EXPECT_EQ(*found, field->number()) << field->full_name();
    }
  }
}

TEST_F(CliTest, StatusAsJsonHasEveryFieldOfTheReply) {
  FillEveryField(admin_.status);
  const ForebayRun run = Forebay(With({"status", "--json"}));
  ASSERT_EQ(run.lines().size(), 1U);
  ExpectEveryField(*v1::StatusReply::descriptor(), run.lines()[0]);
}

TEST_F(CliTest, NodesAsJsonHaveEveryFieldOfTheReply) {
  FillEveryField(admin_.nodes);
  const ForebayRun run = Forebay(With({"status", "--nodes", "--json"}));
  ASSERT_EQ(run.lines().size(), 1U) << run.err;
  EXPECT_EQ(run.lines()[0]["schema"], "forebay.nodes.v1");
  ExpectEveryField(*v1::NodesReply::descriptor(), run.lines()[0]);
}

TEST_F(CliTest, NodesAreShownTheSlowestFirst) {
  EXPECT_THAT(Forebay(With({"status", "--nodes"})).out, HasSubstr("serves its node alone"));
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    v1::NodeStatus& node = *admin_.nodes.add_nodes();
    node.set_rank(rank);
    node.set_name("host" + std::to_string(rank));
    node.set_weight(rank == 0 ? 5 : 1);
    node.set_answers(rank != 3);
    node.set_is_self(rank == 0);
    node.set_received_bytes(rank == 0 ? 0 : 1'000'000'000);
    node.set_busy_ns(rank * 1'000'000'000);
  }
  admin_.nodes.mutable_nodes(3)->set_error("connection\nrefused");
  const std::string out = Forebay(With({"status", "--nodes"})).out;
  EXPECT_LT(out.find("host3"), out.find("host2"));
  EXPECT_LT(out.find("host2"), out.find("host1"));
  EXPECT_LT(out.find("host1"), out.find("host0"));
  EXPECT_THAT(out, HasSubstr("0 (here)"));
  EXPECT_THAT(out, HasSubstr("62.50 %"));
  EXPECT_THAT(out, HasSubstr("500.0 MB/s"));
  EXPECT_THAT(out, HasSubstr("node 3 does not answer: connection\\x0arefused\n"));
  EXPECT_THAT(out, Not(HasSubstr("wrong bytes")));
  EXPECT_THAT(out, Not(HasSubstr("predicted")));
}

TEST_F(CliTest, NodesThatWereNotAskedAreNotSaidToBeSilent) {
  v1::NodeStatus& node = *admin_.nodes.add_nodes();
  node.set_rank(7);
  node.set_is_unasked(true);
  node.set_error("the others took longer than 84 s");
  const std::string out = Forebay(With({"status", "--nodes"})).out;
  EXPECT_THAT(out, HasSubstr("node 7 was not asked: the others took longer than 84 s\n"));
  EXPECT_THAT(out, Not(HasSubstr("does not answer")));
}

// A daemon of a job of 65,536 nodes asks for up to 330 s.
TEST_F(CliTest, TheAnswersOfAllNodesOfALargeJobAreWaitedFor) {
  const auto began = std::chrono::system_clock::now();
  EXPECT_EQ(Forebay(With({"status", "--nodes"})).code, 0);
  EXPECT_GT(admin_.nodes_deadline, began + std::chrono::seconds(330));
}

TEST_F(CliTest, BothViewsOfTheStatusSayHowConnectionsBetweenNodesAreProtected) {
  EXPECT_THAT(Forebay(With({"status"})).out, Not(HasSubstr("connections between nodes")));
  admin_.nodes.add_nodes();
  const std::tuple<const char*, const char*> cases[] = {
      {"encrypted", "encrypted"},
      {"encrypted_but_mpi", "encrypted, except for bytes of samples, which go over MPI "
                            "(peer.transport = \"mpi\")"},
      {"plaintext_on_loopback", "in plaintext, on loopback (no peer.secret)"},
      {"plaintext_allowed", "in plaintext (peer.allow_plaintext = true)"},
      {"of a newer\ndaemon", "of a newer\\x0adaemon"}};
  for (const auto& [value, words] : cases) {
    admin_.status.set_node_connections(value);
    admin_.nodes.set_node_connections(value);
    const std::string line = std::string("\nconnections between nodes: ") + words + "\n";
    EXPECT_THAT(Forebay(With({"status"})).out, HasSubstr(line));
    EXPECT_THAT(Forebay(With({"status", "--nodes"})).out, HasSubstr(line));
  }
}

TEST_F(CliTest, NodesThatSendWrongBytesAreNamed) {
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    v1::NodeStatus& node = *admin_.nodes.add_nodes();
    node.set_rank(rank);
    node.set_answers(true);
    node.set_wrong_answers(rank * 3);
  }
  const std::string out = Forebay(With({"status", "--nodes"})).out;
  EXPECT_THAT(out, HasSubstr("node 1 has sent wrong bytes in 3 answers"));
  EXPECT_THAT(out, Not(HasSubstr("node 0 has sent")));
}

TEST_F(CliTest, NodesThatAreLateAndThoseThatAreNotUsedAreNamed) {
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    v1::NodeStatus& node = *admin_.nodes.add_nodes();
    node.set_rank(rank);
    node.set_answers(true);
    node.set_late_calls(rank == 1 ? 7 : 0);
    node.set_is_left_out(rank == 2);
  }
  const std::string out = Forebay(With({"status", "--nodes"})).out;
  EXPECT_THAT(out, HasSubstr("node 1: 7 requests were late"));
  EXPECT_THAT(out, HasSubstr("node 2 is asked for nothing at present"));
  EXPECT_THAT(out, Not(HasSubstr("node 0")));
  const Json json = Forebay(With({"status", "--nodes", "--json"})).lines()[0]["nodes"];
  EXPECT_EQ(json[1]["late_calls"], 7);
  EXPECT_EQ(json[2]["is_left_out"], true);
}

TEST_F(CliTest, NodesThatLeaveOrWhoseGfsIsSlowAreNamed) {
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    v1::NodeStatus& node = *admin_.nodes.add_nodes();
    node.set_rank(rank);
    node.set_answers(true);
    node.set_is_leaving(rank == 1);
    node.set_is_yielding(rank == 2);
  }
  const std::string out = Forebay(With({"status", "--nodes"})).out;
  EXPECT_THAT(out, HasSubstr("node 1 leaves the job"));
  EXPECT_THAT(out, HasSubstr("node 2: its GFS is slow"));
  EXPECT_THAT(out, Not(HasSubstr("node 0")));
  const Json json = Forebay(With({"status", "--nodes", "--json"})).lines()[0]["nodes"];
  EXPECT_EQ(json[0]["is_leaving"], false);
  EXPECT_EQ(json[1]["is_leaving"], true);
  EXPECT_EQ(json[1]["is_yielding"], false);
  EXPECT_EQ(json[2]["is_yielding"], true);
}

TEST_F(CliTest, NodesThatJoinAndPlacesThatAreFreeAreNamed) {
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    v1::NodeStatus& node = *admin_.nodes.add_nodes();
    node.set_rank(rank);
    node.set_answers(rank != 2);
    node.set_is_joining(rank == 1);
    node.set_is_free(rank == 2);
  }
  admin_.nodes.mutable_nodes(2)->set_error("no node has taken this place");
  admin_.nodes.mutable_nodes(2)->set_is_left_out(true);
  const std::string out = Forebay(With({"status", "--nodes"})).out;
  EXPECT_THAT(out, HasSubstr("node 1 has joined the job, and takes over the part of its place\n"));
  EXPECT_THAT(out, HasSubstr("place 2 is free: a node can join the job there (docs/nodes.md)\n"));
  EXPECT_THAT(out, Not(HasSubstr("node 2")));  // it is no node that is lost
  EXPECT_THAT(out, Not(HasSubstr("node 0")));
  const Json json = Forebay(With({"status", "--nodes", "--json"})).lines()[0]["nodes"];
  EXPECT_EQ(json[1]["is_joining"], true);
  EXPECT_EQ(json[1]["is_free"], false);
  EXPECT_EQ(json[2]["is_joining"], false);
  EXPECT_EQ(json[2]["is_free"], true);
}

TEST_F(CliTest, ThePredictedShareOfLocalSamplesStandsBesideTheMeasuredOne) {
  v1::NodeStatus& node = *admin_.nodes.add_nodes();
  node.set_answers(true);
  node.set_is_self(true);
  node.set_samples(1000);
  node.set_other_samples(480);
  node.set_predicted_local_millionths(500'000);
  EXPECT_THAT(Forebay(With({"status", "--nodes"})).out,
              HasSubstr("not got from others: 52.00 %; predicted for a random order: 50.00 %"));
  const Json json = Forebay(With({"status", "--nodes", "--json"})).lines()[0]["nodes"][0];
  EXPECT_EQ(json["local_millionths"], 520'000);
  EXPECT_EQ(json["predicted_local_millionths"], 500'000);
}

TEST_F(CliTest, StatusSaysInWhichPagesMemoryLies) {
  v1::MemoryPages& pages = *admin_.status.mutable_pages();
  pages.set_reserved_bytes(std::uint64_t{1} << 30);
  pages.set_transparent_bytes(4 << 20);
  EXPECT_THAT(Forebay(With({"status"})).out, Not(HasSubstr("small pages")));
  pages.set_small_bytes(2 << 20);
  pages.set_advice("the kernel refused");
  const std::string out = Forebay(With({"status"})).out;
  EXPECT_THAT(out, HasSubstr("memory pages: 2 MiB reserved 1.00 GiB, 2 MiB transparent 4.00 MiB, "
                             "4 KiB 2.00 MiB\n"));
  EXPECT_THAT(out, HasSubstr("small pages: the kernel refused\n"));
  const ForebayRun json = Forebay(With({"status", "--json"}));
  EXPECT_EQ(json.lines()[0]["pages"]["small_bytes"], 2 << 20);
  EXPECT_EQ(json.lines()[0]["pages"]["advice"], "the kernel refused");
}

TEST_F(CliTest, DatasetsAreListed) {
  *admin_.status.add_datasets() = Progress("idle", 0, false).dataset();
  EXPECT_THAT(Forebay(With({"datasets"})).out, HasSubstr("fake"));
  const ForebayRun json = Forebay(With({"--json", "datasets"}));
  EXPECT_EQ(json.lines()[0]["datasets"][0]["state"], "idle");
}

TEST_F(CliTest, StagePrintsPlainLinesWithoutATerminal) {
  admin_.stage = {Progress("staging", 500, false), Progress("staged", 1000, true)};
  const ForebayRun run = Forebay(With({"stage", "fake"}));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("fake:  50 %"));
  EXPECT_THAT(run.out, HasSubstr("fake: staged, 1,281,167 samples"));
  EXPECT_THAT(run.out, Not(HasSubstr("\r")));
  EXPECT_TRUE(admin_.stage_request.wait());
  EXPECT_EQ(admin_.stage_request.datasets(0), "fake");
}

TEST_F(CliTest, StageDrawsABarOnATerminal) {
  admin_.stage = {Progress("staging", 500, false), Progress("staged", 1000, true)};
  EXPECT_THAT(Forebay(With({"stage"}), true).out, HasSubstr("fake [############............]"));
}

TEST_F(CliTest, StageEventsAreOneObjectPerLine) {
  admin_.stage = {Progress("staging", 500, false), Progress("staged", 1000, true)};
  const ForebayRun run = Forebay(With({"stage", "--json"}));
  ASSERT_EQ(run.lines().size(), 2U);
  EXPECT_EQ(run.lines()[0]["schema"], "forebay.stage.v1");
  EXPECT_EQ(run.lines()[0]["event"], "progress");
  EXPECT_EQ(run.lines()[1]["event"], "done");
}

TEST_F(CliTest, StageReportsWhatCouldNotBeStaged) {
  admin_.stage = {Progress("failed", 500, true)};
  const ForebayRun run = Forebay(With({"stage"}));
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.out, HasSubstr("failed: object 7 has changed"));
  admin_.stage = {Progress("staging", 500, false)};
  EXPECT_EQ(Forebay(With({"stage"})).code, 3) << "the stream ended before everything was staged";
  EXPECT_EQ(Forebay(With({"stage", "--no-wait"})).code, 0);
  EXPECT_FALSE(admin_.stage_request.wait());
}

TEST_F(CliTest, StageTellsPartlyStagedFromStaged) {
  admin_.stage = {Progress("partly staged", 1000, true)};
  v1::DatasetStatus& dataset = *admin_.stage[0].mutable_dataset();
  dataset.set_unstaged_bytes(400);
  dataset.set_unstaged_reason("400 bytes fit on no tier: set tier.ram.capacity to 160 MiB");
  const ForebayRun run = Forebay(With({"stage"}));
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.out, AllOf(HasSubstr("partly staged"), HasSubstr("400 B"),
                             HasSubstr("set tier.ram.capacity to 160 MiB")));
  const ForebayRun json = Forebay(With({"stage", "--json"}));
  EXPECT_EQ(json.code, 3);
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"state\":\"partly staged\""),
                              HasSubstr("\"unstaged_bytes\":400"),
                              HasSubstr("\"unstaged_reason\":\"400 bytes fit on no tier")));
}

TEST_F(CliTest, DamagedExtentsAreCountedByStatusAndReport) {
  v1::TierStatus& tier = *admin_.status.add_tiers();
  tier.set_name("ssd");
  EXPECT_THAT(Forebay(With({"status"})).out, Not(HasSubstr("damaged")));
  EXPECT_THAT(Forebay(With({"report"})).out, Not(HasSubstr("damaged")));
  tier.set_bad_extents(3);
  EXPECT_THAT(Forebay(With({"status"})).out, HasSubstr("ssd: 3 damaged extents"));
  EXPECT_EQ(Forebay(With({"status", "--json"})).lines()[0]["tiers"][0]["bad_extents"], 3);
  EXPECT_THAT(Forebay(With({"report"})).out, ContainsRegex("damaged extents in ssd +3 "));
  EXPECT_EQ(Forebay(With({"report", "--json"})).lines()[0]["bad_extents"]["ssd"], 3);
}

TEST(Cli, WantOfRoomIsNoRefusalOfAnotherUsersDaemon) {
  EXPECT_EQ(static_cast<int>(ExitCodeOf(ErrorCode::kResourceExhausted)), 7);
  EXPECT_EQ(static_cast<int>(ExitCodeOf(ErrorCode::kPermissionDenied)), 6);
}

TEST_F(CliTest, UnknownDataSetsHaveACodeOfTheirOwn) {
  const ForebayRun run = Forebay(With({"stage", "none"}));
  EXPECT_EQ(run.code, 5);
  EXPECT_THAT(run.err, HasSubstr("no data set 'none'"));
  const ForebayRun json = Forebay(With({"stage", "none", "--json"}));
  EXPECT_EQ(json.lines()[0]["schema"], "forebay.error.v1");
  EXPECT_EQ(json.lines()[0]["code"], "NOT_FOUND");
}

TEST_F(CliTest, VerifyFindsDamage) {
  v1::VerifyProgress progress;
  progress.set_extents_total(4);
  progress.set_extents_done(4);
  progress.set_done(true);
  admin_.verify = {progress};
  EXPECT_EQ(Forebay(With({"verify"})).code, 0);
  admin_.verify[0].set_extents_bad(1);
  admin_.verify[0].add_errors("extent 3 does not match its checksum");
  const ForebayRun run = Forebay(With({"verify"}));
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.err, HasSubstr("extent 3"));
  EXPECT_EQ(Forebay(With({"verify", "--json"})).lines()[0]["extents_bad"], 1);
  admin_.verify.clear();
  EXPECT_EQ(Forebay(With({"verify"})).code, 3) << "an unfinished verification proves nothing";
}

TEST_F(CliTest, EvictAndDrain) {
  admin_.evict.set_extents(12);
  EXPECT_THAT(Forebay(With({"evict", "fake", "--tier", "ssd"})).out, HasSubstr("12 extents"));
  EXPECT_EQ(admin_.evict_request.tier(), "ssd");
  EXPECT_EQ(Forebay(With({"evict", "fake", "--tier", "tape"})).code, 2);
  EXPECT_EQ(Forebay(With({"drain"})).code, 0);
  EXPECT_EQ(admin_.drains, 1);
  EXPECT_EQ(Forebay(With({"drain", "--after-all"})).code, 0);
  EXPECT_EQ(admin_.drains, 1);
  EXPECT_EQ(admin_.drains_after_all, 1);
  EXPECT_EQ(admin_.drain_request.node(), "");
}

TEST_F(CliTest, DrainHasANodeLeave) {
  EXPECT_THAT(Forebay(With({"drain", "--node", "3"})).out, HasSubstr("node '3' hands over"));
  EXPECT_EQ(admin_.drain_request.node(), "3");
  EXPECT_EQ(admin_.drain_request.hand_over_s(), 300U);
  EXPECT_FALSE(admin_.drain_request.after_all());
  const ForebayRun run =
      Forebay(With({"drain", "--node", "node17", "--hand-over-s", "20", "--json"}));
  EXPECT_EQ(run.lines()[0]["node"], "node17");
  EXPECT_EQ(admin_.drain_request.hand_over_s(), 20U);
  const int drains = admin_.drains;
  EXPECT_EQ(Forebay(With({"drain", "--node", "3", "--after-all"})).code, 2);
  EXPECT_EQ(Forebay(With({"drain", "--node", "3", "--hand-over-s", "0"})).code, 2);
  EXPECT_EQ(admin_.drains, drains) << "the daemon was not asked";
}

TEST_F(CliTest, OrderAndItsInverseAgree) {
  const ForebayRun steps = Forebay(With({"order", "fake", "--global-batch", "10", "--ranks", "2",
                                  "--seed", "3", "--epoch", "4", "--steps", "100", "--json"}));
  ASSERT_EQ(steps.code, 0) << steps.err;
  const std::vector<Json> lines = steps.lines();
  ASSERT_EQ(lines.size(), 20U);
  for (const Json& line : lines) {
    const std::string id = std::to_string(line["ids"][2].get<std::uint64_t>());
    const ForebayRun inverse =
        Forebay(With({"order", "fake", "--global-batch", "10", "--ranks", "2", "--seed", "3",
                      "--epoch", "4", "--sample", id, "--json"}));
    ASSERT_EQ(inverse.code, 0) << inverse.err << inverse.out;
    EXPECT_EQ(inverse.lines()[0]["step"], line["step"]);
    EXPECT_EQ(inverse.lines()[0]["rank"], line["rank"]);
    EXPECT_EQ(inverse.lines()[0]["position"], line["position"].get<std::uint64_t>() + 2);
  }
}

TEST_F(CliTest, PartialOrderHasFixedSharesAndNeedsTheirNumber) {
  const auto order = [&](const std::string& exchange, const std::string& epoch) {
    return Forebay(With({"order", "fake", "--global-batch", "10", "--ranks", "2", "--mode",
                         "partial", "--canonical-nodes", "2", "--block-samples", "1",
                         "--exchange-fraction", exchange, "--epoch", epoch, "--steps", "100",
                         "--json"}));
  };
  const auto samples_of_rank_0 = [](const ForebayRun& run) {
    EXPECT_EQ(run.code, 0) << run.err;
    std::set<std::uint64_t> samples;
    for (const Json& line : run.lines()) {
      if (line["rank"] != 0) continue;
      for (const Json& id : line["ids"]) samples.insert(id.get<std::uint64_t>());
    }
    return samples;
  };
  const std::set<std::uint64_t> share = samples_of_rank_0(order("0", "0"));
  EXPECT_EQ(share.size(), 50U);
  EXPECT_EQ(samples_of_rank_0(order("0", "1")), share);
  EXPECT_NE(order("0", "1").out, order("0", "0").out);
  EXPECT_NE(samples_of_rank_0(order("0.2", "1")), share);
  EXPECT_EQ(order("1.2", "0").code, 2);
  EXPECT_THAT(Forebay(With({"order", "fake", "--mode", "partial"})).err,
              HasSubstr("canonical_nodes is 0"));
}

TEST_F(CliTest, OrderOfASelectionNamesItsSampleIds) {
  for (std::uint64_t i = 0; i < 100; ++i) admin_.selected_ids.push_back(1000 + i);
  const ForebayRun run = Forebay(With({"order", "fake", "--selection", "hash:0.1", "--mode",
                                "sequential", "--global-batch", "4"}));
  EXPECT_EQ(run.out, "epoch 0 step 0 rank 0: 1000 1001 1002 1003\n");
  EXPECT_THAT(Forebay(With({"order", "fake", "--selection", "hash:0.1", "--sample", "1007"})).out,
              HasSubstr("sample 1007 is at position"));
  EXPECT_EQ(Forebay(With({"order", "fake", "--selection", "h", "--sample", "7"})).code, 5);
  EXPECT_EQ(Forebay(With({"order", "fake", "--sample", "100"})).code, 5);
  EXPECT_EQ(Forebay(With({"order", "fake", "--mode", "spiral"})).code, 2);
}

TEST_F(CliTest, BenchReadsEveryByte) {
  const ForebayRun run = Forebay(With({"bench", "fake", "--global-batch", "10", "--seconds", "0.05",
                                "--json"}));
  ASSERT_EQ(run.code, 0) << run.err << run.out;
  const Json line = run.lines()[0];
  EXPECT_GT(line["samples"], 0);
  EXPECT_GT(line["bytes"], line["samples"].get<std::uint64_t>() * 100);
  EXPECT_EQ(Forebay(With({"bench", "fake", "--seconds", "0.02", "--delivery", "views"})).code, 0);
  EXPECT_EQ(Forebay(With({"bench", "fake", "--seconds", "0.02", "--inline"})).code, 0);
}

// Which daemon is meant matters only to commands that ask one.
TEST_F(CliTest, OfSeveralDaemonsOfAJobOneIsToBeNamed) {
  const std::string base = daemon_.folder() + "/forebay-two";
  std::filesystem::create_directories(base);
  std::filesystem::create_directories(base + "-0123abcd");
  const FakeDaemon first({.job_id = "two", .socket_path = base + "/forebayd.sock"});
  const FakeDaemon second({.job_id = "two", .socket_path = base + "-0123abcd/forebayd.sock"});
  setenv("XDG_RUNTIME_DIR", daemon_.folder().c_str(), 1);
  setenv("FOREBAY_JOB_ID", "two", 1);
  const ForebayRun status = Forebay({"status"});
  const ForebayRun help = Forebay({"help", "status"});
  const ForebayRun audit = Forebay({"audit", daemon_.folder() + "/none"});
  unsetenv("XDG_RUNTIME_DIR");
  unsetenv("FOREBAY_JOB_ID");
  EXPECT_EQ(status.code, 2);
  EXPECT_THAT(status.err, AllOf(HasSubstr(first.address()), HasSubstr(second.address()),
                                HasSubstr("--address")));
  EXPECT_EQ(help.code, 0) << help.err;
  EXPECT_EQ(audit.code, 5) << audit.err;
}

TEST(Cli, NoDaemonHasACodeOfItsOwn) {
  const ForebayRun run = Forebay({"status", "--address", "unix:/nonexistent/forebayd.sock"});
  EXPECT_EQ(run.code, 4);
  EXPECT_THAT(run.err, HasSubstr("start forebayd"));
}

TEST(Cli, UsageErrorsAndHelp) {
  EXPECT_EQ(Forebay({}).code, 2);
  EXPECT_EQ(Forebay({"fly"}).code, 2);
  EXPECT_EQ(Forebay({"status", "--address", "tcp:localhost"}).code, 2);
  const ForebayRun help = Forebay({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"datasets", "stage", "status", "verify", "evict", "order", "audit",
                              "bench", "drain", "launch", "pack", "unpack", "inspect",
                              "Exit codes:"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
  }
  EXPECT_EQ(Forebay({"stage", "--help"}).code, 0);
  EXPECT_THAT(Forebay({"--version"}).out, HasSubstr("forebay "));
}

// Delivery logs of real streams, and what becomes of the audit when they are tampered with.
class AuditTest : public CliTest {
 protected:
  struct Part {
    std::uint32_t ranks = 1;
    std::uint32_t rank = 0;
    std::uint64_t batches = ~0ULL;
    std::optional<PositionToken> resume = {};
    std::uint32_t epochs = 2;
    std::uint32_t first_epoch = 0;
    OrderMode mode = OrderMode::kGlobal;
  };

  // Consumes a stream and returns where it stopped.
  PositionToken Consume(const std::string& log, const Part& part) {
    auto client = Client::Connect({.address = daemon_.address()});
    StreamOptions options;
    options.dataset = "fake";
    options.global_batch = 8;
    options.tail = TailPolicy::kShort;
    options.epochs = part.epochs;
    options.first_epoch = part.first_epoch;
    options.ranks = part.ranks;
    options.rank = part.rank;
    options.resume = part.resume;
    options.mode = part.mode;
    options.canonical_nodes = 4;
    options.delivery_log = Path(log);
    auto stream = (*client)->Open(options);
    EXPECT_TRUE(stream.has_value()) << stream.error().ToString();
    for (std::uint64_t i = 0; i < part.batches; ++i) {
      auto batch = (*stream)->Next();
      EXPECT_TRUE(batch.has_value());
      if (!*batch) break;
    }
    return (*stream)->token();
  }

  std::string Path(const std::string& log) const { return daemon_.folder() + "/" + log; }

  std::vector<std::string> Lines(const std::string& log) const {
    std::ifstream file(Path(log));
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  void Write(const std::string& log, const std::vector<std::string>& lines) const {
    std::ofstream file(Path(log), std::ios::trunc);
    for (const std::string& line : lines) file << line << '\n';
  }

  ForebayRun Audit(std::vector<std::string> logs, bool complete = false) const {
    std::vector<std::string> arguments = {"audit", "--json"};
    if (complete) arguments.push_back("--complete");
    for (const std::string& log : logs) arguments.push_back(Path(log));
    return Forebay(arguments);
  }
};

TEST_F(AuditTest, WholeEpochsPass) {
  Consume("a", {});
  const ForebayRun run = Audit({"a"}, true);
  EXPECT_EQ(run.code, 0) << run.out;
  const Json stream = run.lines()[0]["streams"][0];
  ASSERT_EQ(stream["epochs"].size(), 2U);
  EXPECT_EQ(stream["epochs"][1]["consumed"], 100);
  EXPECT_THAT(Forebay({"audit", Path("a")}).out, HasSubstr("every sample exactly once"));
}

TEST_F(AuditTest, HalfALineThatAHeaderFollowsIsPassedOver) {
  const PositionToken checkpoint = Consume("a", {.batches = 5});
  std::ofstream(Path("a"), std::ios::app) << "{\"epoch\":0,\"st";
  Consume("a", {.resume = checkpoint});
  const ForebayRun run = Audit({"a"}, true);
  EXPECT_EQ(run.code, 0) << run.out;
  // In any other place it may be a line that was tampered with.
  std::vector<std::string> lines = Lines("a");
  std::swap(lines[1], lines[6]);
  Write("a", lines);
  EXPECT_NE(Audit({"a"}, true).code, 0);
}

TEST_F(AuditTest, RanksAreOneHistory) {
  Consume("a", {.ranks = 4, .rank = 0});
  Consume("b", {.ranks = 4, .rank = 1});
  Consume("c", {.ranks = 4, .rank = 2});
  EXPECT_EQ(Audit({"a", "b", "c"}).code, 3) << "rank 3 is missing";
  Consume("d", {.ranks = 4, .rank = 3});
  EXPECT_EQ(Audit({"a", "b", "c", "d"}, true).code, 0);
}

TEST_F(AuditTest, PartialOrdersAreCheckedAndBelongToTheirGlobalBatch) {
  Consume("a", {.ranks = 2, .rank = 0, .mode = OrderMode::kPartial});
  Consume("b", {.ranks = 2, .rank = 1, .mode = OrderMode::kPartial});
  const ForebayRun run = Audit({"a", "b"}, true);
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_EQ(run.lines()[0]["streams"][0]["wrong_ids"], 0);
  std::vector<std::string> lines = Lines("a");
  Json header = Json::parse(lines[0]);
  header["global_batch"] = 16;
  lines[0] = header.dump();
  Write("a", lines);
  const ForebayRun refused = Audit({"a"});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.out + refused.err, HasSubstr("is 8, but the stream's is 16"));
}

TEST_F(AuditTest, RestoresTakeBackWhatTheyRepeat) {
  const PositionToken checkpoint = Consume("first", {.batches = 15});
  Consume("lost", {.batches = 10, .resume = checkpoint});
  Consume("b0", {.ranks = 2, .rank = 0, .resume = checkpoint});
  Consume("b1", {.ranks = 2, .rank = 1, .resume = checkpoint});
  const ForebayRun run = Audit({"lost", "b1", "first", "b0"}, true);
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_EQ(run.lines()[0]["streams"][0]["superseded_batches"], 10);
  EXPECT_EQ(Audit({"first", "b0"}, true).code, 3);
  EXPECT_EQ(Audit({"b0", "b1"}, true).code, 3) << "the beginning is missing";
}

TEST_F(AuditTest, ARankThatIsRestartedAloneTakesBackItsOwnBatches) {
  Consume("r0", {.ranks = 2, .rank = 0});
  const PositionToken checkpoint = Consume("r1", {.ranks = 2, .rank = 1, .batches = 15});
  Consume("r1", {.ranks = 2, .rank = 1, .batches = 3, .resume = checkpoint});
  Consume("r1", {.ranks = 2, .rank = 1, .resume = checkpoint});
  const ForebayRun run = Audit({"r0", "r1"}, true);
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_EQ(run.lines()[0]["streams"][0]["superseded_batches"], 3);
}

TEST_F(AuditTest, AnUnfinishedEpochIsNoViolationUnlessItMustBeWhole) {
  Consume("a", {.batches = 20});
  const ForebayRun run = Audit({"a"});
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_EQ(run.lines()[0]["streams"][0]["epochs"][1]["unfinished"], 100 - 7 * 8);
  EXPECT_EQ(Audit({"a"}, true).code, 3);
}

TEST_F(AuditTest, AStreamThatBeginsAtALaterEpochEndsWithItsLast) {
  Consume("whole", {.first_epoch = 3});
  EXPECT_EQ(Audit({"whole"}, true).code, 0);
  Consume("part", {.batches = 13, .first_epoch = 3});
  const ForebayRun run = Audit({"part"}, true);
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.lines()[0]["streams"][0]["epochs"][1]["epoch"], 4);
  EXPECT_EQ(run.lines()[0]["streams"][0]["epochs"][1]["missing"], 100);
}

TEST_F(AuditTest, RefusesEpochsThatTheHeaderDoesNotHave) {
  Consume("a", {});
  std::vector<std::string> lines = Lines("a");
  ASSERT_EQ(lines.size(), 1U + 2 * 13);
  Json header = Json::parse(lines[0]);
  header["epochs"] = 1;
  lines[0] = header.dump();
  Write("a", lines);
  const ForebayRun run = Audit({"a"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.out, HasSubstr("a:15: epoch 1 does not exist: its header says that the stream "
                                 "ends before epoch 1"));
}

TEST_F(AuditTest, ASeededGapIsFound) {
  Consume("a", {});
  std::vector<std::string> lines = Lines("a");
  lines.erase(lines.begin() + 5);
  Write("a", lines);
  const ForebayRun run = Audit({"a"});
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.lines()[0]["streams"][0]["epochs"][0]["missing"], 8);
  EXPECT_THAT(run.out, HasSubstr("positions 32 to 39 were not consumed"));
}

TEST_F(AuditTest, AGapInTheLastEpochIsFoundToo) {
  Consume("a", {.epochs = 1});
  std::vector<std::string> lines = Lines("a");
  lines.erase(lines.begin() + 5);
  Write("a", lines);
  EXPECT_EQ(Audit({"a"}).code, 3);
}

TEST_F(AuditTest, ASeededDuplicateIsFound) {
  Consume("a", {});
  std::vector<std::string> lines = Lines("a");
  lines.insert(lines.begin() + 9, lines[4]);
  Write("a", lines);
  const ForebayRun run = Audit({"a"});
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.lines()[0]["streams"][0]["epochs"][0]["duplicates"], 8);
}

TEST_F(AuditTest, AForeignSampleIsFound) {
  Consume("a", {});
  std::vector<std::string> lines = Lines("a");
  Json line = Json::parse(lines[3]);
  line["ids"][2] = line["ids"][1];
  lines[3] = line.dump();
  Write("a", lines);
  const ForebayRun run = Audit({"a"});
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.lines()[0]["streams"][0]["wrong_ids"], 1);
  EXPECT_THAT(run.out, HasSubstr("stands where the order has"));
}

TEST_F(AuditTest, RefusesBatchesThatThePlanDoesNotHave) {
  // 100 samples in steps of 8: the last of the 13 steps is short. Behind them the order begins
  // again, so the ids below are what the order has at their positions, modulo 100.
  Consume("a", {.epochs = 1});
  const std::vector<std::string> lines = Lines("a");
  Json extra = Json::parse(lines[13]);
  std::vector<Json> ids = extra["ids"];
  ASSERT_EQ(ids.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) ids.push_back(Json::parse(lines[1])["ids"][i]);
  extra["ids"] = ids;
  std::vector<std::string> changed = lines;
  changed[13] = extra.dump();
  Write("long", changed);
  const ForebayRun longer = Audit({"long"});
  EXPECT_EQ(longer.code, 2);
  EXPECT_THAT(longer.out, HasSubstr("long:14: the batch does not lie in its step"));
  extra["step"] = 13;
  extra["position"] = 104;
  ids = Json::parse(lines[1])["ids"];
  const std::vector<Json> next = Json::parse(lines[2])["ids"];
  ids.insert(ids.end(), next.begin(), next.end());
  extra["ids"] = std::vector<Json>(ids.begin() + 4, ids.begin() + 12);
  changed = lines;
  changed.push_back(extra.dump());
  Write("more", changed);
  const ForebayRun more = Audit({"more"});
  EXPECT_EQ(more.code, 2);
  EXPECT_THAT(more.out, HasSubstr("more:15: step 13 does not exist: an epoch has 13 steps"));
}

TEST_F(AuditTest, ATornLastLineIsLeftOut) {
  Consume("a", {.batches = 5});
  std::ofstream(Path("a"), std::ios::app) << "{\"epoch\":0,\"st";
  EXPECT_EQ(Audit({"a"}).code, 0);
  // A stream's own header, of which the end is missing.
  std::ofstream(Path("torn")) << Lines("a")[0].substr(0, 60);
  EXPECT_THAT(Audit({"torn"}).out, HasSubstr("logs_without_header\":[\"" + Path("torn")));
}

TEST_F(AuditTest, RefusesWhatIsNoLog) {
  EXPECT_EQ(Audit({"none"}).code, 5);
  Consume("a", {.batches = 5});
  const std::vector<std::string> lines = Lines("a");
  const auto with = [&](std::vector<std::string> changed) {
    Write("bad", changed);
    const ForebayRun run = Audit({"bad"});
    EXPECT_EQ(run.code, 2) << run.out;
    return run.out;
  };
  EXPECT_THAT(with({"[]", lines[0]}), HasSubstr("bad:1: is not a JSON object"));
  EXPECT_THAT(with({lines[1]}), HasSubstr("before any header"));
  EXPECT_THAT(with({lines[0], "{\"epoch\":0}", lines[1]}), HasSubstr("bad:2: the batch lacks"));
  EXPECT_THAT(with({lines[0], "{\"epoch\":0,\"step\":0,\"position\":9,\"ids\":[1]}", lines[1]}),
              HasSubstr("does not lie in its step"));
  EXPECT_THAT(with({lines[0], "{\"epoch\":0,\"step\":0,\"position\":0,\"ids\":[-1]}", lines[1]}),
              HasSubstr("an id is not a number"));
  Json header = Json::parse(lines[0]);
  header["forebay_delivery_log"] = 2;
  EXPECT_THAT(with({header.dump(), lines[1]}), HasSubstr("version 2"));
  header = Json::parse(lines[0]);
  header["order_spec"] = "zz";
  EXPECT_THAT(with({header.dump(), lines[1]}), HasSubstr("order_spec"));
  header.erase("order_spec");
  EXPECT_THAT(with({header.dump(), lines[1]}), HasSubstr("lacks a member"));
  header = Json::parse(lines[0]);
  header["ranks"] = 3;
  with({header.dump(), lines[1]});
}

TEST(PrintableStreamTest, ShowsControlsHoweverTheyArrive) {
  std::ostringstream shown;
  PrintableStream out(shown);
  out << "x" << std::string("\xC2") << std::string("\x9B") << '\x1b' << 7 << "\xC2" << "\xA9\n";
  out << EraseLine << std::flush;
  EXPECT_EQ(shown.str(), "x\\xc2\\x9b\\x1b7\xC2\xA9\n\r\x1b[K");
}

TEST(PrintableStreamTest, WaitsForTheRestOfACharacterUntilItIsFlushedOrEnds) {
  std::ostringstream shown;
  {
    PrintableStream out(shown);
    out << "\xE2" << "\x82";
    EXPECT_EQ(shown.str(), "");
    out << "\xAC" << '\xE2' << std::flush << '\x80' << '\xE2' << '\x82';
  }
  EXPECT_EQ(shown.str(), "\xE2\x82\xAC\xE2\\x80\xE2\\x82");
}

TEST(CommandLineTest, AWordThatIsNoCommandIsNamedWithTheNearestOne) {
  const auto run = [](std::vector<std::string> arguments) {
    std::ostringstream out, err;
    const int code = RunForebay(std::move(arguments), {.out = out, .err = err});
    return std::make_tuple(code, out.str(), err.str());
  };
  const auto [code, out, err] = run({"stauts", "--json"});
  EXPECT_EQ(code, 2);
  EXPECT_THAT(err, AllOf(HasSubstr("'stauts'"), HasSubstr("did you mean 'status'?")));
  EXPECT_THAT(std::get<2>(run({"frobnicate"})),
              AllOf(HasSubstr("'frobnicate'"), HasSubstr("forebay help"),
                    Not(HasSubstr("did you mean"))));
  EXPECT_THAT(std::get<1>(run({"help", "stage"})), HasSubstr("--rebuild"));
  EXPECT_EQ(std::get<0>(run({"help"})), 0);
  EXPECT_THAT(std::get<1>(run({"help"})), HasSubstr("Exit codes"));
  EXPECT_THAT(std::get<1>(run({"-V"})), HasSubstr("forebay "));
  EXPECT_THAT(std::get<1>(run({"help", "compress", "bench"})), HasSubstr("forebay compress bench"));
  EXPECT_EQ(std::get<0>(run({"help", "stauts"})), 2);
  EXPECT_THAT(std::get<2>(run({"help", "stauts"})), HasSubstr("did you mean 'status'?"));
}

}  // namespace
}  // namespace forebay::cli
