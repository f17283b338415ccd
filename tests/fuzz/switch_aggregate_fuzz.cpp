// The aggregation program on any bytes. As tables: unpacking refuses them or yields rows that pack into
// the same bytes. As a sequence of fragments, each a good one that differs by what the input says: no
// access outside the frame (sanitizers), one outcome for each packet, and no slot ever holds more than
// its job's workers.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "ebpf/aggregate_abi.h"
#include "switch/aggregate/aggregate_batch.hpp"
#include "switch/aggregate/aggregate_program.hpp"
#include "switch/packet_view.hpp"

using namespace loomnet;

namespace {

#define REQUIRE(condition)                              \
  do {                                                  \
    if (!(condition)) {                                 \
      std::fprintf(stderr, "not so: %s\n", #condition); \
      std::abort();                                     \
    }                                                   \
  } while (0)

constexpr SwitchPort kPorts = 4;

void tables_from(const std::uint8_t* data, std::size_t size) {
  TableBatch batch{1, {data, data + size}, {}};
  try {
    const AggregateBatch rows = AggregateBatch::unpack(batch);
    REQUIRE(rows.pack()->bytes == batch.bytes);
    validate(rows, kPorts);
  } catch (const std::invalid_argument&) {
  }
}

std::shared_ptr<const TableBatch> tables(aggregate_scheme scheme) {
  AggregateBatch batch;
  batch.forward.generation = 1;
  batch.forward.groups = {{0}};
  batch.forward.hosts = {{Ipv6Address{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}, 0}};
  for (std::uint16_t n = 1; n <= 2; ++n) {
    AggregateBatch::Job job;
    job.job = n;
    job.scheme = scheme;
    job.root = n == 1 ? AGGREGATE_ROOT : n == 2 && job.scheme == AGGREGATE_ESA ? AGGREGATE_ANSWERS : AGGREGATE_INNER;
    job.window = 2;
    job.base = 4 * (n - 1u);
    job.server[0] = 0xfd;
    job.children = {{1, 1}, {2, 6}};
    job.hops = {{5, 2}};
    batch.jobs.push_back(job);
  }
  return batch.pack();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  if (data[0] & 0x80) {
    tables_from(data + 1, size - 1);
    return 0;
  }
  static const ProgramKind kind = aggregate_kind();
  static constexpr const char* kPolicies[] = {"switchml", "atp", "esa"};
  static constexpr const char* kDealloc[] = {"completion", "ack", "lazy", ""};
  const auto scheme = static_cast<aggregate_scheme>(data[0] % 3);
  const ProgramOptions options = {{"policy", std::string(kPolicies[data[0] % 3])},
                                  {"dealloc", std::string(kDealloc[data[0] >> 2 & 3])},
                                  {"saturate", (data[0] & 16) != 0},
                                  {"generation_check", (data[0] & 32) == 0},
                                  {"values", std::int64_t{64}},
                                  {"pool", std::int64_t{3 * AGGREGATE_SLOT_BYTES(64)}}};
  const auto program = kind.make(checked_settings(kind, kPorts, 1, options));
  program->set_tables(tables(scheme));
  static PacketPool pool;
  ViewScratch scratch;
  std::size_t at = 1;
  const auto byte = [&]() -> std::uint8_t { return at < size ? data[at++] : 0; };
  std::int64_t now = 0;
  while (at < size) {
    aggregate_header header{};
    header.version_scheme = static_cast<std::uint8_t>(AGGREGATE_VERSION << 4 | scheme);
    const std::uint8_t what = byte();
    header.type = what & 7;
    header.job = 1 + (what >> 3 & 1);
    header.workers = 1ull << (what >> 4 & 3);
    header.values = 64;
    header.sequence = byte() & 7u;
    header.index = header.sequence;
    header.priority = byte();
    std::vector<std::uint8_t> frame(AGGREGATE_PAYLOAD_AT + 256);
    frame[6] = 2, frame[12] = 0x86, frame[13] = 0xdd, frame[14] = 0x60, frame[20] = 17, frame[21] = 64;
    frame[18] = 1, frame[19] = 40;  // UDP and what it carries, 296 B
    frame[22] = frame[38] = 0xfd, frame[37] = 1, frame[53] = 2;
    frame[56] = AGGREGATE_UDP_PORT >> 8, frame[57] = AGGREGATE_UDP_PORT & 0xff;
    std::memcpy(frame.data() + AGGREGATE_AT, &header, sizeof header);
    const std::uint8_t change = byte();
    for (unsigned n = change >> 6; n > 0; --n) {
      const std::size_t where = byte() % AGGREGATE_PAYLOAD_AT;
      if (where < 6 || where > 11) frame[where] ^= byte();
    }
    if ((change & 0x30) == 0x30) frame.resize(14 + byte());
    const auto ingress = static_cast<SwitchPort>((change & 15) % (kPorts + 1));

    const std::size_t split = std::min<std::size_t>(frame.size(), AGGREGATE_PAYLOAD_AT);
    const std::vector<std::uint8_t> memory(frame.begin() + static_cast<std::ptrdiff_t>(split), frame.end());
    std::vector<std::uint8_t> sender = memory;
    PacketPtr packet = pool.allocate();
    std::copy_n(frame.begin(), split, packet->header.begin());
    packet->header_length = static_cast<std::uint8_t>(split);
    packet->wire_length = static_cast<std::uint32_t>(frame.size());
    packet->payload = {sender.data(), static_cast<std::uint32_t>(sender.size()), 0, PayloadKind::region};
    PacketView view(*packet, pool, program->needs(), scratch);
    const Verdict verdict = program->ingress_view(view, {{++now}, ingress});
    if (verdict.leaves()) {
      REQUIRE(!view.apply());
      if (verdict.action == Verdict::Action::forward) REQUIRE(verdict.value < kPorts);
      if (verdict.action == Verdict::Action::replicate) REQUIRE(!program->members(verdict.value).empty());
    } else if (verdict.action == Verdict::Action::drop) {
      REQUIRE(program->reason(verdict.value).starts_with("drop_"));
    } else {
      REQUIRE(verdict.action == Verdict::Action::absorb);
    }
    REQUIRE(sender == memory);
    const StateSnapshot state = program->snapshot();
    for (std::size_t row = 0; row < state.layout.rows; ++row) {
      aggregate_slot slot;
      std::memcpy(&slot, state.bytes.data() + row * sizeof slot, sizeof slot);
      REQUIRE((slot.workers & ~7ull) == 0 && slot.job <= 3 && slot.state <= AGGREGATE_DONE);
    }
  }
  return 0;
}
