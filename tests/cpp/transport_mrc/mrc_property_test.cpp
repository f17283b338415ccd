// Random faults, random messages: whatever the fabric does while the faults last, each message is
// delivered once, each byte right, completions and immediates in order, nothing hangs or leaks.
// A failing seed prints its history; replay it with --gtest_filter and LOOMNET_SEED=<n>.
#include <cstdlib>
#include <deque>

#include "mrc_bed.hpp"

namespace loomnet::mrc {
namespace {

constexpr std::uint32_t kKey = 7;
constexpr std::uint64_t kBase = 1ull << 40;

struct Sent {
  std::vector<std::uint8_t> data;
  std::uint64_t address = 0, id = 0;
  HostId to = 0;
  QpNumber remote = 0;
  bool immediate = false;
  std::uint32_t value = 0;
};

struct Outcome {
  std::uint64_t packets = 0, retransmitted = 0, condemned = 0, readmitted = 0, trimmed = 0, spurious = 0, ports = 0;
};

void run_seed(std::uint64_t seed, Outcome& total) {
  RandomStream random(seed, 1, 99);
  const auto chance = [&](double p) { return random.uniform() < p; };
  testbed::BedOptions bed_options;
  bed_options.hosts = 2;
  bed_options.planes = 1 + random.below(4);
  bed_options.seed = seed;
  if (chance(0.5)) bed_options.down_rate = gigabits(chance(0.5) ? 100 : 40);
  MrcOptions o = MrcOptions::sim(microseconds(5), gigabits(100));
  if (chance(0.7)) o.base_rtt = microseconds(5);
  if (chance(0.3)) o.mtu = 1024;
  if (chance(0.3)) o.first_psn = 0xffffff - random.below(40);
  if (chance(0.2)) o.evs_per_qp = static_cast<std::uint32_t>(bed_options.planes);
  if (chance(0.2)) o.max_wimm = 1 + random.below(4);
  if (chance(0.2)) o.mpr = 1;
  if (chance(0.2)) o.loss_infer = chance(0.5) ? LossInference::same_ev : LossInference::rto_only;
  if (chance(0.2)) o.sack_base = chance(0.5) ? SackBase::max : SackBase::trigger;
  if (chance(0.1)) o.congestion = "fixed_window";
  if (chance(0.1)) o.coarse_timestamps = true;
  o.seed = seed;
  Mrc m(bed_options, o, 1 + random.below(8));

  const std::size_t pairs = 1 + random.below(3);
  for (QpNumber q = 0; q < pairs; ++q) m.bed.connect(0, 10 + q, 1, 20 + q);
  testbed::Region* regions[2];
  for (HostId h = 0; h < 2; ++h) regions[h] = &m.bed.nic(h).add_region(kKey, kBase, 4 << 20);

  std::deque<Sent> sent;
  std::map<std::pair<HostId, QpNumber>, std::vector<const Sent*>> by_qp;
  std::uint64_t next_address[2] = {kBase, kBase};
  std::uint64_t bytes_to[2] = {0, 0};
  const std::uint32_t messages = 3 + random.below(20);
  const Picoseconds faults_end = milliseconds(2);
  for (std::uint32_t i = 0; i < messages; ++i) {
    const HostId from = random.below(2);
    const auto q = static_cast<QpNumber>(random.below(static_cast<std::uint32_t>(pairs)));
    static constexpr std::uint32_t kSizes[] = {0, 1, 1024, 4096, 4097, 50'000, 150'000};
    std::uint32_t size = kSizes[random.below(7)];
    if (size > 1) size += random.below(3);
    sent.push_back({pattern(size, seed * 1000 + i), next_address[1 - from], 0, static_cast<HostId>(1 - from),
                    (from == 0 ? 20 : 10) + q, chance(0.5), i});
    Sent& s = sent.back();
    next_address[1 - from] += size;
    bytes_to[1 - from] += size;
    const QpNumber local = (from == 0 ? 10 : 20) + q;
    m.bed.at(Picoseconds{static_cast<std::int64_t>(random.uniform() * 1.5e9)}, [&m, &s, &by_qp, from, local] {
      s.id =
          m.bed.post_write(from, local, s.data, s.address, kKey, s.immediate ? std::optional(s.value) : std::nullopt);
      by_qp[{from, local}].push_back(&s);
    });
  }

  // The timetable of faults.
  const bool lossy = chance(0.8), flaps = chance(0.5);
  for (HostId h = 0; h < 2; ++h) {
    for (std::size_t p = 0; p < bed_options.planes; ++p) {
      for (testbed::Pipe* pipe : {&m.bed.up(h, p), &m.bed.down(h, p)}) {
        if (lossy && chance(0.5)) pipe->loss = chance(0.2) ? 0.3 : 0.03;
        if (chance(0.3)) pipe->duplication = 0.05;
        if (chance(0.3)) pipe->reorder = 0.2;
        if (chance(0.2)) pipe->corruption = 0.02;
        if (chance(0.3)) pipe->queue_limit = 20'000 + random.below(60'000);
        m.bed.at(faults_end, [pipe] { pipe->loss = pipe->duplication = pipe->reorder = pipe->corruption = 0; });
      }
      if (flaps && chance(0.5)) {
        const auto at = Picoseconds{static_cast<std::int64_t>(random.uniform() * 1.5e9)};
        const bool silent = chance(0.4);
        const auto port = static_cast<PlanePort>(p);
        const Picoseconds until = at + microseconds(5 + random.below(400));
        m.bed.at(at,
                 [&m, h, port, silent] { silent ? m.bed.set_silent(h, port, true) : m.bed.set_link(h, port, false); });
        m.bed.at(until,
                 [&m, h, port, silent] { silent ? m.bed.set_silent(h, port, false) : m.bed.set_link(h, port, true); });
      }
    }
  }

