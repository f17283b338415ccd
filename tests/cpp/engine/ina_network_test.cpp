// Workers and parameter servers on emulated NICs around real switch programs, on the virtual clock: sums
// of whole requests are exact whatever the links lose, under every policy, one and two levels of switches
// and several jobs that share few slots; every packet is accounted for.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "engine/network.hpp"
#include "switch/aggregate/aggregate_batch.hpp"
#include "switch/aggregate/aggregate_program.hpp"
#include "switch_aggregate/fragments.hpp"
#include "transport/ina/ina_transport.hpp"

namespace loomnet {
namespace {

using ina::InaOptions;
using ina::InaTransport;

constexpr std::uint32_t kValues = 64;

struct Setting {
  aggregate_scheme scheme = AGGREGATE_ESA;
  unsigned workers = 4;    // of each job
  unsigned jobs = 1;
  std::int64_t slots = 64;
  std::uint32_t window = 16;
  bool two_levels = false;  // half of the workers behind a switch of their own
  bool server_beside = false;  // on worker 0's host
  Impairment trouble{};        // of every link to a host, both ways
  std::uint64_t seed = 1;
};

// One job after the other: its workers' hosts, and its server's.
class Bed {
 public:
  explicit Bed(const Setting& s) : setting(s), network(s.seed) {
    const unsigned per_job = s.workers + (s.server_beside ? 0 : 1);
    const unsigned hosts = s.jobs * per_job;
    const LinkConfig link{.rate = gigabits(10), .delay = microseconds(1)};
    for (unsigned h = 0; h < hosts; ++h) network.add_host(1);
    static constexpr const char* kPolicies[] = {"switchml", "atp", "esa"};
    const auto program = [&](std::size_t ports, unsigned hop) {
      static const ProgramKind kind = aggregate_kind();
      return kind.make(checked_settings(kind, ports, s.seed + hop,
                                        {{"policy", std::string(kPolicies[s.scheme])},
                                         {"values", std::int64_t{kValues}},
                                         {"pool", s.slots * AGGREGATE_SLOT_BYTES(kValues)},
                                         {"hop", std::int64_t{hop}}}));
    };
    // The root has a port for each host, then one for the leaf.
    root = network.add_switch(hosts + 1, program(hosts + 1, 1));
    if (s.two_levels) leaf = network.add_switch(hosts + 1, program(hosts + 1, 2));
    const auto leafed = [&](unsigned h) {
      const unsigned w = h % per_job;
      return s.two_levels && w < s.workers / 2 && !(s.server_beside && w == 0);
    };
    for (unsigned h = 0; h < hosts; ++h) {
      network.connect({h, 0}, {leafed(h) ? leaf : root, static_cast<std::uint16_t>(h)}, link, link);
    }
    const auto trunk = static_cast<std::uint16_t>(hosts);
    if (s.two_levels) network.connect({root, trunk}, {leaf, trunk}, link, link);
    AggregateBatch above, below;
    above.forward.generation = below.forward.generation = 1;
    for (unsigned j = 0; j < s.jobs; ++j) {
      AggregateBatch::Job job, part;
      job.job = part.job = static_cast<std::uint16_t>(j + 1);
      job.scheme = part.scheme = s.scheme;
      job.window = part.window = s.window;
      job.base = part.base = j * 2 * s.window;
      job.root = AGGREGATE_ROOT;
      const unsigned first = j * per_job, server = s.server_beside ? first : first + s.workers;
      job.up = static_cast<SwitchPort>(server);
      part.up = trunk;
      std::uint64_t behind = 0;
      for (unsigned w = 0; w < s.workers; ++w) {
        auto& to = leafed(first + w) ? part : job;
        to.children.push_back({static_cast<SwitchPort>(first + w), 1ull << w});
        if (leafed(first + w)) behind |= 1ull << w;
      }
      if (behind) {
        job.children.push_back({trunk, behind});
        job.hops = {{2, trunk}};
        below.jobs.push_back(part);
      }
      above.jobs.push_back(job);
    }
    network.program(root)->set_tables(above.pack());
    if (s.two_levels) network.program(leaf)->set_tables(below.pack());
    for (unsigned h = 0; h < hosts; ++h) equip(h);
    for (unsigned j = 0; j < s.jobs; ++j) {
      const unsigned first = j * per_job, server = s.server_beside ? first : first + s.workers;
      for (unsigned w = 0; w < s.workers; ++w) join(j, first + w, w, server);
      if (s.scheme != AGGREGATE_SWITCHML) join(j, server, GroupMember::kServer, first);
    }
    if (s.trouble.any()) {
      for (unsigned h = 0; h < hosts; ++h) {
        const NodeId node = leafed(h) ? leaf : root;
        network.egress(h, 0)->set_impairment(s.trouble, {});
        network.egress(node, static_cast<std::uint16_t>(h))->set_impairment(s.trouble, {});
      }
    }
  }

