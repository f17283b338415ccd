// Memory of partial sums: buffers of one fragment each, linked into one list per fragment. A buffer that
// is given back is used again, so a server in steady state allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace loomnet::ina {

class PartialSums {
 public:
  static constexpr std::uint32_t kNone = ~0u;
  explicit PartialSums(std::uint32_t values) : values_(values) {}

  // A buffer with these values, in front of the list `next`.
  std::uint32_t take(std::uint64_t workers, const std::uint8_t* values, std::uint32_t next) {
    if (free_ == kNone) grow();
    const std::uint32_t part = free_;
    free_ = parts_[part].next;
    parts_[part].workers = workers;
    parts_[part].next = next;
    if (values)
      std::memcpy(sum(part), values, 4 * std::size_t{values_});
    else
      std::memset(sum(part), 0, 4 * std::size_t{values_});
    return part;
  }
  // Gives back the whole list.
  void release(std::uint32_t list) {
    while (list != kNone) {
      const std::uint32_t next = parts_[list].next;
      parts_[list].next = free_;
      free_ = list;
      list = next;
    }
  }
  // Gives back the parts of a list that lie within `workers`. The list without them.
  std::uint32_t release_within(std::uint32_t list, std::uint64_t workers) {
    std::uint32_t kept = kNone;
    while (list != kNone) {
      const std::uint32_t next = parts_[list].next;
      std::uint32_t& other = parts_[list].workers & ~workers ? kept : free_;
      parts_[list].next = other;
      other = list;
      list = next;
    }
    return kept;
  }
  // Gives back the list behind its first part, which is the sum over `workers` from now on.
  void keep_first(std::uint32_t list, std::uint64_t workers) {
    release(parts_[list].next);
    parts_[list].next = kNone;
    parts_[list].workers = workers;
  }
  // Adds to a part; true if an addition left the int32 range, with `saturate`. Null: nothing but workers.
  bool add(std::uint32_t part, std::uint64_t workers, const std::uint8_t* values, bool saturate) {
    parts_[part].workers |= workers;
    if (!values) return false;
    std::int32_t* const to = sum(part);
    bool left = false;
    for (std::uint32_t i = 0; i < values_; ++i) {
      std::int32_t more;
      std::memcpy(&more, values + 4 * std::size_t{i}, 4);
      const std::int64_t wide = std::int64_t{to[i]} + more;
      const auto wrapped = static_cast<std::int32_t>(static_cast<std::uint32_t>(wide));
      if (saturate && wide != wrapped)
        left = true, to[i] = wide < 0 ? INT32_MIN : INT32_MAX;
      else
        to[i] = wrapped;
    }
    return left;
  }

  // Adds all parts of a list as float32 and keeps the sum as the list's only part. Floats round with every
  // addition, so they are added in the order of the workers and not in that of arrival.
  void add_floats(std::uint32_t list) {
    std::array<std::uint32_t, 64> order;
    std::size_t count = 0;
    std::uint64_t all = 0;
    for (std::uint32_t part = list; part != kNone; part = parts_[part].next) {
      order[count++] = part;
      all |= parts_[part].workers;
    }
    std::sort(order.begin(), order.begin() + count, [this](std::uint32_t a, std::uint32_t b) {
      return std::countr_zero(parts_[a].workers) < std::countr_zero(parts_[b].workers);
    });
    for (std::uint32_t i = 0; i < values_; ++i) {
      float total = std::bit_cast<float>(sum(order[0])[i]);
      for (std::size_t k = 1; k < count; ++k) total += std::bit_cast<float>(sum(order[k])[i]);
      sum(list)[i] = std::bit_cast<std::int32_t>(total);
    }
    keep_first(list, all);
  }

  std::uint64_t workers(std::uint32_t part) const { return parts_[part].workers; }
  std::uint32_t next(std::uint32_t part) const { return parts_[part].next; }
  std::int32_t* sum(std::uint32_t part) { return &chunks_[part / kChunk][part % kChunk * std::size_t{values_}]; }
  const std::uint8_t* bytes(std::uint32_t part) const {
    return reinterpret_cast<const std::uint8_t*>(&chunks_[part / kChunk][part % kChunk * std::size_t{values_}]);
  }
  std::size_t allocated() const { return parts_.size(); }

 private:
  static constexpr std::uint32_t kChunk = 16;
  struct Part {
    std::uint64_t workers = 0;
    std::uint32_t next = kNone;
  };
  void grow() {
    chunks_.push_back(std::make_unique<std::int32_t[]>(kChunk * std::size_t{values_}));
    for (std::uint32_t i = 0; i < kChunk; ++i) {
      parts_.push_back({0, free_});
      free_ = static_cast<std::uint32_t>(parts_.size() - 1);
    }
  }

  std::uint32_t values_;
  std::uint32_t free_ = kNone;
  std::vector<Part> parts_;
  std::vector<std::unique_ptr<std::int32_t[]>> chunks_;  // buffers stay where they are
};

}  // namespace loomnet::ina
