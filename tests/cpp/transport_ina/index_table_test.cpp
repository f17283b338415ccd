// Golden vectors of the slot indices, and what holds for any pool and window.
#include "transport/ina/index_table.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace loomnet::ina {
namespace {

std::vector<int> firsts(const IndexTable& table, int n) {
  std::vector<int> all;
  for (int i = 0; i < n; ++i) all.push_back(table.of(i));
  return all;
}

TEST(IndexTable, CrcIsZlibs) {
  const std::array<std::uint8_t, 9> digits = {'1', '2', '3', '4', '5', '6', '7', '8', '9'};
  EXPECT_EQ(crc32(digits), 0xcbf43926u);
  const std::array<std::uint8_t, 6> job1 = {1, 0, 0, 0, 0, 0};
  EXPECT_EQ(crc32(job1), 0x7a9e7206u);
}

TEST(IndexTable, GoldenVectors) {
  const IndexTable a(IndexPolicy::rehash, 1, 8, 1000);
  EXPECT_EQ(firsts(a, 8), (std::vector<int>{230, 603, 621, 320, 697, 268, 578, 159}));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(a.salt(i), 0);
  const IndexTable b(IndexPolicy::fixed, 7, 4, 20000);
  EXPECT_EQ(firsts(b, 4), (std::vector<int>{19963, 8350, 6640, 18261}));
  EXPECT_EQ(firsts(IndexTable(IndexPolicy::rehash, 1, 6, 4), 6), (std::vector<int>{2, 3, 1, 0, 1, 0}));
}

TEST(IndexTable, GoldenVectorsOfANarrowPool) {
  IndexTable c(IndexPolicy::rehash, 1, 8, 10);
  EXPECT_EQ(firsts(c, 8), (std::vector<int>{0, 3, 1, 6, 7, 8, 5, 9}));
  const std::vector<int> salts = {0, 0, 0, 2, 0, 0, 5, 0};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(c.salt(i), salts[static_cast<std::size_t>(i)]);
  IndexTable d = c;
  EXPECT_EQ(c.next(0, true), 2);
  EXPECT_EQ(c.salt(0), 4);
  EXPECT_EQ(c.of(8), 2);
  EXPECT_EQ(d.next(3, true), 2);
  EXPECT_EQ(d.salt(3), 6);
  EXPECT_EQ(d.next(1, false), 3);
}

TEST(IndexTable, OnlyRehashAssignsAnew) {
  IndexTable fixed(IndexPolicy::fixed, 1, 8, 1000), hashed(IndexPolicy::sequence, 1, 8, 1000);
  EXPECT_EQ(fixed.next(0, true), 230);
  const std::array<std::uint8_t, 6> bytes = {1, 0, 8, 0, 0, 0};
  EXPECT_EQ(hashed.next(0, true), crc32(bytes) % 1000);
  EXPECT_EQ(hashed.of((std::int64_t{1} << 32) + 8), hashed.of(8));  // 32 bits on the wire
}

// A job's positions have indices of their own for as long as the pool has any, through any rehashing.
TEST(IndexTable, IndicesStayUnique) {
  for (const std::uint32_t pool : {1u, 2u, 7u, 64u, 65u, 500u}) {
    for (const std::uint32_t window : {1u, 6u, 64u}) {
      IndexTable table(IndexPolicy::rehash, 9, window, pool);
      for (std::int64_t n = 0; n < 3000; ++n) {
        const std::uint16_t before = table.of(n);
        const std::uint16_t after = table.next(n, true);
        EXPECT_LT(after, pool);
        if (pool > window) {
          EXPECT_NE(after, before);
        }
        const std::vector<int> all = firsts(table, static_cast<int>(window));
        ASSERT_EQ(std::set<int>(all.begin(), all.end()).size(), std::min(window, pool));
      }
    }
  }
}

TEST(IndexTable, FindsTheLastOnesOfAPoolOfTheGreatestSize) {
  const IndexTable table(IndexPolicy::rehash, 3, 32768, 32768);
  const std::vector<int> all = firsts(table, 32768);
  EXPECT_EQ(std::set<int>(all.begin(), all.end()).size(), 32768u);
  const IndexTable wide(IndexPolicy::sequence, 3, 8, 1'000'000);
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(wide.valid(wide.of(i)));
  EXPECT_FALSE(wide.valid(AGGREGATE_NO_INDEX));
}

}  // namespace
}  // namespace loomnet::ina
