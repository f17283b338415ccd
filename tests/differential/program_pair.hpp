// A switch program twice, in the engine and in the kernel, on the same tables: hands both the same
// frame and says in words where they differ. Also the probes by which root tests skip.
#pragma once

#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "live/netns.hpp"
#include "live/xdp_program.hpp"
#include "switch/forward/forward_program.hpp"
#include "switch/packet_view.hpp"
#include "switch/registry/registry.hpp"

namespace loomnet::test {

// A program for the kernel with a ring of its own.
struct KernelProgram {
  KernelProgram(const ProgramKind& kind, std::size_t ports, std::uint64_t seed = 0, const ProgramOptions& options = {})
      : program(kind, checked_settings(kind, ports, seed, options), reports) {}
  KernelProgram(std::string_view name, std::size_t ports, std::uint64_t seed = 0, const ProgramOptions& options = {})
      : KernelProgram(program_kind(name), ports, seed, options) {}
  XdpReports reports{1u << 16};
  XdpProgram program;
};

// Why BPF tests cannot run here; empty if they can.
inline std::string missing_for_bpf() {
  const auto talkative = libbpf_set_print(nullptr);  // a probe that fails is no error
  std::string missing;
  try {
    KernelProgram probe("forward", 1);
    (void)Netns::create("lnfw-probe");
  } catch (const LiveError& error) {
    missing = std::string(error.what()) + " (needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN)";
  }
  libbpf_set_print(talkative);
  return missing;
}

inline std::string hex(std::span<const std::uint8_t> bytes) {
  std::string out;
  char two[3];
  for (const std::uint8_t byte : bytes.first(std::min<std::size_t>(bytes.size(), 128))) {
    std::snprintf(two, sizeof two, "%02x", byte);
    out += two;
  }
  return out + " (" + std::to_string(bytes.size()) + " bytes)";
}

class ProgramPair {
 public:
  static constexpr std::uint32_t kFlow = 7, kMessage = 40;  // of packet n: 7 + n, 40 + n

  // The calling thread stays on one CPU: the kernel keeps the last verdict by CPU.
  ProgramPair(std::string_view name, std::size_t ports, std::uint64_t seed = 0, const ProgramOptions& options = {})
      : ProgramPair(program_kind(name), ports, seed, options) {}
  ProgramPair(const ProgramKind& kind, std::size_t ports, std::uint64_t seed = 0, const ProgramOptions& options = {})
      : owned_(kind.make(checked_settings(kind, ports, seed, options))),
        kernel_(kind, ports, seed, options),
        native(*owned_),
        xdp(kernel_.program) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
    xdp.set_clock(0, kNow, std::numeric_limits<double>::infinity());
  }

  void set_tables(std::shared_ptr<const TableBatch> batch) {
    native.set_tables(batch);
    xdp.set_tables(*batch);
  }
  void set_tables(const ForwardBatch& rows) { set_tables(rows.pack()); }

  std::string words(const Verdict& verdict) const {
    if (verdict.action == Verdict::Action::drop) {
      return "drop " + std::string(native.reason(verdict.value));
    }
    return "action " + std::to_string(static_cast<int>(verdict.action)) + " value " + std::to_string(verdict.value);
  }

  // Runs `frame` through both; the first difference in words, or nothing. In the engine the packet's
  // first `header` bytes are its header, the rest is a sender's memory, which must stay as it is.
  std::optional<std::string> difference(const std::vector<std::uint8_t>& frame, SwitchPort in,
                                        std::size_t header = kMaxHeaderBytes) {
    const PacketPtr packet = packet_of(frame, header);
    const std::vector<std::uint8_t> memory = memory_;
    last = decide(*packet, in);
    last_label = {packet->flow, packet->message};
    const std::uint64_t uid = frame.size() < 12 ? 0 : ln_uid_from_mac(frame.data() + 6);
    if (xdp.wants_labels()) {
      xdp.set_label(uid, kFlow + static_cast<std::uint32_t>(uid), kMessage + static_cast<std::uint32_t>(uid));
    }
    xdp.test_run(frame, run_);
    const auto differ = [&](const std::string& what, const std::string& ours, const std::string& theirs) {
      return what + ": engine " + ours + ", XDP " + theirs + "\n frame " + hex(frame);
    };
    const auto number = [](auto n) { return std::to_string(n); };
    if (memory_ != memory) return "the engine's program wrote into the sender's memory: " + hex(frame);
    if (!(run_.verdict == last)) return differ("verdict", words(last), words(run_.verdict));
    if (last.leaves() || !native.needs().view) {
      if (run_.frame != bytes_of(*packet)) {
        return differ("bytes", hex(bytes_of(*packet)), hex(run_.frame));
      }
    }
    if (run_.generation != native.generation()) {
      return differ("generation", number(native.generation()), number(run_.generation));
    }
    const std::uint32_t code = last.leaves()                          ? XDP_REDIRECT
                               : last.action == Verdict::Action::pass ? XDP_PASS
                                                                      : XDP_DROP;
    if (run_.code != code) return differ("return code", number(code), number(run_.code));
    if (!run_.metadata) return differ("metadata", "expected", "none");
    const ln_metadata& m = *run_.metadata;
    if (m.magic != LN_METADATA_MAGIC || m.ingress != in || m.value != last.value ||
        m.action != static_cast<std::uint16_t>(last.action) || m.generation != native.generation()) {
      return differ("metadata", words(last) + " from port " + number(in),
                    words({static_cast<Verdict::Action>(m.action), m.value}) + " from port " + number(m.ingress));
    }
    if (xdp.wants_labels() && last.leaves()) {
      const ln_label before{kFlow + static_cast<std::uint32_t>(uid), kMessage + static_cast<std::uint32_t>(uid)};
      const ln_label theirs = run_.label.value_or(before);
      if (theirs.flow != packet->flow || theirs.message != packet->message) {
        return differ("label", number(packet->flow) + "/" + number(packet->message),
                      number(theirs.flow) + "/" + number(theirs.message));
      }
    }
    // Whatever ends here was reported, once, and nothing else.
    std::vector<ln_report> reports;
    kernel_.reports.take([&](const ln_report& r) { reports.push_back(r); });
    const std::size_t expected = !last.leaves() && uid != 0;
    if (reports.size() != expected) {
      return differ("reports", number(expected), number(reports.size()));
    }
    if (expected && (reports[0].uid != uid || reports[0].value != last.value ||
                     reports[0].action != static_cast<std::uint16_t>(last.action))) {
      return differ("report", words(last) + " of " + number(uid), number(reports[0].uid));
    }
    return std::nullopt;
  }

