// The forward program in the engine: golden uSID vectors, every drop reason, ECMP, tables by
// generation, and what must not change in a packet.
#include "switch/forward/forward_program.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <stdexcept>

#include "clock/random.hpp"
#include "switch_forward/test_frames.hpp"

namespace loomnet::test {
namespace {

using Frame = std::vector<std::uint8_t>;

class ForwardTest : public ::testing::Test {
 protected:
  ForwardTest() { program.set_tables(vector_tables().pack()); }

  Verdict run(Frame& bytes, SwitchPort in = 0) {
    return program.ingress(std::span(bytes).first(std::min(bytes.size(), kMaxHeaderBytes)),
                           static_cast<std::uint32_t>(bytes.size()), {Picoseconds{}, in});
  }
  std::uint64_t count(std::string_view name) {
    std::vector<SwitchCounter> all;
    program.counters(all);
    for (const SwitchCounter& counter : all) {
      if (counter.name == name) return counter.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }
  // Runs the frame; it must be dropped for `reason`, counted there once, with no byte changed.
  void expect_drop(Frame bytes, std::string_view reason, SwitchPort in = 0) {
    SCOPED_TRACE(reason);
    const Frame before = bytes;
    const std::uint64_t counted = count(reason), received = count("received");
    const Verdict verdict = run(bytes, in);
    EXPECT_EQ(verdict.action, Verdict::Action::drop);
    EXPECT_EQ(program.reason(verdict.value), reason);
    EXPECT_EQ(count(reason), counted + 1);
    EXPECT_EQ(count("received"), received + 1);
    EXPECT_EQ(bytes, before);
  }

  ForwardProgram program{kVectorPorts, ForwardSettings{}};
};

TEST_F(ForwardTest, GoldenVectors) {
  for (const GoldenVector& v : kGoldenVectors) {
    SCOPED_TRACE("V" + std::to_string(v.number));
    Frame bytes = frame(vector_spec(v));
    ASSERT_EQ(bytes.size(), 110u + static_cast<std::size_t>(v.trailing));
    if (v.out < 0) {
      expect_drop(bytes, v.reason);
      continue;
    }
    EXPECT_EQ(run(bytes, static_cast<SwitchPort>(v.in)), Verdict::forward(static_cast<SwitchPort>(v.out)));
    EXPECT_EQ(bytes, vector_result(v));
  }
  EXPECT_EQ(count("received"), 23u);
  EXPECT_EQ(count("cross_connect_ua"), 4u);  // V4, V5, V6, V18
  EXPECT_EQ(count("forward_fib"), 12u);
  EXPECT_EQ(count("drop_exhausted"), 2u);
  EXPECT_EQ(count("drop_no_route"), 3u);
}

TEST_F(ForwardTest, CountsByIngressPort) {
  Frame bytes = frame(vector_spec(kGoldenVectors[0]));
  run(bytes, 2);
  std::vector<SwitchCounter> two, one;
  program.counters(2, two);
  program.counters(1, one);
  EXPECT_EQ(two.at(FORWARD_RECEIVED).value, 1u);
  EXPECT_EQ(two.at(FORWARD_FORWARD_FIB).value, 1u);
  EXPECT_EQ(one.at(FORWARD_RECEIVED).value, 0u);
  std::vector<SwitchCounter> none;
  EXPECT_THROW(program.counters(kVectorPorts, none), std::out_of_range);
}

TEST_F(ForwardTest, EveryDropReasonIsTaken) {
  const FrameSpec good = vector_spec(kGoldenVectors[0]);
  const auto with = [&](auto change) {
    FrameSpec spec = good;
    change(spec);
    return frame(spec);
  };
  Frame whole = frame(good);
  expect_drop({}, "drop_too_short");
  expect_drop(Frame(whole.begin(), whole.begin() + 13), "drop_too_short");
  expect_drop(Frame(whole.begin(), whole.begin() + 53), "drop_too_short");
  expect_drop(with([](FrameSpec& s) { s.ether_type = 0x0806; }), "drop_not_ipv6");
  expect_drop(with([](FrameSpec& s) { s.version = 4; }), "drop_bad_version");
  expect_drop(with([](FrameSpec& s) { s.claimed_beyond = 1; }), "drop_truncated");
  expect_drop(with([](FrameSpec& s) { s.next_header = 43; }), "drop_routing_header");
  for (const char* bad : {"::", "::1", "fe80::1", "febf::1", "ff02::1"}) {
    SCOPED_TRACE(bad);
    expect_drop(with([&](FrameSpec& s) { s.source = address(bad); }), "drop_bad_source");
    expect_drop(with([&](FrameSpec& s) { s.destination = address(bad); }), "drop_bad_destination");
  }
  expect_drop(with([](FrameSpec& s) { s.destination = address("fc00:3:2005::"); }), "drop_exhausted");
  expect_drop(with([](FrameSpec& s) { s.destination = address("fc00:4::1"); }), "drop_no_route");
  expect_drop(with([](FrameSpec& s) { s.hop_limit = 0; }), "drop_hop_limit");
  expect_drop(whole, "drop_unknown_ingress", kVectorPorts);
  ForwardBatch batch = vector_tables(2);
  batch.groups = {{}};
  batch.hosts = {{address("fd00::9"), 0}};
  program.set_tables(batch.pack());
  expect_drop(with([](FrameSpec& s) { s.destination = address("fd00::9"); }), "drop_empty_group");

  // A switch without tables is the next test's, the others are of XDP alone or of other programs.
  const std::set<std::string_view> elsewhere = {"drop_no_tables", "drop_no_headroom", "drop_no_device",
                                                "drop_no_group",  "drop_source_mac",  "drop_bad_verdict"};
  std::set<std::string_view> taken;
  std::vector<SwitchCounter> all;
  program.counters(all);
  for (const SwitchCounter& counter : all) {
    if (counter.value > 0) taken.insert(counter.name);
  }
  for (std::size_t i = 0; i < FORWARD_COUNTER_COUNT; ++i) {
    const std::string_view name = forward_counter_name(i);
    if (!name.starts_with("drop_")) continue;
    EXPECT_NE(taken.contains(name), elsewhere.contains(name)) << name;
  }
}

TEST_F(ForwardTest, WithoutTablesEverythingIsDropped) {
  ForwardProgram empty(2, {});
  Frame bytes = frame(vector_spec(kGoldenVectors[0]));
  const Verdict verdict = empty.ingress(bytes, 110, {});
  EXPECT_EQ(verdict, Verdict::drop(FORWARD_DROP_NO_TABLES));
  EXPECT_EQ(empty.generation(), 0u);
}

TEST_F(ForwardTest, OptionsLetStaleLengthsAndAddressesPass) {
  ForwardProgram lenient(kVectorPorts, {0, FORWARD_ALLOW_STALE_LENGTH});
  lenient.set_tables(vector_tables().pack());
  FrameSpec spec = vector_spec(kGoldenVectors[0]);
  spec.claimed_beyond = 1000;
  spec.source = address("fe80::1");
  Frame bytes = frame(spec);
  EXPECT_EQ(lenient.ingress(bytes, static_cast<std::uint32_t>(bytes.size()), {}), Verdict::forward(1));
}

TEST_F(ForwardTest, LengthIsTheFramesNotTheHeaders) {
  FrameSpec spec = vector_spec(kGoldenVectors[0]);
  spec.payload.assign(2000, 7);
  Frame bytes = frame(spec);
  bytes.resize(kMaxHeaderBytes);  // the rest is payload elsewhere
  EXPECT_EQ(program.ingress(bytes, 2054, {}), Verdict::forward(1));
  bytes = frame(spec);
  bytes.resize(kMaxHeaderBytes);
  EXPECT_EQ(program.ingress(bytes, 2053, {}), Verdict::drop(FORWARD_DROP_TRUNCATED));
}

// --- plain IPv6 -------------------------------------------------------------------------------

Frame flow(std::uint16_t source_port, std::uint8_t next_header = 6, std::uint32_t label = 0) {
  FrameSpec spec;
  spec.destination = address("fd00::2");
  spec.next_header = next_header;
  spec.flow_label = label;
  spec.payload.assign(32, 0);
  spec.payload[0] = static_cast<std::uint8_t>(source_port >> 8);
  spec.payload[1] = static_cast<std::uint8_t>(source_port);
  spec.payload[3] = 80;
  return frame(spec);
}

std::shared_ptr<const TableBatch> ecmp_tables(std::vector<SwitchPort> members) {
  ForwardBatch batch;
  batch.generation = 1;
  batch.groups = {std::move(members)};
  batch.hosts = {{address("fd00::2"), 0}};
  return batch.pack();
}

TEST(ForwardEcmpTest, SpreadsFlowsEvenlyAndKeepsEachOnOnePort) {
  ForwardProgram program(8, {42});
  program.set_tables(ecmp_tables({0, 1, 2, 3, 4, 5, 6}));
  std::map<int, int> flows;
  constexpr int kFlows = 7000;
  for (int i = 0; i < kFlows; ++i) {
    Frame first = flow(static_cast<std::uint16_t>(1000 + i)), again = first;
    // Kernel TCP may change its flow label in mid-connection: the path must stay.
    Frame relabelled = flow(static_cast<std::uint16_t>(1000 + i), 6, 0x12345);
    const Verdict verdict = program.ingress(first, 86, {});
    ASSERT_EQ(verdict.action, Verdict::Action::forward);
    EXPECT_EQ(program.ingress(again, 86, {}), verdict);
    EXPECT_EQ(program.ingress(relabelled, 86, {}), verdict);
    EXPECT_EQ(ip_of(first).hop_limit, 63);
    ++flows[verdict.value];
  }
  ASSERT_EQ(flows.size(), 7u);
  // Binomial(7000, 1/7): standard deviation 29.3; 150 is five of them.
  for (const auto& [port, n] : flows) EXPECT_NEAR(n, 1000, 150) << "port " << port;
}

TEST(ForwardEcmpTest, DifferentSeedsDoNotPolarise) {
  // Flows that one leaf sends to its port 0 must still spread over a spine of another seed.
  ForwardProgram leaf(2, {1}), spine(2, {2}), same(2, {1});
  for (ForwardProgram* p : {&leaf, &spine, &same}) p->set_tables(ecmp_tables({0, 1}));
  int sent = 0, spine_zero = 0, same_zero = 0;
  for (int i = 0; i < 4000; ++i) {
    Frame a = flow(static_cast<std::uint16_t>(i)), b = a, c = a;
    if (leaf.ingress(a, 86, {}).value != 0) continue;
    ++sent;
    spine_zero += spine.ingress(b, 86, {}).value == 0;
    same_zero += same.ingress(c, 86, {}).value == 0;
  }
  EXPECT_NEAR(spine_zero, sent / 2, 5 * 0.5 * 45);
  EXPECT_EQ(same_zero, sent);  // what the seed is for
}

TEST(ForwardEcmpTest, PortsCountForTcpAndUdpOnly) {
  ForwardProgram program(16, {3});
  program.set_tables(ecmp_tables({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  const auto ports_used = [&](std::uint8_t next_header) {
    std::set<int> used;
    for (int i = 0; i < 200; ++i) {
      Frame bytes = flow(static_cast<std::uint16_t>(i), next_header);
      used.insert(program.ingress(bytes, 86, {}).value);
    }
    return used.size();
  };
  EXPECT_EQ(ports_used(6), 16u);
  EXPECT_EQ(ports_used(17), 16u);
  EXPECT_EQ(ports_used(58), 1u);  // ICMPv6: type and code are no ports
  EXPECT_EQ(ports_used(44), 1u);  // fragments after the first have no ports: all take one path
}

// --- tables -------------------------------------------------------------------------------------

TEST_F(ForwardTest, OwnSidWinsOverTheFib) {
  ForwardBatch batch = vector_tables(2);
  batch.fib.push_back({usid_key("fc00:3:2005::"), 2});
  program.set_tables(batch.pack());
  Frame bytes = frame(vector_spec(kGoldenVectors[0]));
  EXPECT_EQ(run(bytes), Verdict::forward(1));
}

TEST_F(ForwardTest, ABatchReplacesAllTablesAndItsGenerationMustRise) {
  ForwardBatch next;
  next.generation = 7;
  next.fib = {{usid_key("fc00:3:2005::"), 2}};
  program.set_tables(next.pack());
  EXPECT_EQ(program.generation(), 7u);
  Frame bytes = frame(vector_spec(kGoldenVectors[0]));
  EXPECT_EQ(run(bytes), Verdict::forward(2));  // no longer ours
  EXPECT_EQ(ip_of(bytes).destination, address(kGoldenVectors[0].destination));
  EXPECT_THROW(program.set_tables(next.pack()), std::invalid_argument);
  EXPECT_THROW(program.set_tables(nullptr), std::invalid_argument);
  EXPECT_EQ(program.generation(), 7u);
}

TEST(ForwardBatchTest, RefusesWhatDoesNotFit) {
  const auto refused = [](auto change) -> std::string {
    ForwardBatch batch = vector_tables();
    change(batch);
    try {
      validate(batch, kVectorPorts);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused([](ForwardBatch&) {}), "");
  EXPECT_EQ(refused([](ForwardBatch& b) { b.generation = 0; }), "ForwardBatch.generation: must be at least 1");
  EXPECT_EQ(refused([](ForwardBatch& b) { b.fib[1].port = 4; }), "ForwardBatch.fib[1]: port 4 of a switch of 4");
  EXPECT_EQ(refused([](ForwardBatch& b) { b.own_ua[0].port = 9; }), "ForwardBatch.own_ua[0]: port 9 of a switch of 4");
  EXPECT_EQ(refused([](ForwardBatch& b) { b.fib.push_back(b.fib[0]); }),
            "ForwardBatch.fib: fc00:3:1011::/48 stands twice");
  EXPECT_EQ(refused([](ForwardBatch& b) { b.own_ua.push_back({b.own_un[0], 1}); }),
            "ForwardBatch.own_un and own_ua: fc00:3:2005::/48 stands twice");
  EXPECT_EQ(refused([](ForwardBatch& b) { b.hosts = {{address("fd00::1"), 0}}; }),
            "ForwardBatch.hosts[0]: group 0 does not exist");
  EXPECT_EQ(refused([](ForwardBatch& b) { b.groups = {{5}}; }), "ForwardBatch.groups[0]: port 5 of a switch of 4");
  const auto host = [&](const char* text) {
    return refused([&](ForwardBatch& b) {
      b.groups = {{1}};
      b.hosts = {{address(text), 0}};
    });
  };
  EXPECT_EQ(host("fd00::1"), "");
  EXPECT_NE(host("fe80::1"), "");
  EXPECT_NE(host("ff02::1"), "");
  EXPECT_EQ(host("fc00:3:1011::5"), "ForwardBatch.hosts[0]: lies inside the uSID route fc00:3:1011::/48");
  EXPECT_NE(refused([](ForwardBatch& b) {
              b.groups = {{1}};
              b.hosts = {{address("fd00::1"), 0}, {address("fd00::1"), 0}};
            }),
            "");
}

TEST(ForwardBatchTest, PacksAndUnpacks) {
  const ForwardBatch batch = vector_tables(9);
  const auto packed = batch.pack();
  EXPECT_EQ(packed->generation, 9u);
  EXPECT_EQ(ForwardBatch::unpack(*packed), batch);
  EXPECT_EQ(ForwardBatch::unpack(*ForwardBatch().pack()), ForwardBatch());
}

TEST(ForwardBatchTest, RefusesBytesThatAreNoTables) {
  const auto packed = vector_tables().pack();
  for (std::size_t size = 0; size < packed->bytes.size(); ++size) {
    TableBatch cut = *packed;
    cut.bytes.resize(size);
    EXPECT_THROW(ForwardBatch::unpack(cut), std::invalid_argument) << size << " bytes";
  }
  TableBatch longer = *packed;
  longer.bytes.push_back(0);
  EXPECT_THROW(ForwardBatch::unpack(longer), std::invalid_argument);
  TableBatch many = *packed;  // as many rows as the count can say, without the bytes for them
  std::fill_n(many.bytes.begin(), 4, std::uint8_t{0xff});
  EXPECT_THROW(ForwardBatch::unpack(many), std::invalid_argument);
}

TEST(LookupTablesTest, FindsEveryRowOfABigSwitchAndNoOther) {
  // A T0 of radix 512: 256 uplinks and 256 downlinks, 300 hosts.
  ForwardBatch batch;
  batch.generation = 1;
  batch.own_un = {{usid_block(3), 0x2005}};
  for (SwitchPort i = 0; i < 256; ++i) {
    batch.fib.push_back({{usid_block(3), static_cast<std::uint16_t>(0x1000 + i)}, i});
    batch.fib.push_back({{usid_block(3), static_cast<std::uint16_t>(0x4000 + i)}, static_cast<SwitchPort>(256 + i)});
  }
  batch.groups = {{1, 2, 3}, {}, {9}};
  for (std::uint32_t i = 0; i < 300; ++i) {
    Ipv6Address a = address("fd00::");
    a[14] = static_cast<std::uint8_t>(i >> 8);
    a[15] = static_cast<std::uint8_t>(i);
    batch.hosts.push_back({a, static_cast<std::uint16_t>(i % 3)});
  }
  validate(batch, 512);
  const LookupTables tables(batch);
  std::size_t found = 0;
  for (std::uint64_t usid = 0; usid < 0x10000; ++usid) {
    found += tables.sid(std::uint64_t{usid_block(3)} << 16 | usid) != 0;
    EXPECT_EQ(tables.sid(std::uint64_t{usid_block(4)} << 16 | usid), 0u);
  }
  EXPECT_EQ(found, 513u);
  for (const auto& route : batch.fib) {
    EXPECT_EQ(tables.sid(route.key.packed()), FORWARD_SID_FIB | route.port);
  }
  EXPECT_EQ(tables.sid(batch.own_un[0].packed()), FORWARD_SID_UN);
  for (std::uint64_t i = 0; i < 300; ++i) {
    // The row's group number is the tables' own; what it leads to is what was routed.
    const auto& ports = batch.groups[i % 3];
    const std::uint32_t row = tables.host(0xfd00ull << 48, i);
    ASSERT_NE(row, 0u);
    EXPECT_EQ(row & 0xffff, ports.size());
    const std::uint32_t group = row >> 16 & 0x7fff;
    for (std::uint32_t member = 0; member < ports.size(); ++member) {
      EXPECT_EQ(tables.member(group, member), FORWARD_FOUND | ports[member]);
    }
    EXPECT_EQ(tables.member(group, static_cast<std::uint32_t>(ports.size())), 0u);
  }
  EXPECT_EQ(tables.host(0xfd00ull << 48, 300), 0u);
  EXPECT_EQ(tables.host(0xfd01ull << 48, 1), 0u);
  EXPECT_EQ(tables.member(0, 2), FORWARD_FOUND | 3u);
  EXPECT_EQ(tables.member(0, 3), 0u);
  EXPECT_EQ(tables.member(1, 0), 0u);
  EXPECT_EQ(tables.member(2, 0), FORWARD_FOUND | 9u);
  EXPECT_EQ(tables.member(3, 0), 0u);
  EXPECT_LT(tables.bytes(), 64u * 1024);
}

// --- identity
// -------------------------------------------------------------------------------------

TEST(UidMacTest, CarriesFortySixBitsAsAUnicastLocalAddress) {
  for (const std::uint64_t uid : {std::uint64_t{1}, std::uint64_t{0x123456789abc}, std::uint64_t{LN_UID_MASK}}) {
    MacAddress mac{};
    ln_uid_to_mac(uid, mac.data());
    EXPECT_EQ(mac[0] & 3, 2);
    EXPECT_EQ(ln_uid_from_mac(mac.data()), uid);
  }
  const MacAddress global{0x00, 0x16, 0x3e, 1, 2, 3}, multicast{0x03, 0, 0, 0, 0, 1};
  EXPECT_EQ(ln_uid_from_mac(global.data()), 0u);
  EXPECT_EQ(ln_uid_from_mac(multicast.data()), 0u);
  // core/packet/ethernet.hpp's form is the same for the 40 bits it has.
  const MacAddress local = local_mac(0x1234567890);
  EXPECT_EQ(ln_uid_from_mac(local.data()), 0x1234567890u);
}

}  // namespace
}  // namespace loomnet::test
