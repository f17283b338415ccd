// The symphony program on any bytes: frames at its egress hook under every identity, tables of any bytes,
// options of any text. No read beyond the frame (ASan), no mark without a witness, sums that agree.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "switch/registry/registry.hpp"
#include "switch/symphony/symphony_batch.hpp"
#include "switch_symphony/sequence_frames.hpp"

namespace {

using namespace loomnet;
using namespace loomnet::test;

#define REQUIRE(condition)                              \
  do {                                                  \
    if (!(condition)) {                                 \
      std::fprintf(stderr, "not so: %s\n", #condition); \
      std::abort();                                     \
    }                                                   \
  } while (0)

struct Input {
  const std::uint8_t* at;
  const std::uint8_t* end;
  std::uint8_t byte() { return at < end ? *at++ : 0; }
  std::uint32_t word() {
    std::uint32_t v = 0;
    for (int i = 0; i < 4; ++i) v = v << 8 | byte();
    return v;
  }
};

std::uint64_t counter(const SwitchProgram& program, std::string_view name) {
  std::vector<SwitchCounter> all;
  program.egress_counters(all);
  for (const SwitchCounter& each : all) {
    if (each.name == name) return each.value;
  }
  std::abort();
}

// Packets whose headers the bytes make: a kind, then what differs from a sound one.
void departures(Input in) {
  static constexpr const char* kIdentities[] = {"hdr", "sport", "seq", "none"};
  const std::string identity = kIdentities[in.byte() % 4];
  static constexpr const char* kRules[] = {"all", "not_owner", "leaders", "not_random", "not_leader"};
  const std::uint8_t mode = in.byte();
  const bool prob = mode & 1;
  const std::string rule = kRules[mode / 2 % std::size(kRules)];
  const auto program = make_program("symphony", 4, 1,
                                    {{"identity", identity},
                                     {"rows", std::int64_t{4}},
                                     {"warm", std::int64_t{0}},
                                     {"idle", std::int64_t{2}},
                                     {"mode", std::string(prob ? "prob" : "spaced")},
                                     {"base_marks", rule}});
  SymphonyBatch batch = sequence_rules(identity == "seq");
  batch.forward.generation = 1;
  program->set_tables(batch.pack());
  const auto hook = program->make_egress({1, 1}, 1);
  std::int64_t now = 0;
  std::uint64_t packets = 0, marks = 0, unmarked = 0;
  while (in.at < in.end) {
    now += std::int64_t{in.byte()} << 28;
    const std::uint8_t kind = in.byte();
    std::vector<std::uint8_t> bytes;
    if (kind % 4 == 0) {
      step_header step{static_cast<ln_u8>(in.byte() & 15),
                       static_cast<ln_u8>(in.byte() & 1),
                       in.byte(),
                       static_cast<ln_u16>(in.byte() & 3),
                       static_cast<ln_u16>(in.byte() & 7),
                       4,
                       in.word()};
      bytes = step_frame(step);
    } else if (kind % 4 == 1) {
      bytes = tcp_frame(in.byte() % 4, in.word(), in.byte(), in.byte() & 1);
    } else if (kind % 4 == 2) {
      bytes = kind & 4 ? roce_frame(in.byte() % 4, in.word(), in.byte()) : port_frame(in.byte() % 4, in.word());
    } else {
      const std::size_t n = in.byte();
      bytes.assign(in.at, in.at + std::min<std::size_t>(n, static_cast<std::size_t>(in.end - in.at)));
      in.at += bytes.size();
    }
    for (unsigned flips = in.byte() % 4; flips-- > 0 && bytes.size() > 12;) {
      bytes[12 + in.byte() % (bytes.size() - 12)] ^= in.byte();
    }
    if (kind & 0x80) bytes.resize(std::min<std::size_t>(bytes.size(), in.byte()));
    const std::unique_ptr<std::uint8_t[]> exact(new std::uint8_t[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), exact.get());
    std::array<QueuedClass, kQueueClasses> queued{};
    queued[kDataClass] = {kind, kind & 3u};
    ++packets;
    const bool marked = kind & 0x40, own = marked && (kind & 0x20);
    const EgressVerdict verdict =
        hook->dequeue({exact.get(), bytes.size()},
                      {{now}, static_cast<std::uint32_t>(bytes.size()), kDataClass, marked, queued, own});
    if (verdict == EgressVerdict::unmark) {
      ++unmarked;
      REQUIRE(own && rule != "all");
    } else if (verdict == EgressVerdict::mark) {
      ++marks;
      const auto note = hook->note().values;
      REQUIRE((kind & 0x40) == 0 && (kind & 3) != 0);
      REQUIRE(note[SYMPHONY_NOTE_owner] != note[SYMPHONY_NOTE_rank]);
      REQUIRE(static_cast<std::int32_t>(note[SYMPHONY_NOTE_prog] - note[SYMPHONY_NOTE_low]) > 0);
      REQUIRE(note[SYMPHONY_NOTE_gap] == note[SYMPHONY_NOTE_prog] - note[SYMPHONY_NOTE_low]);
    }
    REQUIRE(std::equal(bytes.begin(), bytes.end(), exact.get()));  // the port sets CE, not the program
  }
  REQUIRE(counter(*program, "tagged") + counter(*program, "bypass") == packets);
  REQUIRE(counter(*program, "extra_marks") == marks);
  REQUIRE(counter(*program, "unmarked") == unmarked);
  REQUIRE(counter(*program, "implausible") <= counter(*program, "init"));
}

void tables(Input in) {
  static const auto program = make_program("symphony", 4, 1);
  auto batch = std::make_shared<TableBatch>();
  batch->generation = 1;
  batch->bytes.assign(in.at, in.end);
  program->reset();
  try {
    const SymphonyBatch rows = SymphonyBatch::unpack(*batch);
    REQUIRE(rows.pack()->bytes == batch->bytes);
    program->set_tables(batch);
    REQUIRE(program->generation() == 1);
  } catch (const std::invalid_argument&) {
    REQUIRE(program->generation() == 0);
  }
}

void options(Input in) {
  const bool tau = in.byte() & 1;
  const std::string text(in.at, in.end);
  try {
    const auto program = make_program("symphony", 4, 1, {{tau ? "tau" : "span", text}});
    REQUIRE(program != nullptr);
  } catch (const std::invalid_argument&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1 || size > 4000) return 0;
  const Input in{data + 1, data + size};
  switch (data[0] % 4) {
    case 0:
      tables(in);
      break;
    case 1:
      options(in);
      break;
    default:
      departures(in);
  }
  return 0;
}
