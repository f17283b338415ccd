// Every transport that the build has found: made by name, it carries a message, shows its state under
// names that never change, and refuses options that it does not have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/clos.hpp"
#include "engine/run_counters.hpp"
#include "trace/flow_probe.hpp"
#include "trace/packet_label.hpp"
#include "trace/recorder.hpp"
#include "traffic/flow_traffic.hpp"
#include "transport/factory.hpp"

namespace loomnet {
namespace {

using testing::Clos;
using testing::ClosShape;
using ::testing::HasSubstr;

struct Pair {
  explicit Pair(const TransportKind& kind, const OptionValues& options = {})
      : clos(network, ClosShape{.planes = 2, .leaves = 2, .spines = 2, .hosts_per_leaf = 1}), traffic(network, false) {
    for (NodeId h : {0u, 1u}) {
      Nic& nic = network.nic(h);
      nic.set_transport(kind.make({nic.sink(), nic.ports(), 7}, options));
    }
    clos.connect(0, 100, 1, 200);
    traffic.add({.source = 0, .destination = 1, .qp = 100, .bytes = 1 << 20, .message = 1 << 18, .depth = 2});
    traffic.start();
  }
  const Transport& transport() { return *network.nic(0).transport(); }
  Network network{1};
  Clos clos;
  FlowTraffic traffic;
};

class Registered : public ::testing::TestWithParam<std::string> {
 protected:
  const TransportKind& kind() const { return transports().kind(GetParam()); }
  std::string refusal(const OptionValues& options) const {
    try {
      if (kind().joins_pairs) {
        Pair pair(kind(), options);
      } else {
        Network network{1};
        Nic& nic = network.nic(network.add_host(2));
        nic.set_transport(kind().make({nic.sink(), nic.ports(), 7}, options));
      }
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "accepted";
  }
};

TEST_P(Registered, CarriesAMessageAndShowsItsState) {
  if (!kind().joins_pairs) GTEST_SKIP() << "carries no messages between two hosts";
  Pair pair(kind());
  ASSERT_EQ(pair.transport().name(), GetParam());
  FlowProbe probe({{&pair.transport(), 100}});
  ASSERT_EQ(probe.rows().size(), pair.transport().state_parts(100));
  const auto names = probe.names();
  const auto column = [&](std::string_view name) {
    const auto at = std::find(names.begin(), names.end(), name);
    EXPECT_NE(at, names.end()) << name;
    return static_cast<std::size_t>(at - names.begin());
  };
  std::vector<double> values(probe.rows().size() * names.size());
  double before = -1, acked = 0;
  for (int look = 0; look < 400 && acked < 1 << 20; ++look) {
    pair.network.run_until(pair.network.now() + microseconds(10));
    probe.take(values);
    acked = 0;
    for (std::size_t row = 0; row < probe.rows().size(); ++row) {
      acked += values[row * names.size() + column("acked")];
      EXPECT_GE(values[row * names.size() + column("in_flight")], 0);
    }
    EXPECT_GE(acked, before) << "never back";
    before = acked;
    for (const double value : values) EXPECT_FALSE(std::isnan(value));
  }
  EXPECT_GE(acked, 1 << 20);
  EXPECT_TRUE(pair.traffic.done());
  EXPECT_THROW(FlowProbe({{&pair.transport(), 4711}}), std::out_of_range);
  const NodeId hosts[] = {0, 1};
  EXPECT_EQ(run_counters(pair.network, hosts).retransmitted, 0u);
}

TEST_P(Registered, RefusesWhatIsNoOptionAndTakesEveryDefault) {
  EXPECT_THAT(refusal({{"no_such_option", 1.0}}), HasSubstr(GetParam() + ": no option no_such_option; there are "));
  for (const OptionInfo& option : kind().options) {
    EXPECT_FALSE(option.doc.empty()) << option.name;
    if (option.name == "line_rate_bps") continue;
    EXPECT_EQ(refusal({{option.name, option.standard}}), "accepted") << option.name;
    if (option.type == "choice") {
      EXPECT_THAT(refusal({{option.name, std::string("neither")}}), HasSubstr("must be one of"));
    } else if (option.type != "text") {
      EXPECT_THAT(refusal({{option.name, std::string("x")}}), HasSubstr("has the wrong type"));
    }
  }
}

// Two probes of unlike senders share names and keep apart what only one of them has.
TEST(FlowProbe, LeavesOutWhatASenderDoesNotHave) {
  Pair reno(transports().kind("tcp"), {{"cc", std::string("reno")}});
  Pair dctcp(transports().kind("tcp"), {{"cc", std::string("dctcp")}});
  FlowProbe probe({{&reno.transport(), 100}, {&dctcp.transport(), 100}});
  const auto& names = probe.names();
  const auto alpha = static_cast<std::size_t>(std::find(names.begin(), names.end(), "alpha") - names.begin());
  ASSERT_LT(alpha, names.size());
  std::vector<double> values(2 * names.size());
  probe.take(values);
  EXPECT_TRUE(std::isnan(values[alpha]));
  EXPECT_EQ(values[names.size() + alpha], 1) << "DCTCP begins at 1";
}

// Each transport's data goes by a name of its own; any bytes are welcome.
TEST(Labels, ComeFromTheTransports) {
  ASSERT_FALSE(transports().kinds().empty());
  const std::pair<const char*, const char*> rows[] = {
      {"mrc", "write_middle"}, {"roce", "write_middle"}, {"tcp", "tcp"}};
  for (const auto& [transport, name] : rows) {
    Pair pair(transports().kind(transport));
    Recorder recorder({.timeline = true});
    pair.network.set_tap(&recorder, true);
    pair.network.run_until(milliseconds(5));
    std::set<std::string_view> names;
    for (const Recorder::Hop& hop : recorder.hops()) {
      names.insert(hop.label.name);
      EXPECT_TRUE(hop.label.numbered) << hop.label.name;
    }
    EXPECT_THAT(names, ::testing::Contains(name)) << transport;
    EXPECT_THAT(names, ::testing::Not(::testing::Contains("packet")));
    EXPECT_THAT(names, ::testing::Not(::testing::Contains("udp")));
    pair.network.set_tap(nullptr, false);
  }
  PacketPool pool;
  PacketPtr packet = pool.allocate();
  for (std::uint16_t length = 0; length <= 100; ++length) {
    packet->header_length = length;
    packet->header.fill(static_cast<std::uint8_t>(0x60 + length));
    label_of(*packet);
  }
}

TEST(Register, AnUnknownTransportIsRefusedWithTheNamesThereAre) {
  try {
    transports().kind("quic");
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_THAT(e.what(), HasSubstr("\"quic\" has no model in the engine; there are ina, mrc, roce, tcp"));
  }
}

std::vector<std::string> every_transport() {
  std::vector<std::string> names;
  for (const TransportKind& kind : transports().kinds()) names.push_back(kind.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Transports, Registered, ::testing::ValuesIn(every_transport()),
                         [](const auto& row) { return row.param; });

}  // namespace
}  // namespace loomnet
