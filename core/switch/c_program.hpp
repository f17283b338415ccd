// The engine's build of a switch program written in C: counters by ingress port, state rows, tables and
// groups around NAME_ingress. A program gives it a Logic, as core/switch/sum shows.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "switch/egress_side.hpp"
#include "switch/program_kind.hpp"

namespace loomnet {

// Logic has, all static:
//   kName, kSummary, kNeeds; Config and Tables, types; options() -> the kind's options;
//   own_counters() -> names, "received" first; state() or state(settings) -> layout of its rows;
//   config(settings) -> Config; tables(batch, ports) -> what its lookups read, unique_ptr<const Tables>;
//   pack(forward, rows) -> TableBatch, where it has rows of its own; kernel_rows(batch, ports) -> KernelRows;
//   ingress(config, host, packet, meta) -> ln_verdict.
// A Logic of many programs, as core/switch/loaded has one, gives name(config), needs(config) and
// own_counters(settings) in place of the constants.
// StateMemory, a type, where its rows lie in other memory than the heap.
// With an egress hook also what egress_side.hpp says.
template <typename Logic>
class CProgram final : public SwitchProgram {
 public:
  using Config = typename Logic::Config;

  explicit CProgram(const ProgramSettings& settings)
      : config_(Logic::config(settings)),
        egress_(config_, settings),
        seed_(settings.seed),
        layout_(state_of(settings)) {
    constexpr std::size_t kMost = 0x4000;
    if (settings.ports == 0 || settings.ports > kMost) {
      throw std::invalid_argument("a switch has 1 to " + std::to_string(kMost) + " ports, not " +
                                  std::to_string(settings.ports));
    }
    if constexpr (requires { Logic::own_counters(settings); }) {
      names_ = Logic::own_counters(settings);
    } else {
      names_ = Logic::own_counters();
    }
    own_ = static_cast<std::uint32_t>(names_.size());
    append_host_counters(names_);
    rows_.resize(settings.ports + 1);
    const std::size_t bytes = std::size_t{layout_.rows} * layout_.row_bytes;
    state_memory_ = StateMemory(bytes);
    if (bytes != 0) state_bytes_ = {state_memory_.data(), bytes};
    state_ = {state_bytes_.data(), layout_.row_bytes, layout_.rows};
  }

  std::string_view name() const override {
    if constexpr (requires { Logic::name(config_); }) {
      return Logic::name(config_);
    } else {
      return Logic::kName;
    }
  }
  ProgramNeeds needs() const override {
    if constexpr (requires { Logic::needs(config_); }) {
      return Logic::needs(config_);
    } else {
      return Logic::kNeeds;
    }
  }

  // Header bytes alone; the host calls ingress_view().
  Verdict ingress(std::span<std::uint8_t> header, std::uint32_t frame_length, const SwitchMeta& meta) override {
    ln_packet packet{};
    packet.frame = header.data();
    packet.end = packet.payload = packet.payload_end = header.data() + header.size();
    packet.length = frame_length;
    return ingress_view(packet, meta);
  }
  Verdict ingress_view(ln_packet& packet, const SwitchMeta& meta) override {
    Row& counters = row(std::min<std::size_t>(meta.ingress, ports()));
    const std::uint64_t before = counters[LN_RECEIVED];
    ln_count(counters.data(), LN_RECEIVED);
    if (meta.ingress >= ports()) [[unlikely]] {
      return host_drop(counters, LN_HOST_DROP_UNKNOWN_INGRESS);
    }
    if (!tables_) [[unlikely]]
      return host_drop(counters, LN_HOST_DROP_NO_TABLES);
    ln_host host{reinterpret_cast<ln_tables*>(const_cast<Tables*>(tables_.get())), &state_, counters.data()};
    const ln_meta told{static_cast<ln_u64>(meta.now.count), seed_, before, meta.ingress};
    const ln_verdict verdict = Logic::ingress(config_, host, packet, told);
    switch (verdict.action) {
      case LN_FORWARD:
      case LN_DROP:
        break;
      case LN_REPLY:
        ++counters[own_ + LN_HOST_REPLIED];
        break;
      case LN_REPLICATE:
        ++counters[own_ + LN_HOST_REPLICATED];
        break;
      case LN_ABSORB:
        ++counters[own_ + LN_HOST_ABSORBED];
        break;
      case LN_PASS:
        ++counters[own_ + LN_HOST_PASSED];
        break;
      default:
        return host_drop(counters, LN_HOST_DROP_BAD_VERDICT);
    }
    return Verdict::of(verdict);
  }

  std::unique_ptr<EgressHook> make_egress(const EgressPlace& place, std::uint64_t seed) override {
    if constexpr (HasEgress<Logic>) return egress_.make(place, seed);
    (void)place, (void)seed;
    return nullptr;
  }
  void egress_counters(std::vector<SwitchCounter>& out) const override {
    if constexpr (HasEgress<Logic>) egress_.counters(out);
    (void)out;
  }
  std::vector<StateSnapshot> egress_snapshot() const override {
    if constexpr (HasEgress<Logic>) return egress_.snapshot();
    return {};
  }

