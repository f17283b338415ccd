// The search for an unused index.
#include "transport/ina/index_table.hpp"

#include <algorithm>
#include <array>

namespace loomnet::ina {
namespace {

constexpr std::uint8_t low(std::uint64_t x) { return static_cast<std::uint8_t>(x); }

std::uint32_t salted(std::uint32_t job, std::uint64_t place, std::uint32_t salt) {
  const std::array<std::uint8_t, 6> bytes = {low(job),        low(job >> 8), low(place),
                                             low(place >> 8), low(salt),     low(salt >> 8)};
  return crc32(bytes);
}

}  // namespace

IndexTable::IndexTable(IndexPolicy policy, std::uint16_t job, std::uint32_t window, std::uint32_t pool)
    : policy_(policy),
      job_(job),
      pool_(std::clamp<std::uint32_t>(pool, 1, 0xffff)),
      free_(pool_),
      users_(pool_),
      positions_(window) {
  if (policy_ == IndexPolicy::sequence) return;
  for (std::size_t at = 0; at < positions_.size(); ++at) {
    find(positions_[at], at, 0);
    if (users_[positions_[at].index]++ == 0) --free_;
  }
}

std::uint16_t IndexTable::hashed(std::int64_t n) const {
  const auto s = static_cast<std::uint32_t>(n);
  const std::array<std::uint8_t, 6> bytes = {low(job_),   low(job_ >> 8), low(s),
                                             low(s >> 8), low(s >> 16),   low(s >> 24)};
  return static_cast<std::uint16_t>(crc32(bytes) % pool_);
}

void IndexTable::find(Position& position, std::size_t place, std::uint32_t salt) const {
  for (; salt <= 0xffff; ++salt) {
    const auto index = static_cast<std::uint16_t>(salted(job_, place, salt) % pool_);
    if (users_[index] != 0 && free_ != 0) continue;
    position = {index, static_cast<std::uint16_t>(salt)};
    return;
  }
  // No salt leads to an unused index: the first unused one behind the present index.
  std::uint32_t index = position.index;
  while (users_[index] != 0) index = (index + 1) % pool_;
  position = {static_cast<std::uint16_t>(index), 0xffff};
}

std::uint16_t IndexTable::next(std::int64_t n, bool collided) {
  if (policy_ == IndexPolicy::sequence) return hashed(n + static_cast<std::int64_t>(positions_.size()));
  Position& position = positions_[place(n)];
  if (policy_ == IndexPolicy::rehash && collided && free_ != 0) {
    const std::uint16_t left = position.index;
    find(position, place(n), position.salt + 1u);  // `left` is still in use, so it is not found again
    if (users_[position.index]++ == 0) --free_;
    if (--users_[left] == 0) ++free_;
  }
  return position.index;
}

}  // namespace loomnet::ina
