// Index of an object by its 32-bit number (queue pair, host): open addressing, at most half full,
// one cache line where a NIC has few.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace loomnet {

class NumberIndex {
 public:
  static constexpr std::uint32_t kAbsent = ~0u;

  // The index of `number`, kAbsent if it has none.
  std::uint32_t find(std::uint32_t number) const {
    if (slots_.empty()) return kAbsent;
    for (std::size_t i = place(number);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].index == kAbsent || slots_[i].number == number) return slots_[i].index;
    }
  }
  bool contains(std::uint32_t number) const { return find(number) != kAbsent; }
  // `number` must be new, `index` not kAbsent.
  void add(std::uint32_t number, std::uint32_t index) {
    if (2 * ++size_ > slots_.size()) {
      const std::vector<Slot> old = std::move(slots_);
      slots_.assign(old.empty() ? 4 : 2 * old.size(), {});
      for (const Slot& s : old) {
        if (s.index != kAbsent) put(s);
      }
    }
    put({number, index});
  }
  const void* memory() const { return slots_.data(); }

 private:
  struct Slot {
    std::uint32_t number = 0, index = kAbsent;
  };
  std::size_t place(std::uint32_t number) const {
    return std::size_t{number * 0x9e3779b1u} >> (32 - std::countr_zero(slots_.size()));
  }
  void put(const Slot& slot) {
    std::size_t i = place(slot.number);
    while (slots_[i].index != kAbsent) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = slot;
  }
  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace loomnet
