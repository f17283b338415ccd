// Steady state allocates nothing: rings are sized by the window, buffers of partial sums are used again.
#include "transport_ina/ina_script.hpp"

#include "counted_memory.hpp"
#include "transport/ina/parameter_server.hpp"
#include "transport/ina/switchml_worker.hpp"
#include "transport/ina/worker.hpp"

namespace loomnet::ina::test {
namespace {

TEST(InaMemory, AWorkersAndAServersSteadyStateAllocatesNothing) {
  for (const aggregate_scheme scheme : {AGGREGATE_ATP, AGGREGATE_ESA}) {
    InaOptions o = small(scheme, 16);
    const InaJob job{1, 3, {{20}}};
    Worker workers[] = {Worker(o, job, 0, 1), Worker(o, job, 1, 1)};
    ParameterServer server(o, job);
    const auto values = values_of(5);
    Contribution part;
    part.values = values;
    std::vector<std::uint8_t> payload(256);
    Picoseconds now{};
    std::size_t before = 0;
    std::uint64_t packets = 0;
    for (int round = 0; round < 4000; ++round) {
      if (round == 1000) before = testbed::allocations;
      now += microseconds(round % 50 == 0 ? 2000 : 1);  // now and then all timers run out
      server.on_deadline(now);
      for (Worker& worker : workers) {
        while (worker.room()) worker.submit(part);
        worker.on_deadline(now);
        while (const auto out = worker.pull(now)) {
          ++packets;
          if (packets % 7 != 0) server.on_packet(out->header, out->values, now);
        }
      }
      while (const auto out = server.pull(now)) {
        if (++packets % 5 == 0) continue;
        std::copy(out->values.begin(), out->values.end(), payload.begin());
        for (Worker& worker : workers) worker.on_packet(out->header, payload, now);
      }
    }
    EXPECT_EQ(testbed::allocations, before);
    EXPECT_GT(workers[0].base(), 1000);
    EXPECT_GT(workers[0].counters().resend, 100u);
    EXPECT_LE(server.buffers(), 2 * 16 * 2u + 16);
  }
}

TEST(InaMemory, SwitchMlsSteadyStateAllocatesNothing) {
  SwitchMlWorker worker(small(AGGREGATE_SWITCHML, 16), job1(), 0);
  const auto values = values_of(5);
  Contribution part;
  part.values = values;
  Picoseconds now{};
  std::size_t before = 0;
  for (int round = 0; round < 2000; ++round) {
    if (round == 500) before = testbed::allocations;
    now += milliseconds(round % 50 == 0 ? 20 : 1);
    worker.on_deadline(now);
    while (worker.room()) worker.submit(part);
    while (const auto out = worker.pull(now)) {
      aggregate_header h = out->header;
      h.type = AGGREGATE_RESULT;
      if (h.sequence % 7 != static_cast<std::uint32_t>(round) % 7) worker.on_packet(h, values, now);
    }
  }
  EXPECT_EQ(testbed::allocations, before);
  EXPECT_GT(worker.base(), 1000);
}

}  // namespace
}  // namespace loomnet::ina::test
