// Step headers of a ring's packets, over each transport that carries them.
#include <algorithm>
#include <set>

#include "engine/ring_bed.hpp"

namespace loomnet {
namespace {

using testing::RingBed;
using testing::StepPackets;

constexpr std::uint64_t kBytes = 1'200'000;

CollectiveTrafficConfig config(Collective collective = Collective::all_reduce, std::uint32_t repeat = 2) {
  return {.job = JobId{5}, .collective = collective, .bytes = kBytes, .repeat = repeat, .payload = true};
}

std::uint32_t steps_of(Collective collective, std::uint32_t n) {
  return (collective == Collective::all_reduce ? 2 : 1) * (n - 1);
}

class StepHeaderOver : public ::testing::TestWithParam<std::string_view> {
 protected:
  static RingBed::Equip equip(StepIdentity identity = StepIdentity::hdr) {
    return GetParam() == "mrc" ? RingBed::mrc(identity) : RingBed::roce({.identity = identity});
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, StepHeaderOver, ::testing::Values("roce", "mrc"));

// Of each sender of a ring, in the order of time: its steps one after the other, from first byte to last.
void expect_progress(const StepPackets& packets, std::uint32_t n, std::uint32_t steps, std::uint32_t first = 0,
                     std::uint16_t ring = 0, std::uint8_t gen = 0) {
  std::map<unsigned, std::vector<step_header>> of_host;
  for (const auto& s : packets.seen) {
    EXPECT_EQ(s.header.has_value(), s.data) << "data has a header, answers have none";
    EXPECT_EQ(s.label.name.starts_with("write_"), s.data) << s.label.name;
    if (!s.header || s.header->flags & STEP_FLAG_OTHER || s.header->ring != ring || s.header->gen != gen) continue;
    EXPECT_EQ(s.header->job, 5);
    EXPECT_EQ(s.header->rank, s.host);
    EXPECT_EQ(s.header->nranks, n);
    of_host[s.host].push_back(*s.header);
  }
  ASSERT_EQ(of_host.size(), n);
  for (const auto& [host, headers] : of_host) {
    std::uint32_t ends = 0;
    EXPECT_EQ(headers.front().prog, first << 16);
    for (std::size_t i = 0; i < headers.size(); ++i) {
      if (i > 0) {
        ASSERT_GE(static_cast<std::int32_t>(headers[i].prog - headers[i - 1].prog), 0) << "host " << host;
      }
      const bool end = i + 1 == headers.size() || headers[i].prog >> 16 != headers[i + 1].prog >> 16;
      EXPECT_EQ((headers[i].flags & STEP_FLAG_LAST) != 0, end) << "host " << host << " packet " << i;
      EXPECT_EQ(headers[i].flags & STEP_FLAG_AGAIN, 0);
      ends += end;
    }
    EXPECT_EQ(ends, steps) << "host " << host;
    EXPECT_EQ(headers.back().prog >> 16, (first + steps - 1) & 0xffff);
  }
}

TEST_P(StepHeaderOver, ProgressOfEveryRingCollectiveNeverFallsAndAllRanksAgree) {
  for (const Collective c : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
    RingBed bed(4, equip(), config(c, 3));
    bed.run();
    expect_progress(bed.packets, 4, 3 * steps_of(c, 4));
  }
}

TEST_P(StepHeaderOver, StepsWrapModuloTwoToTheSixteen) {
  auto c = config(Collective::all_reduce, 3);
  c.first_step = 65'530;
  RingBed bed(4, equip(), c);
  bed.run();
  expect_progress(bed.packets, 4, 18, 65'530);
  auto all = config(Collective::all_reduce, 3);
  all.first_step = 0xffff'fffa;
  RingBed at_the_end(4, equip(), all);
  at_the_end.run();
  expect_progress(at_the_end.packets, 4, 18, 0xffff'fffa);
}

TEST_P(StepHeaderOver, ChannelsAreRingsOfTheirOwnAndShareTheData) {
  for (const Collective k : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
    auto c = config(k);
    c.channels = 3;
    RingBed bed(4, equip(), c);
    bed.run();
    for (std::uint16_t ring = 0; ring < 3; ++ring) expect_progress(bed.packets, 4, 2 * steps_of(k, 4), 0, ring);
    std::set<std::uint64_t> bytes;
    for (const auto& s : bed.packets.seen) {
      if (s.attributes.step_bytes > 0) bytes.insert(s.attributes.step_bytes);
    }
    EXPECT_EQ(bytes, std::set<std::uint64_t>{kBytes / 4 / 3});
  }
}

TEST_P(StepHeaderOver, ACommunicatorMadeAnewIsAnotherIncarnationOfItsRing) {
  auto c = config(Collective::all_reduce, 5);
  c.renew_every = 2;
  RingBed bed(4, equip(), c);
  bed.run();
  expect_progress(bed.packets, 4, 12, 0, 0, 0);
  expect_progress(bed.packets, 4, 12, 0, 0, 1);
  expect_progress(bed.packets, 4, 6, 0, 0, 2);
}

TEST_P(StepHeaderOver, ChainsAndAllToAllAreInNoRing) {
  for (const Collective k : {Collective::broadcast, Collective::reduce, Collective::all_to_all}) {
    RingBed bed(4, equip(), config(k, 1));
    bed.run();
    std::size_t others = 0;
    for (const auto& s : bed.packets.seen) {
      EXPECT_EQ(s.header.has_value(), s.data);
      if (!s.header) continue;
      EXPECT_EQ(s.header->flags, STEP_FLAG_OTHER);
      EXPECT_EQ(s.header->prog, 0u);
      ++others;
    }
    EXPECT_GT(others, 100u);
    EXPECT_TRUE(bed.ring->steps().rows().empty());
  }
}

TEST_P(StepHeaderOver, NoTwoFlowsOfARingAreFurtherApartThanTheRingIsLong) {
  for (const unsigned n : {3u, 5u, 8u}) {
    auto c = config(Collective::all_reduce, 3);
    c.step_compute = microseconds(n);
    c.whole_steps = true;
    RingBed bed(n, equip(), c);
    bed.run();
    std::map<unsigned, std::uint32_t> latest;
    for (const auto& s : bed.packets.seen) {
      if (!s.header || s.header->flags & STEP_FLAG_OTHER) continue;
      latest[s.host] = s.header->prog;
      for (const auto& [host, prog] : latest) {
        ASSERT_LE(static_cast<std::int32_t>(s.header->prog - prog), static_cast<std::int32_t>(n << 16))
            << n << " hosts, " << s.host << " ahead of " << host;
      }
    }
  }
}

TEST_P(StepHeaderOver, APacketSentAgainHasTheProgressOfItsBytes) {
  const auto lossy = [](Network& network) {
    LinkChange change;  // of host 0's link
    change.impairment = Impairment{.loss = 0.02};
    network.apply(change);
  };
  RingBed bed(4, equip(), config(Collective::all_reduce, 4), 0, lossy);
  bed.run();
  std::size_t again = 0;
  for (const auto& s : bed.packets.seen) {
    if (!s.header || s.header->flags & STEP_FLAG_OTHER) continue;
    EXPECT_EQ(s.header->prog, step_progress(s.attributes));
    again += (s.header->flags & STEP_FLAG_AGAIN) != 0;
  }
  EXPECT_GT(again, 10u);
}

TEST_P(StepHeaderOver, AHeaderMakesPacketsSixteenBytesLongerAndNothingElse) {
  RingBed with(4, equip(), config()), without(4, equip(StepIdentity::none), config());
  with.run();
  without.run();
  const auto lengths = [](const StepPackets& packets) {
    std::map<std::pair<unsigned, std::uint64_t>, std::uint32_t> found;  // of a host's bytes by their place
    for (const auto& s : packets.seen) {
      if (s.attributes.step_bytes > 0) {
        found[{s.host, std::uint64_t{s.attributes.ring_step} << 32 | s.attributes.step_offset}] = s.wire;
      }
    }
    return found;
  };
  const auto longer = lengths(with.packets), plain = lengths(without.packets);
  ASSERT_EQ(longer.size(), plain.size());
  for (const auto& [place, wire] : plain) EXPECT_EQ(longer.at(place), wire + 16);
  for (const auto& s : without.packets.seen) EXPECT_NE(s.port, kUdpPortStep);
}

TEST(StepHeader, OfTwoTransportsOnOneNicEachGetsItsOwn) {
  Network network(1);
  testing::Clos clos(network, {.planes = 1, .hosts_per_leaf = 2});
  for (unsigned h = 0; h < 4; ++h) {
    network.nic(h).set_transport(RingBed::mrc(StepIdentity::hdr)(network.nic(h)));
    network.nic(h).set_transport(RingBed::roce({.identity = StepIdentity::hdr})(network.nic(h)));
  }
  std::vector<std::unique_ptr<CollectiveTraffic>> rings;
  for (const auto& [name, job] : {std::pair{"mrc", JobId{1}}, std::pair{"roce", JobId{2}}}) {
    auto c = config();
    c.job = job;
    c.hosts = {0, 1, 2, 3};
    auto& ring = *rings.emplace_back(std::make_unique<CollectiveTraffic>(network, c));
    for (unsigned h = 0; h < 4; ++h) {
      const unsigned next = (h + 1) % 4;
      const QpNumber a = network.nic(h).clients().reserve(1), b = network.nic(next).clients().reserve(1);
      clos.connect(h, a, next, b, 0, job, name);
      ring.set_queue_pair(h, next, a);
      ring.set_queue_pair(next, h, b);
    }
    ring.start();
  }
  for (int i = 0; i < 50 && !(rings[0]->done() && rings[1]->done()); ++i) {
    network.run_until(network.now() + milliseconds(10));
  }
  for (const auto& ring : rings) {
    EXPECT_TRUE(ring->done());
    EXPECT_EQ(ring->errors() + ring->wrong(), 0u) << ring->first_error();
  }
}

}  // namespace
}  // namespace loomnet
