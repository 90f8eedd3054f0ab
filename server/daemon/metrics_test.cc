// The endpoint over real HTTP on loopback: what a scrape shows, and addresses that are refused.
#include "server/daemon/metrics.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/unique_fd.h"

namespace forebay::daemon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

v1::StatusReply ExampleStatus() {
  v1::StatusReply status;
  status.set_version("1.2.3");
  status.set_job_id("job \"7\"");
  status.set_uptime_ms(1500);
  status.set_clients(3);
  status.set_node_connections("plaintext_allowed");
  status.mutable_pages()->set_transparent_bytes(2'097'152);
  status.set_slot_bytes_used(4096);
  for (const char* name : {"ram", "ssd"}) {
    v1::TierStatus& tier = *status.add_tiers();
    tier.set_name(name);
    tier.set_used_bytes(77);
    tier.set_bad_extents(2);
    tier.set_hit_samples(9'007'199'254'740'991);  // 2^53 - 1: the last one that is exact
  }
  status.mutable_gfs()->set_hung(3);
  status.mutable_gfs()->set_hung_total(7);
  status.mutable_gfs()->set_is_yielding(true);
  status.mutable_gfs()->set_hung_oldest_ms(42'500);
  v1::GfsCap& cap = *status.mutable_gfs()->add_caps();
  cap.set_name("opens");
  cap.set_job_rate(100);
  cap.set_rate(37.5);
  cap.set_used(12);
  cap.set_inherited(18.75);
  v1::GfsCap& requests = *status.mutable_gfs()->add_caps();
  requests.set_name("requests");
  requests.set_lent(3);
  status.mutable_scrub()->set_extents(40);
  status.mutable_scrub()->set_bad_extents(4);
  v1::DatasetStatus& dataset = *status.add_datasets();
  dataset.set_name("digits");
  dataset.set_gfs_bytes(123456);
  v1::StreamStatus& stream = *status.add_streams();
  stream.set_name("train");
  stream.set_dataset("digits");
  stream.set_batches(5);
  return status;
}

// Makes one GET over loopback and returns the whole response, with its headers.
std::string Get(const std::string& address, const std::string& path) {
  const std::size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) return "";
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
  std::string answer;
  char part[4096];
  for (ssize_t got = 0; (got = recv(fd.get(), part, sizeof(part), 0)) > 0;) {
    answer.append(part, static_cast<std::size_t>(got));
  }
  return answer;
}

TEST(MetricsTest, AScrapeShowsTheStatus) {
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", ExampleStatus);
  ASSERT_TRUE(endpoint.has_value()) << endpoint.error().ToString();
  EXPECT_THAT((*endpoint)->address(), StartsWith("127.0.0.1:"));
  EXPECT_THAT((*endpoint)->address(), Not(HasSubstr(":0")));
  const std::string answer = Get((*endpoint)->address(), "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("version=\"1.2.3\""));
  EXPECT_THAT(answer, HasSubstr("job_id=\"job \\\"7\\\"\"")) << "labels are escaped";
  EXPECT_THAT(answer, HasSubstr("forebay_uptime_seconds 1.5\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_clients 3\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_slot_used_bytes 4096\n"));
  EXPECT_THAT(answer,
              HasSubstr("forebay_node_connections{protection=\"plaintext_allowed\"} 1\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_memory_pages_bytes{pages=\"transparent\"} 2097152\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_memory_pages_bytes{pages=\"small\"} 0\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_tier_used_bytes{tier=\"ssd\"} 77\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_tier_bad_extents_total{tier=\"ram\"} 2\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_gfs_hung 3\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_gfs_yielding 1\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_gfs_hung_total 7\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_gfs_hung_oldest_seconds 42.5\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_gfs_cap_job_per_second{cap=\"opens\"} 100\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_gfs_cap_now_per_second{cap=\"opens\"} 37.5\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_gfs_cap_inherited_per_second{cap=\"opens\"} 18.75\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_gfs_cap_used_total{cap=\"opens\"} 12\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_gfs_cap_lent_in_flight{cap=\"requests\"} 3\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_scrub_extents_total 40\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_scrub_bad_extents_total 4\n"));
  EXPECT_THAT(answer, HasSubstr("forebay_dataset_gfs_read_bytes_total{dataset=\"digits\"} "
                                "123456\n"));
  EXPECT_THAT(answer, HasSubstr("# TYPE forebay_stream_batches_total counter\n"));
  EXPECT_THAT(answer, HasSubstr("rank=\"0\"} 5\n"));
}