  SCOPED_TRACE("seed " + std::to_string(seed));
  ASSERT_TRUE(m.bed.run_until_idle(milliseconds(500))) << m.bed;
  // Control packets still waiting for their ports leave within moments.
  m.bed.run_until(m.bed.now() + microseconds(200));
  for (int i = 0; i < 10'000 && m.bed.leaked() != 0; ++i) m.bed.run_until(m.bed.now() + nanoseconds(100));
  EXPECT_EQ(m.bed.leaked(), 0u);

  std::map<std::pair<HostId, QpNumber>, std::size_t> completed, arrived;
  for (HostId h = 0; h < 2; ++h) {
    for (const auto& done : m.bed.nic(h).completions) {
      const auto& c = done.completion;
      ASSERT_EQ(c.status, Status::ok) << to_string(c.status) << "\n" << m.bed;
      const auto& expected = by_qp[{h, c.qp}];
      const std::size_t i = completed[{h, c.qp}]++;
      ASSERT_LT(i, expected.size()) << "completed twice\n" << m.bed;
      ASSERT_EQ(c.id, expected[i]->id) << "out of order\n" << m.bed;
    }
  }
  for (const auto& [qp, list] : by_qp) {
    ASSERT_EQ(completed[qp], list.size());
    std::vector<std::uint32_t> wanted, got;
    for (const Sent* s : list) {
      if (s->immediate) wanted.push_back(s->value);
    }
    for (const auto& a : m.bed.nic(1 - qp.first).arrivals) {
      if (!list.empty() && a.arrival.qp == list[0]->remote) got.push_back(a.arrival.immediate);
    }
    ASSERT_EQ(got, wanted) << m.bed;
  }
  for (HostId h = 0; h < 2; ++h) {
    ASSERT_EQ(m.bed.nic(h).placed_bytes, bytes_to[h]) << "a byte was placed twice\n" << m.bed;
  }
  for (const Sent& s : sent) {
    ASSERT_TRUE(
        std::equal(s.data.begin(), s.data.end(), regions[s.to]->bytes.begin() + static_cast<long>(s.address - kBase)))
        << "message " << s.value << " differs\n"
        << m.bed;
  }
  for (HostId h = 0; h < 2; ++h) {
    total.packets += m.count(h, Count::data_sent);
    total.retransmitted += m.count(h, Count::data_retransmitted);
    total.condemned += m.count(h, Count::ev_condemned);
    total.readmitted += m.count(h, Count::ev_readmitted);
    total.trimmed += m.count(h, Count::trimmed_received);
    total.spurious += m.count(h, Count::spurious_loss);
    total.ports += m.count(h, Count::port_status_accepted);
  }
}

TEST(Property, RandomFaults) {
  std::uint64_t first = 1, last = 400;
  if (const char* one = std::getenv("LOOMNET_SEED")) first = last = std::strtoull(one, nullptr, 10);
  if (const char* many = std::getenv("LOOMNET_SEEDS")) last = std::strtoull(many, nullptr, 10);
  Outcome total;
  for (std::uint64_t seed = first; seed <= last && !HasFatalFailure(); ++seed) run_seed(seed, total);
  std::printf(
      "packets %llu retransmitted %llu condemned %llu readmitted %llu trimmed %llu "
      "spurious %llu port updates %llu\n",
      static_cast<unsigned long long>(total.packets), static_cast<unsigned long long>(total.retransmitted),
      static_cast<unsigned long long>(total.condemned), static_cast<unsigned long long>(total.readmitted),
      static_cast<unsigned long long>(total.trimmed), static_cast<unsigned long long>(total.spurious),
      static_cast<unsigned long long>(total.ports));
  if (last - first >= 100) {
    // The seeds must have met what they are for.
    EXPECT_GT(total.retransmitted, 1'000u);
    EXPECT_GT(total.readmitted, 100u);
    EXPECT_GT(total.trimmed, 100u);
    EXPECT_GT(total.spurious, 10u);
    EXPECT_GT(total.ports, 100u);
  }
}

}  // namespace
}  // namespace loomnet::mrc