  std::span<const SwitchPort> members(std::uint16_t group) const override {
    if (!batch_ || group >= batch_->groups.size()) return {};
    return batch_->groups[group];
  }
  void set_tables(std::shared_ptr<const TableBatch> batch) override {
    if (!batch) throw std::invalid_argument("set_tables: no batch");
    if (batch->generation <= generation()) {
      throw std::invalid_argument("TableBatch.generation: " + std::to_string(batch->generation) + " does not follow " +
                                  std::to_string(generation()));
    }
    validate_groups(*batch, ports());
    tables_ = Logic::tables(*batch, ports());
    batch_ = std::move(batch);
    egress_.set_tables(tables_.get());
  }
  std::uint32_t generation() const override { return batch_ ? batch_->generation : 0; }
  std::size_t ports() const override { return rows_.size() - 1; }

  void reset() override {
    std::fill(state_bytes_.begin(), state_bytes_.end(), std::uint8_t{0});
    egress_.reset();
    tables_.reset();
    batch_.reset();
  }
  StateSnapshot snapshot() const override { return {layout_, {state_bytes_.begin(), state_bytes_.end()}}; }
  StateView state() const override { return layout_.name.empty() ? StateView{} : StateView{&layout_, state_bytes_}; }

  void counters(std::vector<SwitchCounter>& out) const override {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      std::uint64_t sum = 0;
      for (const Row& row : rows_) sum += row.empty() ? 0 : row[i];
      out.push_back({names_[i], sum});
    }
  }
  void counters(SwitchPort ingress, std::vector<SwitchCounter>& out) const override {
    if (ingress >= ports()) throw std::out_of_range("no port " + std::to_string(ingress));
    const Row& row = rows_[ingress];
    for (std::size_t i = 0; i < names_.size(); ++i) {
      out.push_back({names_[i], row.empty() ? 0 : row[i]});
    }
  }
  std::string_view reason(std::uint16_t value) const override {
    return value < names_.size() ? names_[value] : std::string_view{};
  }
  std::uint16_t count(ln_host_counter which, SwitchPort ingress, std::uint64_t n) override {
    row(std::min<std::size_t>(ingress, ports()))[own_ + which] += n;
    return static_cast<std::uint16_t>(own_ + which);
  }

  static ProgramKind kind() {
    ProgramKind kind{.name = Logic::kName,
                     .summary = Logic::kSummary,
                     .options = Logic::options(),
                     .counters = Logic::own_counters(),
                     .needs = Logic::kNeeds};
    append_host_counters(kind.counters);
    kind.make = [](const ProgramSettings& s) -> std::unique_ptr<SwitchProgram> {
      return std::make_unique<CProgram>(s);
    };
    kind.state = state_of;
    kind.config = [](const ProgramSettings& s) { return bytes_of(Logic::config(s)); };
    kind.kernel_rows = Logic::kernel_rows;
    if constexpr (requires { &Logic::pack; }) kind.pack = Logic::pack;
    if constexpr (HasEgress<Logic>) {
      kind.egress_counters = Logic::egress_counters();
      kind.egress_state = Logic::egress_state;
    }
    return kind;
  }

 private:
  using Tables = typename Logic::Tables;
  using Row = std::vector<std::uint64_t>;  // empty until a packet comes in by the port

  static StateLayout state_of(const ProgramSettings& settings) {
    if constexpr (requires { Logic::state(settings); }) {
      return Logic::state(settings);
    } else {
      return Logic::state();
    }
  }
  Row& row(std::size_t ingress) {
    Row& row = rows_[ingress];
    if (row.empty()) [[unlikely]]
      row.resize(names_.size());
    return row;
  }
  Verdict host_drop(Row& counters, ln_host_counter which) {
    ++counters[own_ + which];
    return Verdict::drop(static_cast<std::uint16_t>(own_ + which));
  }

  // Rows may be laid out by cache line.
  class Lines {
   public:
    Lines() = default;
    explicit Lines(std::size_t bytes) : lines_((bytes + sizeof(Line) - 1) / sizeof(Line)) {}
    std::uint8_t* data() { return lines_[0].bytes; }

   private:
    struct alignas(64) Line {
      std::uint8_t bytes[64];
    };
    std::vector<Line> lines_;
  };
  template <typename L>
  struct StateMemoryOf {
    using Type = Lines;
  };
  template <typename L>
    requires requires { typename L::StateMemory; }
  struct StateMemoryOf<L> {
    using Type = typename L::StateMemory;
  };
  using StateMemory = typename StateMemoryOf<Logic>::Type;

  struct NoEgress {
    NoEgress(const Config&, const ProgramSettings&) {}
    void set_tables(const Tables*) {}
    void reset() {}
  };
  template <typename L>
  struct EgressOf {
    using Type = NoEgress;
  };
  template <HasEgress L>
  struct EgressOf<L> {
    using Type = EgressSide<L>;
  };

  Config config_;
  typename EgressOf<Logic>::Type egress_;
  std::uint64_t seed_;
  StateLayout layout_;
  std::vector<std::string_view> names_;
  std::uint32_t own_ = 0;  // counters of the program's own, "received" included
  std::vector<Row> rows_;  // by ingress port; the last one: ports we do not have
  StateMemory state_memory_;
  std::span<std::uint8_t> state_bytes_;  // of them, the rows'
  ln_state state_{};
  std::shared_ptr<const TableBatch> batch_;
  std::unique_ptr<const Tables> tables_;
};

}  // namespace loomnet
