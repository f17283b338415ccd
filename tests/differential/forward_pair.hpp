// The forward program twice, in the engine and in the kernel, on the same tables: hands both the
// same frame and says in words where they differ. Also the probes by which root tests skip.
#pragma once

#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "live/netns.hpp"
#include "live/xdp_forward.hpp"
#include "switch/forward/forward_program.hpp"

namespace loomnet::test {

// Why BPF tests cannot run here; empty if they can.
inline std::string missing_for_bpf() {
  const auto talkative = libbpf_set_print(nullptr);  // a probe that fails is no error
  std::string missing;
  try {
    XdpForward probe(1, {});
    (void)Netns::create("lnfw-probe");
  } catch (const LiveError& error) {
    missing =
        std::string(error.what()) + " (needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN)";
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

inline std::string words(const Verdict& verdict) {
  if (verdict.action == Verdict::Action::drop) {
    return "drop " + std::string(forward_counter_name(verdict.value));
  }
  return "action " + std::to_string(static_cast<int>(verdict.action)) + " value " +
         std::to_string(verdict.value);
}

class ForwardPair {
 public:
  // The calling thread stays on one CPU: the kernel keeps the last verdict by CPU.
  ForwardPair(std::size_t ports, const ForwardSettings& settings)
      : native(ports, settings), xdp(ports, settings) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
  }

  void set_tables(const ForwardBatch& rows) {
    const std::shared_ptr<const TableBatch> batch = rows.pack();
    native.set_tables(batch);
    xdp.set_tables(*batch);
  }

  // Runs `frame` through both; the first difference in words, or nothing.
  std::optional<std::string> difference(const std::vector<std::uint8_t>& frame, SwitchPort in) {
    bytes_ = frame;
    const std::span<std::uint8_t> all(bytes_);
    const Verdict verdict = native.ingress(all.first(std::min(all.size(), kMaxHeaderBytes)),
                                           static_cast<std::uint32_t>(all.size()), {{}, in});
    last = verdict;
    xdp.test_run(frame, run_);
    const auto differ = [&](const std::string& what, const std::string& ours,
                            const std::string& theirs) {
      return what + ": engine " + ours + ", XDP " + theirs + "\n frame " + hex(frame);
    };
    if (!(run_.verdict == verdict)) return differ("verdict", words(verdict), words(run_.verdict));
    if (run_.frame != bytes_) return differ("bytes", hex(bytes_), hex(run_.frame));
    if (run_.generation != native.generation()) {
      return differ("generation", std::to_string(native.generation()),
                    std::to_string(run_.generation));
    }
    const std::uint32_t code = verdict.action == Verdict::Action::forward ? XDP_REDIRECT : XDP_DROP;
    if (run_.code != code)
      return differ("return code", std::to_string(code), std::to_string(run_.code));
    if (!run_.metadata) return differ("metadata", "expected", "none");
    const ln_metadata& m = *run_.metadata;
    if (m.magic != LN_METADATA_MAGIC || m.ingress != in || m.value != verdict.value ||
        m.action != static_cast<std::uint16_t>(verdict.action) ||
        m.generation != native.generation()) {
      return differ("metadata", words(verdict) + " from port " + std::to_string(in),
                    words({static_cast<Verdict::Action>(m.action), m.value}) + " from port " +
                        std::to_string(m.ingress));
    }
    return std::nullopt;
  }

  // Counters of both, which must be the same at the end of any sequence.
  std::optional<std::string> counter_difference() const {
    std::vector<SwitchCounter> ours, theirs;
    native.counters(ours);
    xdp.counters(theirs);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      if (ours[i].value != theirs[i].value) {
        return std::string(ours[i].name) + ": engine " + std::to_string(ours[i].value) + ", XDP " +
               std::to_string(theirs[i].value);
      }
    }
    return std::nullopt;
  }

  ForwardProgram native;
  XdpForward xdp;
  Verdict last{};

 private:
  std::vector<std::uint8_t> bytes_;
  XdpForward::TestRun run_;
};

}  // namespace loomnet::test