  // Every worker's request of `values` int32 (and `framing` exponents), drawn from the seed; runs until
  // all are complete, and compares.
  void sum(std::uint32_t values, std::uint32_t framing = 0) {
    RandomStream random(setting.seed, values, 77);
    // Packets under way show their sender's memory: it stays.
    const unsigned jobs = meanwhile ? 1 : setting.jobs;
    auto& parts = memory_.emplace_back(jobs);
    std::vector<std::vector<std::uint8_t>> expected(jobs);
    std::size_t open = 0;
    for (unsigned j = 0; j < jobs; ++j) {
      parts[j].resize(setting.workers);
      expected[j].assign(framing + 4 * std::size_t{values}, 0);
      // Of framing behind the last fragment's byte nothing is said, and nothing comes back.
      const std::uint32_t used = values ? std::min(framing, (values + kValues - 1) / kValues) : framing;
      for (unsigned f = 0; f < framing; ++f) expected[j][f] = f < used ? 0x82 : 0xee;  // -126
      for (auto& p : parts[j]) {
        p.in.resize(expected[j].size());
        p.out.assign(p.in.size(), 0xee);
        for (unsigned f = 0; f < framing; ++f) {
          const auto e = static_cast<std::int8_t>(static_cast<int>(random.below(240)) - 120);
          p.in[f] = static_cast<std::uint8_t>(e);
          if (f < used && e > static_cast<std::int8_t>(expected[j][f])) expected[j][f] = p.in[f];
        }
        for (std::uint32_t v = 0; v < values; ++v) {
          const auto x = static_cast<std::uint32_t>(random());
          std::uint32_t total;
          std::memcpy(&p.in[framing + 4 * v], &x, 4);
          std::memcpy(&total, &expected[j][framing + 4 * v], 4);
          total += x;
          std::memcpy(&expected[j][framing + 4 * v], &total, 4);
        }
      }
      for (unsigned w = 0; w < setting.workers; ++w, ++open) {
        Nic& nic = network.nic(host_of(j, w));
        const std::uint32_t key = nic.register_region(parts[j][w].out.data(), 0, parts[j][w].out.size());
        nic.post(qp_of(j),
                 {.id = ++posted_,
                  .local = parts[j][w].in.data(),
                  .remote_key = key,
                  .length = static_cast<std::uint32_t>(parts[j][w].in.size()),
                  .immediate = continues,
                  .framing = framing},
                 network.now());
      }
    }
    const Picoseconds end = network.now() + seconds(20);
    const Picoseconds step = meanwhile ? microseconds(3) : milliseconds(1);
    while (done_.count < open && network.now() < end) {
      network.run_until(network.now() + step);
      if (meanwhile) meanwhile();
    }
    ASSERT_EQ(done_.count, open) << "at " << network.now().seconds() << " s, seed " << setting.seed;
    done_.count = 0;
    for (unsigned j = 0; j < jobs; ++j) {
      for (unsigned w = 0; w < setting.workers; ++w) {
        const auto& out = parts[j][w].out;
        const auto wrong = std::mismatch(out.begin(), out.end(), expected[j].begin()).first - out.begin();
        ASSERT_EQ(wrong, static_cast<std::ptrdiff_t>(out.size()))
            << "of job " << j << " at worker " << w << " byte " << wrong << " of " << values << " values and "
            << framing << " bytes of framing, seed " << setting.seed;
      }
    }
  }
  void expect(Status status) { done_.expected = status; }
  std::size_t completed() const { return done_.count; }
  std::uint64_t counter(std::string_view name) {
    std::uint64_t sum = 0;
    std::vector<SwitchCounter> all;
    network.program(root)->counters(all);
    if (setting.two_levels) network.program(leaf)->counters(all);
    for (const auto& c : all) sum += c.name == name ? c.value : 0;
    return sum;
  }
  std::uint64_t host_counter(std::string_view name) {
    std::uint64_t sum = 0;
    for (InaTransport* t : transports_) {
      std::vector<TransportCounter> all;
      t->counters(all);
      for (const auto& c : all) sum += c.name == name ? c.value : 0;
    }
    return sum;
  }
  struct Part {
    std::vector<std::uint8_t> in, out;
  };
  Setting setting;
  bool continues = false;  // requests go on with the tensor of those before
  std::function<void()> meanwhile;  // what others do while the first job alone sums
  unsigned host_of(unsigned job, unsigned worker) const {
    return job * (setting.workers + (setting.server_beside ? 0 : 1)) + worker;
  }
  std::deque<std::vector<std::vector<Part>>> memory_;  // outlives the network's packets
  Network network;
  NodeId root = 0, leaf = 0;