TEST(MetricsTest, AJobOfOneNodeHasNoConnectionsBetweenNodes) {
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", [] { return v1::StatusReply(); });
  ASSERT_TRUE(endpoint.has_value());
  EXPECT_THAT(Get((*endpoint)->address(), "/metrics"),
              AllOf(HasSubstr("forebay_clients 0\n"), Not(HasSubstr("forebay_node_connections"))));
}

TEST(MetricsTest, EachFamilyAppearsOnce) {
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", ExampleStatus);
  ASSERT_TRUE(endpoint.has_value());
  const std::string answer = Get((*endpoint)->address(), "/metrics");
  const std::string head = "# TYPE forebay_tier_used_bytes ";
  const std::size_t first = answer.find(head);
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(answer.find(head, first + 1), std::string::npos);
}

TEST(MetricsTest, StreamsOfEqualLabelsAreOneSeries) {
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", [] {
    v1::StatusReply status = ExampleStatus();
    *status.add_streams() = status.streams(0);  // another program's
    status.mutable_streams(1)->set_batches(7);
    *status.add_streams() = status.streams(0);
    status.mutable_streams(2)->set_rank(1);
    return status;
  });
  ASSERT_TRUE(endpoint.has_value());
  const std::string answer = Get((*endpoint)->address(), "/metrics");
  const std::string labels = "forebay_stream_batches_total{stream=\"train\",dataset=\"digits\",";
  EXPECT_THAT(answer, HasSubstr(labels + "rank=\"0\"} 12\n"));
  EXPECT_THAT(answer, HasSubstr(labels + "rank=\"1\"} 5\n"));
  EXPECT_THAT(answer, Not(HasSubstr(labels + "rank=\"0\"} 5\n")));
  EXPECT_THAT(answer, Not(HasSubstr(labels + "rank=\"0\"} 7\n")));
}

TEST(MetricsTest, EveryScrapeLooksAnew) {
  std::atomic<std::uint32_t> clients = 0;
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", [&clients] {
    v1::StatusReply status;
    status.set_clients(++clients);
    return status;
  });
  ASSERT_TRUE(endpoint.has_value());
  EXPECT_THAT(Get((*endpoint)->address(), "/metrics"), HasSubstr("forebay_clients 1\n"));
  EXPECT_THAT(Get((*endpoint)->address(), "/metrics"), HasSubstr("forebay_clients 2\n"));
}

TEST(MetricsTest, ServesNothingElse) {
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", ExampleStatus);
  ASSERT_TRUE(endpoint.has_value());
  EXPECT_THAT(Get((*endpoint)->address(), "/"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get((*endpoint)->address(), "/../../etc/passwd"), Not(HasSubstr("root:")));
}

TEST(MetricsTest, NothingListensAfterTheEnd) {
  std::string address;
  {
    auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", ExampleStatus);
    ASSERT_TRUE(endpoint.has_value());
    address = (*endpoint)->address();
    ASSERT_NE(Get(address, "/metrics"), "");
  }
  EXPECT_EQ(Get(address, "/metrics"), "");
}

TEST(MetricsTest, AnythingButLoopbackIsRefused) {
  for (const char* listen : {"0.0.0.0:0", "192.0.2.1:9464", "[::]:0", "localhost:9464", "9464",
                             ":9464", "127.0.0.1", "127.0.0.1.evil.example:1", ""}) {
    auto refused = MetricsEndpoint::Start(listen, ExampleStatus);
    ASSERT_FALSE(refused.has_value()) << listen;
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument) << listen;
    EXPECT_THAT(refused.error().message(), HasSubstr("daemon.metrics_listen")) << listen;
  }
}

TEST(MetricsTest, WordsThatAreNoPortAreRefused) {
  for (const char* listen :
       {"127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000", "127.0.0.1:0,0.0.0.0:0",
        "127.0.0.1:0,0", "127.0.0.1:0s"}) {
    auto refused = MetricsEndpoint::Start(listen, ExampleStatus);
    ASSERT_FALSE(refused.has_value()) << listen;
    EXPECT_THAT(refused.error().message(), HasSubstr("daemon.metrics_listen")) << listen;
  }
}

TEST(MetricsTest, ATakenPortIsAnErrorThatNamesIt) {
  auto first = MetricsEndpoint::Start("127.0.0.1:0", ExampleStatus);
  ASSERT_TRUE(first.has_value());
  auto second = MetricsEndpoint::Start((*first)->address(), ExampleStatus);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(second.error().message(),
              AllOf(HasSubstr((*first)->address()), HasSubstr("does another program")));
}

}  // namespace
}  // namespace forebay::daemon
