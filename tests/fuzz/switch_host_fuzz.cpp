// The program host on any bytes: what comes back from a kernel is never trusted, what a program does with
// its view never reaches a sender's memory, and the split into header and payload never shows.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ebpf/mirror_abi.h"
#include "ebpf/sum_abi.h"
#include "switch/forward/forward_batch.hpp"
#include "switch/kernel_return.hpp"
#include "switch/packet_view.hpp"
#include "switch/registry/registry.hpp"

namespace {

using namespace loomnet;

#define REQUIRE(condition)                              \
  do {                                                  \
    if (!(condition)) {                                 \
      std::fprintf(stderr, "not so: %s\n", #condition); \
      std::abort();                                     \
    }                                                   \
  } while (0)

constexpr SwitchPort kPorts = 4;

struct Input {
  const std::uint8_t* at;
  const std::uint8_t* end;
  std::uint8_t byte() { return at < end ? *at++ : 0; }
  std::uint32_t word() {
    std::uint32_t v = 0;
    for (int i = 0; i < 4; ++i) v = v << 8 | byte();
    return v;
  }
  std::vector<std::uint8_t> rest() { return {at, end}; }
};

// A packet of the frame's bytes; what does not fit its header is `memory`.
PacketPtr packet_of(PacketPool& pool, const std::vector<std::uint8_t>& frame, std::size_t header,
                    std::vector<std::uint8_t>& memory, bool bytes, std::uint32_t behind) {
  const std::size_t n = std::min({frame.size(), header, kMaxHeaderBytes});
  memory.assign(frame.begin() + static_cast<std::ptrdiff_t>(n), frame.end());
  PacketPtr p = pool.allocate();
  std::copy_n(frame.begin(), n, p->header.begin());
  p->header_length = static_cast<std::uint8_t>(n);
  p->payload.length = static_cast<std::uint32_t>(memory.size());
  p->wire_length = static_cast<std::uint32_t>(frame.size()) + behind;
  if (bytes && !memory.empty()) {
    p->payload.data = memory.data();
    p->payload.kind = PayloadKind::region;
  }
  return p;
}

void require_sound(const Packet& p) {
  REQUIRE(p.header_length <= kMaxHeaderBytes);
  REQUIRE((p.payload.kind == PayloadKind::none) == (p.payload.data == nullptr) || p.payload.length == 0);
}

// Metadata, label and frame as a kernel might send them back.
void from_kernel(Input in) {
  PacketPool pool(1);
  std::array<std::uint8_t, kKernelMetadataBytes> before;
  for (std::uint8_t& b : before) b = in.byte();
  if (in.byte() & 1) {
    const std::uint32_t magic = LN_METADATA_MAGIC;
    std::memcpy(before.data() + sizeof(ln_label), &magic, sizeof magic);
  }
  const SwitchPort ingress = in.byte() % kPorts, egress = in.byte() % kPorts;
  const KernelVerdict v = kernel_verdict(before, ingress, egress);
  if (v.trust != KernelVerdict::Trust::agrees) {
    REQUIRE(v.verdict == Verdict::forward(egress) && !v.cut && !v.label);
  } else {
    REQUIRE(v.verdict.leaves());
    REQUIRE(v.verdict.action != Verdict::Action::forward || v.verdict.value == egress);
    REQUIRE(v.verdict.action == Verdict::Action::forward || egress == ingress);
  }
  const std::size_t header = in.byte();
  const std::uint32_t payload = in.byte() * 8u;
  std::vector<std::uint8_t> memory;
  PacketPtr p =
      packet_of(pool, std::vector<std::uint8_t>(header + payload), header, memory, in.byte() & 1, in.byte() % 8);
  const std::uint32_t length = p->wire_length;
  const std::vector<std::uint8_t> frame = in.rest();
  const std::uint8_t had = p->header_length;
  const bool cut = v.cut;
  if (take_header(*p, frame, cut)) {
    REQUIRE(p->header_length <= frame.size() && p->header_length <= had);
    REQUIRE(std::equal(frame.begin(), frame.begin() + p->header_length, p->header.begin()));
  }
  REQUIRE(p->wire_length <= length);
  REQUIRE(cut || p->wire_length == length);
  REQUIRE(p->header_length + p->payload.length <= length);
  require_sound(*p);
}

// A program that does what the bytes say.
void hostile_view(Input in) {
  PacketPool pool(1);
  ViewScratch scratch;
  const ProgramNeeds needs{
      .view = true, .header_bytes = in.byte(), .payload_bytes = static_cast<std::uint32_t>(in.byte()) * 2};
  const std::size_t header = in.byte();
  const bool bytes = in.byte() & 1;
  const std::uint32_t behind = in.byte() % 8, length = in.word(), flow = in.word();
  const std::uint8_t edits = in.byte();
  const std::vector<std::uint8_t> frame = in.rest();
  std::vector<std::uint8_t> memory;
  PacketPtr p = packet_of(pool, frame, header, memory, bytes, behind);
  const std::vector<std::uint8_t> kept = memory;
  PacketView view(*p, pool, needs, scratch);
  REQUIRE(view.frame <= view.end && view.payload <= view.payload_end);
  REQUIRE(view.payload_end - view.payload <= static_cast<std::ptrdiff_t>(needs.payload_bytes));
  for (std::uint8_t* at = view.frame; at < view.end; ++at) *at = static_cast<std::uint8_t>(*at + edits);
  if (edits & 1) {
    ln_edit(&view);
    for (std::uint8_t* at = view.payload; at < view.payload_end; ++at) *at ^= 0x5a;
  }
  view.length = edits & 2 ? view.length : length;
  ln_relabel(&view, flow, 0);
  if (!view.apply()) {
    REQUIRE(p->flow == flow);
    REQUIRE(p->wire_length <= frame.size() + behind);
  }
  REQUIRE(memory == kept);
  require_sound(*p);
}

// The same frame under two splits: the same verdict and the same bytes out.
void two_splits(Input in) {
  const std::string_view name = in.byte() & 1 ? "sum" : "mirror";
  const std::size_t splits[] = {in.byte() % 193u, 62};
  const std::uint8_t kind = in.byte();
  std::vector<std::uint8_t> frame = in.rest();
  if (kind & 1 && frame.size() >= 62) {  // without help the fuzzer seldom gets past the EtherType
    frame[12] = 0x86, frame[13] = 0xdd, frame[14] = 0x60, frame[20] = 17;
    frame[56] = kind & 2 ? SUM_PORT >> 8 : 0;
    frame[57] = static_cast<std::uint8_t>(kind & 2 ? kind >> 4 : 7);
  }
  std::vector<std::uint8_t> out[2];
  Verdict verdicts[2];
  for (int i = 0; i < 2; ++i) {
    auto program = make_program(name, kPorts, 9);
    ForwardBatch batch;
    batch.generation = 1;
    program->set_tables(batch.pack());
    for (int round = 0; round < 4; ++round) {
      PacketPool pool(1);
      ViewScratch scratch;
      std::vector<std::uint8_t> memory;
      PacketPtr p = packet_of(pool, frame, splits[i], memory, true, 0);
      const std::vector<std::uint8_t> kept = memory;
      PacketView view(*p, pool, program->needs(), scratch);
      verdicts[i] = program->ingress_view(view, {{}, 1});
      if (verdicts[i].leaves() && view.apply()) verdicts[i] = {};
      REQUIRE(memory == kept);
      if (!verdicts[i].leaves()) continue;
      out[i].assign(p->header.begin(), p->header.begin() + p->header_length);
      if (p->payload.data) {
        out[i].insert(out[i].end(), p->payload.data, p->payload.data + p->payload.length);
      }
    }
  }
  REQUIRE(verdicts[0] == verdicts[1]);
  REQUIRE(out[0] == out[1]);
}

// Tables and groups of a file or a command.
void tables(Input in) {
  static const auto program = make_program("mirror", kPorts, 1);
  auto batch = std::make_shared<TableBatch>();
  batch->generation = 1;
  for (unsigned groups = in.byte() % 4; groups-- > 0;) {
    auto& group = batch->groups.emplace_back();
    for (unsigned members = in.byte() % 6; members-- > 0;) group.push_back(in.byte());
  }
  batch->bytes = in.rest();
  program->reset();
  try {
    program->set_tables(batch);
    for (const auto& group : batch->groups) {
      REQUIRE(!group.empty());
      for (const SwitchPort port : group) REQUIRE(port < kPorts);
    }
    REQUIRE(program->generation() == 1);
  } catch (const std::invalid_argument&) {
    REQUIRE(program->generation() == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1 || size > 4000) return 0;
  const Input in{data + 1, data + size};
  switch (data[0] % 4) {
    case 0:
      from_kernel(in);
      break;
    case 1:
      hostile_view(in);
      break;
    case 2:
      two_splits(in);
      break;
    default:
      tables(in);
  }
  return 0;
}