 private:
  struct Done final : NicClient {
    void on_completion(const Completion& c, Picoseconds) override {
      EXPECT_EQ(c.status, expected);
      ++count;
    }
    void on_arrival(const Arrival&, Picoseconds) override { ADD_FAILURE(); }
    std::size_t count = 0;
    Status expected = Status::ok;
  };
  static QpNumber qp_of(unsigned job) { return 10 + job; }
  void equip(unsigned h) {
    InaOptions options;
    options.scheme = setting.scheme;
    options.values = kValues;
    options.window = setting.window;
    options.pool = static_cast<std::uint32_t>(setting.slots);
    options.rto_first = milliseconds(1);
    options.switchml_timeout = milliseconds(1);
    Nic& nic = network.nic(h);
    auto transport = std::make_unique<InaTransport>(nic.sink(), options, 1, setting.seed);
    transports_.push_back(transport.get());
    nic.set_transport(std::move(transport));
    clients_.push_back(nic.clients().add(done_, {}, "test"));
  }
  void join(unsigned job, unsigned host, std::uint32_t member, unsigned other) {
    QpConfig config;
    config.local = qp_of(job) + (member == GroupMember::kServer ? 100 : 0);
    config.source = host;
    config.destination = other == host ? host + 1 : other;
    config.flow = 1000 * (job + 1) + host;
    config.planes = {{.row = {}, .uplinks = {0}}};
    config.group =
        GroupMember{.group = static_cast<std::uint16_t>(job + 1), .members = setting.workers, .member = member};
    config.group->trees = {setting.two_levels ? std::vector<std::uint16_t>{1, 2} : std::vector<std::uint16_t>{1}};
    network.nic(host).connect(config, network.now(), {.client = clients_.at(host)});
  }
  Done done_;
  std::vector<ClientId> clients_;
  std::vector<InaTransport*> transports_;
  std::uint64_t posted_ = 0;
};

TEST(InaNetwork, FourWorkersSumThroughOneSwitch) {
  for (const auto scheme : {AGGREGATE_SWITCHML, AGGREGATE_ATP, AGGREGATE_ESA}) {
    SCOPED_TRACE(scheme);
    Bed bed({.scheme = scheme});
    bed.sum(10'000);
    EXPECT_EQ(bed.counter("complete"), (10'000 + kValues - 1) / kValues);
    EXPECT_EQ(bed.counter("collide"), 0u);
    EXPECT_EQ(bed.host_counter("resend"), 0u);
    bed.sum(1);
    bed.sum(kValues, 1);
    bed.sum(0, 100);  // exponents alone
    bed.sum(1000, 16);
  }
}

TEST(InaNetwork, ABlocksExponentIsTheLargestAndNotFiniteSpreads) {
  Bed bed({.workers = 2});
  std::vector<std::uint8_t> a(4 + 4 * 3 * kValues, 0), b = a, sum = a, other = a;
  const std::int8_t exponents[2][3] = {{-3, ina::kNotFinite, 7}, {-5, 4, 9}};
  std::memcpy(a.data(), exponents[0], 3), std::memcpy(b.data(), exponents[1], 3);
  for (unsigned w = 0; w < 2; ++w) {
    Nic& nic = bed.network.nic(w);
    auto& out = w ? other : sum;
    const std::uint32_t key = nic.register_region(out.data(), 0, out.size());
    nic.post(10,
             {.id = w,
              .local = (w ? b : a).data(),
              .remote_key = key,
              .length = static_cast<std::uint32_t>(a.size()),
              .framing = 4},
             {});
  }
  bed.network.run_until(milliseconds(5));
  EXPECT_EQ(static_cast<std::int8_t>(sum[0]), -3);
  EXPECT_EQ(static_cast<std::int8_t>(sum[1]), ina::kNotFinite);
  EXPECT_EQ(static_cast<std::int8_t>(sum[2]), 9);
  EXPECT_EQ(sum, other);
}

// Past the switch to the server, beside fragments that the switch sums.
TEST(InaNetwork, FloatsAreAddedByTheServerAlone) {
  Bed bed({.workers = 2});
  bed.sum(1000);
  const std::uint64_t claims = bed.counter("claim");
  EXPECT_GT(claims, 0u);
  std::vector<float> a(3 * kValues, 0.1f), b(a.size(), 1e20f), sum(a.size()), other(a.size());
  for (unsigned w = 0; w < 2; ++w) {
    Nic& nic = bed.network.nic(w);
    const auto place = std::as_writable_bytes(std::span(w ? other : sum));
    const std::uint32_t key = nic.register_region(reinterpret_cast<std::uint8_t*>(place.data()), 0, place.size());
    nic.post(10,
             {.id = w,
              .local = reinterpret_cast<const std::uint8_t*>((w ? b : a).data()),
              .remote_key = key,
              .length = static_cast<std::uint32_t>(place.size()),
              .immediate = kSumFloats},
             bed.network.now());
  }
  bed.network.run_until(bed.network.now() + milliseconds(5));
  EXPECT_EQ(bed.completed(), 2u);
  EXPECT_EQ(sum, std::vector<float>(a.size(), 0.1f + 1e20f));
  EXPECT_EQ(sum, other);
  EXPECT_EQ(bed.counter("claim"), claims);
  EXPECT_EQ(bed.host_counter("as_floats"), 3u);
}

TEST(InaNetwork, FloatsThatNobodyCouldAddAreRefused) {
  const std::vector<std::uint8_t> part(4 * kValues, 1);
  const auto post = [&part](aggregate_scheme scheme, std::uint32_t framing) {
    Bed bed({.scheme = scheme, .workers = 2});
    bed.network.nic(0).post(10,
                            {.id = 1,
                             .local = part.data(),
                             .remote_key = 1,
                             .length = static_cast<std::uint32_t>(part.size()),
                             .immediate = kSumFloats,
                             .framing = framing},
                            {});
  };
  EXPECT_THROW(post(AGGREGATE_SWITCHML, 0), std::invalid_argument);
  EXPECT_THROW(post(AGGREGATE_ESA, static_cast<std::uint32_t>(part.size())), std::invalid_argument);
}

TEST(InaNetwork, AResultWithoutARegionEndsInAnError) {
  Bed bed({.workers = 2});
  bed.expect(Status::remote_access_error);
  const std::vector<std::uint8_t> part(4 * 3 * kValues, 1);  // three fragments
  for (unsigned w = 0; w < 2; ++w) {
    bed.network.nic(w).post(
        10, {.id = w, .local = part.data(), .remote_key = 999, .length = static_cast<std::uint32_t>(part.size())}, {});
  }
  bed.network.run_until(milliseconds(5));
  EXPECT_EQ(bed.completed(), 2u);
  EXPECT_EQ(bed.host_counter("place_refused"), 2 * 3u);
}

// Workers begin a tensor at different times, so its first fragments wait long before they are sent again. In
// what continues a tensor all workers are at work already.
TEST(InaNetwork, AFragmentThatContinuesATensorIsSentAgainSoon) {
  std::map<bool, Picoseconds> took;
  for (const bool continues : {false, true}) {
    Bed bed({.workers = 2});
    bed.sum(kValues);
    const Picoseconds begin = bed.network.now();
    bed.network.egress(0, 0)->set_impairment({.loss = 1.0}, {});
    bed.continues = continues;
    bed.meanwhile = [&] {
      if (bed.network.now() > begin + microseconds(20)) bed.network.egress(0, 0)->set_impairment({}, {});
    };
    bed.sum(kValues);
    took[continues] = bed.network.now() - begin;
    EXPECT_GT(bed.host_counter("timeout"), 0u);
  }
  EXPECT_GT(took[false], microseconds(800));  // rto_first is 1 ms, by the server or the worker
  EXPECT_LT(took[true], microseconds(400));   // rto_min is 200 us
}

TEST(InaNetwork, TheSumIsMadeBySwitchMemory) {
  // The root's slots are what the result consists of: nothing went to the server but whole sums.
  Bed bed({.scheme = AGGREGATE_ESA, .workers = 4});
  bed.sum(64 * kValues);
  EXPECT_EQ(bed.counter("claim"), 64u);
  EXPECT_EQ(bed.counter("merge"), 3 * 64u);
  EXPECT_EQ(bed.host_counter("full"), 64u);
  EXPECT_EQ(bed.host_counter("from_parts"), 0u);
}

// A host of one job sends what no correct host sends: the other job's number, fan-ins and workers that are
// not its own, sequence numbers from anywhere, answers that only servers give, packets cut short. Nothing of it
// reaches the other job's sums, and each kind has its counter.
TEST(InaNetwork, ForgedPacketsOfOneJobLeaveTheOthersExact) {
  std::map<std::string, std::uint64_t> counted;
  for (const auto scheme : {AGGREGATE_SWITCHML, AGGREGATE_ATP, AGGREGATE_ESA}) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      for (const bool two_levels : {false, true}) {
        SCOPED_TRACE("scheme " + std::to_string(scheme) + " seed " + std::to_string(seed));
        Bed bed({.scheme = scheme,
                 .jobs = 2,
                 .slots = scheme == AGGREGATE_SWITCHML ? 64 : 12,
                 .two_levels = two_levels,
                 .seed = seed});
        RandomStream random(seed, scheme, 0xf0);
        // Its last worker hangs at the root in both cases.
        const auto port = static_cast<std::uint16_t>(bed.host_of(1, bed.setting.workers - 1));
        bed.meanwhile = [&] {
          test::Fragment f =
              test::data(static_cast<std::uint8_t>(scheme), static_cast<std::uint16_t>(1 + random.below(3)),
                         random.below(8) ? random.below(300) : static_cast<std::uint32_t>(random()), random.below(4),
                         12345, static_cast<std::uint8_t>(random.below(256)), kValues);
          f.header.type = static_cast<std::uint8_t>(random.below(4) ? random.below(9) : 0);
          f.header.index = static_cast<std::uint16_t>(random.below(3) ? random.below(12) : random());
          f.header.flags = static_cast<std::uint8_t>(random.below(4) ? 0 : random());
          if (random.below(8) == 0) f.header.source = static_cast<std::uint8_t>(random());
          if (random.below(3) == 0) f.header.workers = random.below(2) ? random.below(256) : random();
          if (random.below(10) == 0) f.header.version_scheme = static_cast<std::uint8_t>(random());
          if (random.below(10) == 0) f.header.values = static_cast<std::uint16_t>(random());
          std::vector<std::uint8_t> frame = test::frame_of(f);
          if (random.below(4) == 0) frame.resize(AGGREGATE_AT + random.below(250));
          bed.network.inject({bed.root, port}, frame);
        };
        bed.sum(3000);
        bed.sum(500, 8);
        if (HasFatalFailure()) return;
        std::vector<SwitchCounter> all;
        bed.network.program(bed.root)->counters(all);
        for (const auto& c : all) counted[std::string(c.name)] += c.value;
      }
    }
  }
  for (const char* kind :
       {"drop_aggregate_workers", "drop_aggregate_type", "drop_aggregate_version", "drop_aggregate_short"}) {
    EXPECT_GT(counted[kind], 0u) << kind;
  }
}

TEST(InaNetwork, TwoLevelsSendOneSumUpwards) {
  for (const auto scheme : {AGGREGATE_SWITCHML, AGGREGATE_ATP, AGGREGATE_ESA}) {
    SCOPED_TRACE(scheme);
    Bed bed({.scheme = scheme, .workers = 8, .two_levels = true});
    bed.sum(64 * kValues);
    EXPECT_EQ(bed.counter("complete"), 2 * 64u);
    EXPECT_EQ(bed.counter("claim"), 2 * 64u);
    EXPECT_EQ(bed.counter("merge"), (3 + 4) * 64u);  // of four workers, and of four and the leaf's sum
  }
}

// Exactness: sums are those of the workers' values bit for bit, whatever the links do, with slots that
// are too few for the jobs that share them.
TEST(InaNetwork, SumsAreExactUnderLossDuplicationAndReordering) {
  const char* const wanted = std::getenv("LOOMNET_SEEDS");
  const std::uint64_t seeds = wanted ? std::strtoull(wanted, nullptr, 10) : 24;
  const Impairment troubles[] = {
      {},
      {.loss = 1e-4},
      {.loss = 1e-3, .duplicate = 0.01},
      {.loss = 0.01},
      {.loss = 0.01, .duplicate = 0.01, .reorder = 0.1, .jitter = microseconds(30)},
      {.loss = 0.05, .burst = 3, .duplicate = 0.05, .reorder = 0.5, .jitter = microseconds(100)}};
  std::uint64_t preempted = 0, collided = 0, again = 0;
  for (const auto scheme : {AGGREGATE_SWITCHML, AGGREGATE_ATP, AGGREGATE_ESA}) {
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      RandomStream random(seed, scheme, 5);
      Setting s{.scheme = scheme, .seed = seed};
      s.trouble = troubles[seed % std::size(troubles)];
      s.jobs = 1 + random.below(3);
      s.workers = 1 + random.below(6);
      s.window = 1u << random.below(6);
      s.two_levels = random.below(2);
      s.server_beside = random.below(2) && s.workers > 1;
      s.slots = scheme == AGGREGATE_SWITCHML ? 2 * s.window * s.jobs : 1 + random.below(2 * s.window);
      SCOPED_TRACE("scheme " + std::to_string(scheme) + " seed " + std::to_string(seed));
      Bed bed(s);
      bed.sum(random.below(3000) + 1);
      bed.sum(random.below(500) + 1, 8);
      if (HasFatalFailure()) return;
      preempted += bed.counter("preempt");
      collided += bed.counter("collide");
      again += bed.host_counter("resend");
    }
  }
  EXPECT_GT(preempted, 20u);
  EXPECT_GT(collided, 200u);
  EXPECT_GT(again, 200u);
}

}  // namespace
}  // namespace loomnet
