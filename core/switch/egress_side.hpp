// The egress hooks of one switch around NAME_egress: rows, counters and random stream of each half-link,
// and what all half-links have counted and hold.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "switch/program_kind.hpp"

namespace loomnet {

// A Logic with an egress hook has, beside what c_program.hpp lists, all static:
//   egress(config, host, packet, meta) -> ln_u32; egress_counters() -> their names, in the order of the
//   program's own numbers; egress_state(settings) -> lots of rows, LN_EGRESS_STATES at most;
//   egress_notes() -> names of what the hook notes of a packet that it marks, LN_EGRESS_NOTES at most;
//   watches(config, place) -> whether the half-link has a hook.
template <typename Logic>
concept HasEgress = requires { Logic::egress_counters(); };

template <typename Logic>
class EgressSide {
 public:
  using Config = typename Logic::Config;
  using Tables = typename Logic::Tables;

  EgressSide(const Config& config, const ProgramSettings& settings) : common_(std::make_shared<Common>()) {
    common_->config = config;
    common_->lots = Logic::egress_state(settings);
    common_->counters = Logic::egress_counters();
  }

  std::unique_ptr<EgressHook> make(const EgressPlace& place, std::uint64_t seed) {
    if (!Logic::watches(common_->config, place)) return nullptr;
    books_.push_back(std::make_shared<Books>());
    books_.back()->counters.resize(common_->counters.size());
    return std::make_unique<Hook>(common_, books_.back(), place, seed);
  }
  void set_tables(const Tables* tables) { common_->tables = reinterpret_cast<ln_tables*>(const_cast<Tables*>(tables)); }
  // Zeros in all rows; counters stay.
  void reset() {
    common_->tables = nullptr;
    for (const auto& books : books_) {
      for (auto& lot : books->lots) std::fill(lot.begin(), lot.end(), CacheLine{});
    }
  }
  void counters(std::vector<SwitchCounter>& out) const {
    for (std::size_t i = 0; i < common_->counters.size(); ++i) {
      std::uint64_t value = 0;
      for (const auto& books : books_) {
        const std::uint64_t one = books->counters[i];
        value = common_->counters[i].largest ? std::max(value, one) : value + one;
      }
      out.push_back({common_->counters[i].name, value});
    }
  }
  // Each lot with the rows of all half-links that a packet has left by, one behind the other.
  std::vector<StateSnapshot> snapshot() const {
    std::vector<StateSnapshot> out;
    for (std::size_t i = 0; i < common_->lots.size(); ++i) {
      StateSnapshot& lot = out.emplace_back(StateSnapshot{common_->lots[i], {}});
      const std::size_t bytes = std::size_t{lot.layout.rows} * lot.layout.row_bytes;
      for (const auto& books : books_) {
        if (books->lots[i].empty()) continue;
        const std::uint8_t* first = books->lots[i].front().bytes;
        lot.bytes.insert(lot.bytes.end(), first, first + bytes);
      }
      lot.layout.rows = static_cast<std::uint32_t>(lot.bytes.size() / lot.layout.row_bytes);
    }
    return out;
  }

 private:
  struct alignas(64) CacheLine {
    std::uint8_t bytes[64]{};
  };
  struct Common {
    Config config;
    std::vector<StateLayout> lots;
    std::vector<EgressCounter> counters;
    ln_tables* tables = nullptr;
  };
  struct Books {
    std::array<std::vector<CacheLine>, LN_EGRESS_STATES> lots;  // empty until a packet leaves
    std::vector<std::uint64_t> counters;
  };

  class Hook final : public EgressHook {
   public:
    Hook(std::shared_ptr<const Common> common, std::shared_ptr<Books> books, const EgressPlace& place,
         std::uint64_t seed)
        : config_(common->config), common_(std::move(common)), books_(std::move(books)) {
      meta_.seed = seed;
      meta_.half = place.half;
      meta_.port = place.port;
    }
    EgressVerdict dequeue(std::span<std::uint8_t> header, const Departure& departure) override {
      if (!ready_) [[unlikely]]
        prepare();
      ln_packet packet{};
      packet.frame = header.data();
      packet.end = packet.payload = packet.payload_end = header.data() + header.size();
      packet.length = departure.frame_length;
      meta_.now = static_cast<ln_u64>(departure.now.count);
      meta_.queue = departure.queue;
      meta_.marked = departure.marked;
      meta_.own_mark = departure.own_mark;
      static_assert(kQueueClasses == LN_CLASSES);
      for (std::size_t i = 0; i < kQueueClasses; ++i) {
        meta_.queued[i] = departure.waiting[i].bytes;
        meta_.packets[i] = departure.waiting[i].packets;
      }
      host_.tables = common_->tables;
      const ln_u32 action = Logic::egress(config_, host_, packet, meta_);
      ++meta_.sequence;
      return egress_verdict(action);
    }
    EgressNote note() const override {
      const std::span<const std::string_view> names = Logic::egress_notes();
      return {Logic::kName, names, std::span(note_).first(names.size())};
    }

   private:
    // Memory is taken when the first packet leaves: most half-links of a large fabric stay silent.
    void prepare() {
      for (std::size_t i = 0; i < common_->lots.size(); ++i) {
        const StateLayout& lot = common_->lots[i];
        const std::size_t bytes = std::size_t{lot.rows} * lot.row_bytes;
        books_->lots[i].resize((bytes + sizeof(CacheLine) - 1) / sizeof(CacheLine));
        host_.state[i] = {bytes ? books_->lots[i].front().bytes : nullptr, lot.row_bytes, lot.rows};
      }
      host_.counters = books_->counters.data();
      host_.note = note_.data();
      ready_ = true;
    }

    const Config config_;
    ln_egress_meta meta_{};
    ln_egress_host host_{};
    std::array<ln_u32, LN_EGRESS_NOTES> note_{};
    std::shared_ptr<const Common> common_;
    std::shared_ptr<Books> books_;
    bool ready_ = false;
  };

  std::shared_ptr<Common> common_;
  std::vector<std::shared_ptr<Books>> books_;  // in the order of make()
};

}  // namespace loomnet