  // Counters of both, which must be the same at the end of any sequence.
  std::optional<std::string> counter_difference() const {
    std::vector<SwitchCounter> ours, theirs;
    native.counters(ours);
    xdp.counters(theirs);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      if (ours[i].value != theirs[i].value || ours[i].name != theirs[i].name) {
        return std::string(ours[i].name) + ": engine " + std::to_string(ours[i].value) + ", XDP " +
               std::to_string(theirs[i].value);
      }
    }
    return std::nullopt;
  }
  std::uint64_t counter(std::string_view name) const {
    std::vector<SwitchCounter> all;
    native.counters(all);
    for (const SwitchCounter& c : all) {
      if (c.name == name) return c.value;
    }
    throw std::out_of_range(std::string(name));
  }

 private:
  static constexpr Picoseconds kNow = milliseconds(5);
  std::unique_ptr<SwitchProgram> owned_;
  KernelProgram kernel_;

 public:
  SwitchProgram& native;
  XdpProgram& xdp;
  Verdict last{};
  ln_label last_label{};

 private:
  PacketPtr packet_of(const std::vector<std::uint8_t>& frame, std::size_t header) {
    const std::size_t n = std::min({frame.size(), header, kMaxHeaderBytes});
    memory_.assign(frame.begin() + static_cast<std::ptrdiff_t>(n), frame.end());
    PacketPtr packet = pool_.allocate();
    std::copy_n(frame.begin(), n, packet->header.begin());
    packet->header_length = static_cast<std::uint8_t>(n);
    packet->wire_length = static_cast<std::uint32_t>(frame.size());
    packet->payload.length = static_cast<std::uint32_t>(memory_.size());
    if (!memory_.empty()) {
      packet->payload.data = memory_.data();
      packet->payload.kind = PayloadKind::region;
    }
    const auto uid = static_cast<std::uint32_t>(frame.size() < 12 ? 0 : ln_uid_from_mac(frame.data() + 6));
    packet->flow = kFlow + uid;
    packet->message = kMessage + uid;
    return packet;
  }
  Verdict decide(Packet& packet, SwitchPort in) {
    if (!native.needs().view) {
      return native.ingress(packet.header_bytes(), packet.wire_length, {kNow, in});
    }
    PacketView view(packet, pool_, native.needs(), scratch_);
    Verdict verdict = native.ingress_view(view, {kNow, in});
    if (verdict.leaves()) {
      if (const auto broken = view.apply()) verdict = Verdict::drop(native.count(*broken, in, 1));
    }
    return verdict;
  }
  static std::vector<std::uint8_t> bytes_of(const Packet& packet) {
    std::vector<std::uint8_t> bytes(packet.header.begin(), packet.header.begin() + packet.header_length);
    bytes.insert(bytes.end(), packet.payload.data, packet.payload.data + packet.payload.length);
    return bytes;
  }

  PacketPool pool_;
  std::vector<std::uint8_t> memory_;
  ViewScratch scratch_;
  XdpProgram::TestRun run_;
};

class ForwardPair : public ProgramPair {
 public:
  ForwardPair(std::size_t ports, const ForwardSettings& settings)
      : ProgramPair("forward", ports, settings.hash_seed,
                    {{"check_addresses", (settings.options & FORWARD_CHECK_ADDRESSES) != 0},
                     {"allow_stale_length", (settings.options & FORWARD_ALLOW_STALE_LENGTH) != 0}}) {}
};

// In the forward program's own names.
inline std::string words(const Verdict& verdict) {
  if (verdict.action == Verdict::Action::drop) {
    return "drop " + std::string(forward_counter_name(verdict.value));
  }
  return "action " + std::to_string(static_cast<int>(verdict.action)) + " value " + std::to_string(verdict.value);
}

}  // namespace loomnet::test
