// Hands packets to ebpf/forward.h with the engine's tables behind its three lookups.
#include "switch/forward/forward_program.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "switch/forward/native_lookups.hpp"

namespace loomnet {
namespace {

constexpr std::array<std::string_view, FORWARD_COUNTER_COUNT> kCounterNames = {
#define FORWARD_NAME(symbol, name) name,
    FORWARD_COUNTERS(FORWARD_NAME) LN_HOST_COUNTERS(FORWARD_NAME)
#undef FORWARD_NAME
};

}  // namespace

std::string_view forward_counter_name(std::size_t counter) { return kCounterNames.at(counter); }

ForwardProgram::ForwardProgram(std::size_t ports, const ForwardSettings& settings) {
  if (ports == 0 || ports > FORWARD_MAX_PORTS) {
    throw std::invalid_argument("a switch has 1 to " + std::to_string(FORWARD_MAX_PORTS) + " ports, not " +
                                std::to_string(ports));
  }
  config_.hash_seed = settings.hash_seed;
  config_.options = settings.options;
  rows_.resize(ports + 1);
}

ForwardProgram::Row& ForwardProgram::row(std::size_t ingress) {
  std::unique_ptr<Row>& row = rows_[ingress];
  if (!row) row = std::make_unique<Row>();
  return *row;
}

ln_tables* ForwardProgram::opaque() const {
  return reinterpret_cast<ln_tables*>(const_cast<LookupTables*>(tables_.get()));
}

Verdict ForwardProgram::ingress(std::span<std::uint8_t> header, std::uint32_t frame_length, const SwitchMeta& meta) {
  Row* counters = meta.ingress < ports() ? rows_[meta.ingress].get() : nullptr;
  if (!counters || !tables_) [[unlikely]] {
    counters = &row(std::min<std::size_t>(meta.ingress, ports()));
    if (meta.ingress >= ports() || generation_ == 0) {
      ln_count(counters->data(), FORWARD_RECEIVED);
      const ln_verdict verdict =
          ln_drop(counters->data(), meta.ingress >= ports() ? FORWARD_DROP_UNKNOWN_INGRESS : FORWARD_DROP_NO_TABLES);
      return Verdict::of(verdict);
    }
    make_tables();
  }
  ln_count(counters->data(), FORWARD_RECEIVED);
  const std::size_t bytes = std::min<std::size_t>(header.size(), frame_length);
  std::uint8_t nothing = 0;  // arithmetic on an empty span's null pointer is undefined
  std::uint8_t* frame = bytes ? header.data() : &nothing;
  const ln_verdict verdict = forward_ingress(opaque(), &config_, counters->data(), frame, frame + bytes, frame_length);
  return Verdict::of(verdict);
}

Verdict ForwardProgram::foresee(std::span<const std::uint8_t> header, std::uint32_t, SwitchPort ingress) const {
  if (!tables_ || ingress >= ports() || header.size() < FORWARD_ETHERNET + FORWARD_IPV6) return {};
  __builtin_prefetch(rows_[ingress].get(), 1);
  const ln_verdict verdict = forward_peek(opaque(), &config_, header.data(), header.data() + header.size());
  return Verdict::of(verdict);
}

Verdict ForwardProgram::peek(std::span<const std::uint8_t> header, SwitchPort ingress) {
  if (generation_ == 0) return {};
  make_tables();
  return foresee(header, static_cast<std::uint32_t>(header.size()), ingress);
}

void ForwardProgram::make_tables() {
  if (tables_) return;
  tables_ = std::make_unique<const LookupTables>(*batch_);
  batch_.reset();
}

void ForwardProgram::set_tables(std::shared_ptr<const TableBatch> batch) {
  if (!batch) throw std::invalid_argument("set_tables: no batch");
  auto rows = std::make_unique<const ForwardBatch>(ForwardBatch::unpack(*batch));
  validate(*rows, ports());
  validate_groups(*batch, ports());
  if (batch->generation <= generation()) {
    throw std::invalid_argument("TableBatch.generation: " + std::to_string(batch->generation) + " does not follow " +
                                std::to_string(generation()));
  }
  generation_ = batch->generation;
  batch_ = std::move(rows);
  tables_.reset();
}

void ForwardProgram::reset() {
  generation_ = 0;
  batch_.reset();
  tables_.reset();
}

std::uint16_t ForwardProgram::count(ln_host_counter which, SwitchPort ingress, std::uint64_t n) {
  row(std::min<std::size_t>(ingress, ports()))[FORWARD_OWN_COUNTERS + std::size_t{which}] += n;
  return static_cast<std::uint16_t>(FORWARD_OWN_COUNTERS + std::size_t{which});
}

void ForwardProgram::counters(std::vector<SwitchCounter>& out) const {
  Row sum{};
  for (const auto& row : rows_) {
    if (!row) continue;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += (*row)[i];
  }
  for (std::size_t i = 0; i < sum.size(); ++i) out.push_back({kCounterNames[i], sum[i]});
}

void ForwardProgram::counters(SwitchPort ingress, std::vector<SwitchCounter>& out) const {
  if (ingress >= ports()) throw std::out_of_range("no port " + std::to_string(ingress));
  const Row* row = rows_[ingress].get();
  for (std::size_t i = 0; i < kCounterNames.size(); ++i) {
    out.push_back({kCounterNames[i], row ? (*row)[i] : 0});
  }
}

std::string_view ForwardProgram::reason(std::uint16_t value) const {
  return value < kCounterNames.size() ? kCounterNames[value] : std::string_view{};
}

}  // namespace loomnet
