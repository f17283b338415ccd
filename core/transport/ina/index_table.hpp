// The index of each fragment's slot: CRC-32 of job, window position and salt (ATP, NSDI 2021). The
// parameter server and every worker of a job compute the same table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "packet/crc32.hpp"
#include "transport/ina/options.hpp"

namespace loomnet::ina {

class IndexTable {
 public:
  // `pool`: slots; at most 65,535 are used, because 0xffff is no index. 0: every index is 0.
  IndexTable(IndexPolicy policy, std::uint16_t job, std::uint32_t window, std::uint32_t pool);

  // Index of fragment n >= 0. Under `rehash` that of the youngest fragment at n's window position.
  std::uint16_t of(std::int64_t n) const {
    return policy_ == IndexPolicy::sequence ? hashed(n) : positions_[place(n)].index;
  }
  // The server's answer for fragment n + W, once n is complete; a new one where n collided. Call it once
  // per n.
  std::uint16_t next(std::int64_t n, bool collided);
  // A worker takes over what the server has assigned to the fragments of n's position.
  void adopt(std::int64_t n, std::uint16_t index) { positions_[place(n)].index = index; }

  IndexPolicy policy() const { return policy_; }
  bool valid(std::uint16_t index) const { return index < pool_; }
  std::uint16_t salt(std::int64_t n) const { return positions_[place(n)].salt; }

 private:
  struct Position {
    std::uint16_t index = 0;
    std::uint16_t salt = 0;
  };
  std::size_t place(std::int64_t n) const {
    return static_cast<std::size_t>(static_cast<std::uint64_t>(n) % positions_.size());
  }
  std::uint16_t hashed(std::int64_t n) const;
  // Tries the salts from `salt` on until an index is unused by the job.
  void find(Position& position, std::size_t place, std::uint32_t salt) const;

  IndexPolicy policy_;
  std::uint16_t job_;
  std::uint32_t pool_;
  std::uint32_t free_;  // indices that no position has
  std::vector<std::uint16_t> users_;  // of each index: positions that have it
  std::vector<Position> positions_;
};

}  // namespace loomnet::ina
