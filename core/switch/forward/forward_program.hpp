// The engine's build of ebpf/forward.h: SRv6 uSID shift-and-forward and plain IPv6 by ECMP, bit for
// bit what the XDP switch decides.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "ebpf/forward_abi.h"
#include "switch/forward/lookup_tables.hpp"
#include "switch/program.hpp"

namespace loomnet {

struct ForwardSettings {
  // Of the flow hash. Give every switch its own, for example hash_key(seed, node, purpose): with
  // one seed for all, the leaf's choice fixes the spine's (ECMP polarisation).
  std::uint64_t hash_seed = 0;
  std::uint32_t options = FORWARD_DEFAULT_OPTIONS;
};

std::string_view forward_counter_name(std::size_t counter);

class ForwardProgram final : public SwitchProgram {
 public:
  ForwardProgram(std::size_t ports, const ForwardSettings& settings);

  std::string_view name() const override { return "forward"; }
  Verdict ingress(std::span<std::uint8_t> header, std::uint32_t frame_length, const SwitchMeta& meta) override;
  Verdict foresee(std::span<const std::uint8_t> header, std::uint32_t frame_length, SwitchPort ingress) const override;
  Verdict peek(std::span<const std::uint8_t> header, SwitchPort ingress) override;
  void set_tables(std::shared_ptr<const TableBatch> batch) override;
  std::uint32_t generation() const override { return generation_; }
  void reset() override;
  std::size_t ports() const override { return rows_.size() - 1; }
  void counters(std::vector<SwitchCounter>& out) const override;
  void counters(SwitchPort ingress, std::vector<SwitchCounter>& out) const override;
  std::string_view reason(std::uint16_t value) const override;
  std::uint16_t count(ln_host_counter which, SwitchPort ingress, std::uint64_t n) override;

 private:
  // The counters of forwarded packets come first and share a cache line.
  struct alignas(64) Row : std::array<std::uint64_t, FORWARD_COUNTER_COUNT> {};
  Row& row(std::size_t ingress);
  void make_tables();
  ln_tables* opaque() const;  // tables_, as forward.h names them

  forward_config config_{};
  std::uint32_t generation_ = 0;  // of the batch published last, 0: none yet
  std::unique_ptr<const ForwardBatch> batch_;  // until its tables are made
  // Both are made by the first packet that needs them: of the 6,144 switches of an eight-plane
  // fabric most see traffic on few ports, or none.
  std::unique_ptr<const LookupTables> tables_;
  std::vector<std::unique_ptr<Row>> rows_;  // by ingress port; the last one: ports we do not have
};

}  // namespace loomnet
