// Bytes that a transport gives up, seen from above the NIC: by a traffic model and by whole ranks.
#include <atomic>
#include <numeric>
#include <thread>

#include "engine/lossy_transport.hpp"
#include "engine/nic_bed.hpp"
#include "engine/rank_bridge.hpp"
#include "rank/rank_session.hpp"
#include "traffic/collective_traffic.hpp"

namespace loomnet {
namespace {

using testing::Listener;
using testing::LossyTransport;

constexpr JobId kJob{3};
constexpr std::uint32_t kPacket = 1024, kFraming = StagingLayout::kHeaderBytes;

// Two hosts and a link.
struct Bed {
  Network network{1};
  LossyTransport* transport[2];
  explicit Bed(std::uint32_t lost_of_100) {
    const LinkConfig link{.rate = gigabits(100), .delay = microseconds(1)};
    for (unsigned h = 0; h < 2; ++h) {
      Nic& nic = network.nic(network.add_host(1));
      auto made = std::make_unique<LossyTransport>(nic.sink(), kPacket, lost_of_100, h);
      transport[h] = made.get();
      nic.set_transport(std::move(made));
    }
    network.connect({0, 0}, {1, 0}, link, link);
    for (unsigned h = 0; h < 2; ++h) {
      QpConfig qp;
      qp.local = qp.remote = 256;
      qp.source = h;
      qp.destination = 1 - h;
      network.nic(h).connect(qp, {}, {kJob, {}});
    }
  }
  std::uint64_t lost() const { return transport[0]->lost_bytes + transport[1]->lost_bytes; }
};

TEST(Missing, CompletionAndArrivalSayTheSame) {
  Bed bed(40);
  Listener sender(bed.network.nic(0), kJob), receiver(bed.network.nic(1), kJob);
  std::vector<std::uint8_t> from(10'000, 7), to(10'000, 0xee);
  const auto key = bed.network.nic(1).register_region(to.data(), 0, to.size(), kJob);
  for (std::uint64_t id = 0; id < 20; ++id) {
    std::fill(to.begin(), to.end(), std::uint8_t{0xee});
    bed.network.nic(0).post(256,
                            {.id = id,
                             .local = from.data(),
                             .remote_key = key,
                             .length = 10'000,
                             .opcode = Opcode::write_with_immediate,
                             .framing = 1500,
                             .attributes = {.loss_tolerance = 0.5f}},
                            bed.network.now());
    bed.network.run_until(bed.network.now() + microseconds(50));
    ASSERT_EQ(sender.completions.size(), id + 1);
    ASSERT_EQ(receiver.arrivals.size(), id + 1);
    const Completion& c = sender.completions.back();
    const Arrival& a = receiver.arrivals.back();
    EXPECT_EQ(c.status, Status::ok);
    EXPECT_EQ(c.missing, a.missing);
    EXPECT_TRUE(a.missing.sound(a.length));
    EXPECT_EQ(a.delivered(), c.delivered());
    EXPECT_LE(a.missing.bytes, (10'000 - 1500) / 2);
    std::uint32_t untouched = 0;
    for (std::uint32_t i = 0; i < to.size(); ++i) {
      ASSERT_EQ(to[i], a.missing.has(i / kPacket) ? 0xee : 7) << i;
      untouched += to[i] == 0xee;
    }
    EXPECT_EQ(untouched, a.missing.bytes);
    EXPECT_FALSE(a.missing.has(0) || a.missing.has(1)) << "framing was lost";
  }
  EXPECT_GT(bed.lost(), 20'000u);
  EXPECT_EQ(bed.network.pool().outstanding(), bed.network.held());
}

struct Outcome {
  std::uint64_t expected, delivered, lost, wrong;
};

Outcome all_reduce(float tolerance, std::uint32_t lost_of_100) {
  Bed bed(lost_of_100);
  CollectiveTraffic traffic(bed.network, {.job = kJob,
                                          .hosts = {0, 1},
                                          .bytes = 1 << 20,
                                          .repeat = 5,
                                          .attributes = {.loss_tolerance = tolerance},
                                          .payload = true});
  traffic.set_queue_pair(0, 1, 256);
  traffic.set_queue_pair(1, 0, 256);
  traffic.start();
  while (!traffic.done()) bed.network.run_until(bed.network.now() + milliseconds(100));
  EXPECT_EQ(traffic.errors(), 0u) << traffic.first_error();
  EXPECT_EQ(traffic.expected_bytes(), 5u * 2 * (1 << 20));  // two ranks, half a tensor in each of two steps
  return {traffic.expected_bytes(), traffic.delivered_bytes(), bed.lost(), traffic.wrong()};
}

TEST(Missing, ACollectiveThatToleratesNoneGetsAll) {
  const Outcome o = all_reduce(0, 100);
  EXPECT_EQ(o.lost + o.wrong, 0u);
  EXPECT_EQ(o.delivered, o.expected);
}

TEST(Missing, ACollectiveKnowsWhatItHasLost) {
  const Outcome o = all_reduce(0.1f, 50);
  EXPECT_EQ(o.expected - o.delivered, o.lost);
  EXPECT_GT(static_cast<double>(o.lost), 0.08 * static_cast<double>(o.expected));
  EXPECT_LE(static_cast<double>(o.lost), 0.1 * static_cast<double>(o.expected));
  EXPECT_GT(o.wrong, 0u);
}

// Of a slot of 64 KiB and its header only the packet with the header arrives.
TEST(Missing, FramingArrivesWhereAllElseIsLost) {
  const Outcome o = all_reduce(1, 100);
  EXPECT_EQ(o.expected - o.delivered, o.lost);
  EXPECT_EQ(o.delivered, o.expected / 65536 * (kPacket - kFraming));
}

// Ranks with their threads and shared memory, over NICs and a link.
TEST(Missing, RanksSeeWhichBytes) {
  Bed bed(30);
  const StagingLayout layout({.ranks = 2, .slots = 4, .slot_payload = 16384, .channels = 16});
  std::vector<std::unique_ptr<RankBridge>> bridges;
  for (std::uint32_t r = 0; r < 2; ++r) {
    bridges.push_back(std::make_unique<RankBridge>(bed.network, r,
                                                   rank::Geometry{.rank = r,
                                                                  .world = 2,
                                                                  .slots = layout.slots(),
                                                                  .slot_payload = layout.slot_payload(),
                                                                  .slot_channels = layout.channels(),
                                                                  .staging_bytes = layout.total_bytes()},
                                                   kJob));
  }
  for (std::uint32_t r = 0; r < 2; ++r) bridges[r]->bind(1 - r, 256, bridges[1 - r]->key());
  constexpr std::size_t kElements = 50'000;
  std::vector<std::int32_t> tensor[2];
  rank::WorkPtr works[2];
  std::atomic<int> running{2};
  std::vector<std::thread> ranks;
  for (std::uint32_t r = 0; r < 2; ++r) {
    tensor[r].resize(kElements);
    std::iota(tensor[r].begin(), tensor[r].end(), 1);
    ranks.emplace_back([&, r] {
      rank::RankSession session(bridges[r]->memory_fd(), bridges[r]->engine_event_fd());
      session.create(0, {0, 1});
      Operation op;
      op.collective = r == 0 ? Collective::send : Collective::recv;
      op.type = DataType::int32;
      op.count = kElements;
      op.peer = 1 - r;
      op.attributes = {.loss_tolerance = 0.25f, .layer = 4, .priority = 5};
      (r == 0 ? op.input : op.output) = Buffers(tensor[r].data());
      works[r] = session.start(0, {op}, 0);
      EXPECT_TRUE(session.wait(works[r], 60'000'000'000));
      session.leave(1'000'000'000);
      --running;
    });
  }
  while (running > 0) {
    for (auto& bridge : bridges) bridge->poll(bed.network.now(), 0, 1.0);
    bed.network.run_until(bed.network.now() + microseconds(5));
    for (auto& bridge : bridges) bridge->flush(bed.network.now());
  }
  for (auto& thread : ranks) thread.join();
  for (const auto& bridge : bridges) EXPECT_EQ(bridge->fault(), RankFault::none);
  ASSERT_EQ(works[1]->status, OperationStatus::ok) << works[1]->message;
  const Received& received = works[1]->received;
  EXPECT_EQ(received.expected, 4 * kElements);
  EXPECT_EQ(received.expected - received.delivered, bed.lost());
  EXPECT_GT(bed.lost(), 4 * kElements / 8);
  EXPECT_LE(bed.lost(), 4 * kElements / 4);
  std::vector<bool> missing(kElements);
  for (const MissingBytes& m : received.missing) {
    const auto first = (m.at - reinterpret_cast<std::uint8_t*>(tensor[1].data())) / 4;
    for (std::uint64_t i = 0; i < m.length / 4; ++i) missing.at(static_cast<std::size_t>(first) + i) = true;
  }
  for (std::size_t i = 0; i < kElements; ++i) {
    ASSERT_EQ(tensor[1][i], missing[i] ? 0 : static_cast<std::int32_t>(i + 1)) << i;
  }
}

}  // namespace
}  // namespace loomnet
