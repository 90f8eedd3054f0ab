// Which address a daemon listens on, given the machine's interfaces.
#include "server/rendezvous/interface_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::rendezvous::interface_address_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<InterfaceAddress> kTwo = {
    {.interface = "lo", .address = "127.0.0.1", .is_loopback = true},
    {.interface = "lo", .address = "::1", .is_loopback = true},
    {.interface = "eth0", .address = "192.168.1.20"},
    {.interface = "eth0", .address = "fe80::1"},
    {.interface = "ib0", .address = "fe80::2"},
    {.interface = "ib0", .address = "fd00:1::4"},
    {.interface = "ib0", .address = "10.1.0.4"},
    {.interface = "ib0", .address = "10.2.0.4"}};
const std::vector<InterfaceAddress> kOne(kTwo.begin(), kTwo.begin() + 4);

template <typename Matcher>
void ExpectRefused(std::string_view wanted, std::span<const InterfaceAddress> addresses,
                   ErrorCode code, const Matcher& message) {
  const auto address = ListenAddress(wanted, addresses);
  ASSERT_FALSE(address.has_value()) << *address;
  EXPECT_EQ(address.error().code(), code);
  EXPECT_THAT(address.error().message(), message);
}

TEST(ListenAddress, OfAnInterface) {
  EXPECT_EQ(*ListenAddress("ib0", kTwo), "10.1.0.4") << "IPv4 comes first";
  EXPECT_EQ(*ListenAddress("eth0", kTwo), "192.168.1.20");
  EXPECT_EQ(*ListenAddress("lo", kTwo), "127.0.0.1") << "loopback, if it is asked for";
  const std::vector<InterfaceAddress> six = {{.interface = "ib0", .address = "fe80::2"},
                                             {.interface = "ib0", .address = "fd00:1::4"}};
  EXPECT_EQ(*ListenAddress("ib0", six), "fd00:1::4");
}

TEST(ListenAddress, InASubnet) {
  EXPECT_EQ(*ListenAddress("10.0.0.0/8", kTwo), "10.1.0.4");
  EXPECT_EQ(*ListenAddress("10.2.0.0/16", kTwo), "10.2.0.4");
  EXPECT_EQ(*ListenAddress("10.2.255.255/16", kTwo), "10.2.0.4") << "bits after the prefix";
  EXPECT_EQ(*ListenAddress("10.2.0.4", kTwo), "10.2.0.4");
  EXPECT_EQ(*ListenAddress("0.0.0.0/0", kTwo), "127.0.0.1");
  EXPECT_EQ(*ListenAddress("fd00::/16", kTwo), "fd00:1::4");
  EXPECT_EQ(*ListenAddress("fd00:1::4/128", kTwo), "fd00:1::4");
  EXPECT_EQ(*ListenAddress("10.1.0.5/31", kTwo), "10.1.0.4");
}

TEST(ListenAddress, UnsetMeansTheOnlyInterface) {
  EXPECT_EQ(*ListenAddress("", kOne), "192.168.1.20");
  ExpectRefused("", kTwo, ErrorCode::kNotFound,
                AllOf(HasSubstr("several"), HasSubstr("eth0 192.168.1.20"),
                      HasSubstr("ib0 fd00:1::4"), HasSubstr("ib0 10.1.0.4")));
  ExpectRefused("", std::span(kTwo).first(2), ErrorCode::kNotFound,
                AllOf(HasSubstr("loopback"), HasSubstr("lo 127.0.0.1")));
  ExpectRefused("", {}, ErrorCode::kNotFound, HasSubstr("has: none"));
}

TEST(ListenAddress, ErrorsListWhatThereIs) {
  ExpectRefused("eth1", kTwo, ErrorCode::kNotFound,
                AllOf(HasSubstr("'eth1'"), HasSubstr("eth0 192.168.1.20")));
  ExpectRefused("10.1.0.6/31", kTwo, ErrorCode::kNotFound, HasSubstr("ib0 10.1.0.4"));
  ExpectRefused("fe80::/10", kTwo, ErrorCode::kNotFound, HasSubstr("'fe80::/10'"));
  for (const char* wrong : {"10.0.0.0/33", "fd00::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/x",
                            "ib0/8", "/8", "10.0.0.0/-1"}) {
    ExpectRefused(wrong, kTwo, ErrorCode::kInvalidArgument, HasSubstr("not a subnet"));
  }
}

TEST(ListenAddress, ThisMachineHasLoopback) {
  const auto addresses = LocalAddresses();
  ASSERT_TRUE(addresses.has_value()) << addresses.error().ToString();
  EXPECT_EQ(*ListenAddress("127.0.0.0/8", *addresses), "127.0.0.1");
}

TEST(PortRange, IsAPortOrARange) {
  EXPECT_EQ(ParsePortRange("")->first, 0);
  EXPECT_EQ(ParsePortRange("")->last, 0);
  EXPECT_EQ(ParsePortRange("7000")->first, 7000);
  EXPECT_EQ(ParsePortRange("7000")->last, 7000);
  EXPECT_EQ(ParsePortRange("7000-7099")->first, 7000);
  EXPECT_EQ(ParsePortRange("7000-7099")->last, 7099);
  EXPECT_EQ(ParsePortRange("65535-65535")->last, 65535);
  for (const char* wrong : {"0", "65536", "7000-", "-7000", "7099-7000", "7000-7099-7100", "x",
                            "7000 ", "0-7000"}) {
    const auto range = ParsePortRange(wrong);
    ASSERT_FALSE(range.has_value()) << wrong;
    EXPECT_EQ(range.error().code(), ErrorCode::kInvalidArgument);
  }
}

}  // namespace forebay::rendezvous::interface_address_test
