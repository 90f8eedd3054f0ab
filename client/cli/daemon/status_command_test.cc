// `forebay status` and `forebay status --nodes`: what people and programs are shown.
#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include "client/cli/testing/daemon_command_test.h"
#include "client/cli/testing/forebay_run.h"

namespace forebay::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

}  // namespace
}  // namespace forebay::cli
