#include "circuits/messages.hpp"

#include <gtest/gtest.h>

namespace loomnet::circuits {
namespace {

DemandReport report() {
  return {.phase = 2,
          .layer = 0x0102,
          .iteration = 0x03040506,
          .micro_batch = 7,
          .region = 8,
          .source = 1,
          .token_bytes = 0x0a0b0c0d,
          .tokens = {0x11, 0x22334455}};
}

TEST(DemandReport, HasItsFieldsWhereTheFormatSays) {
  const std::vector<std::uint8_t> expected = {0x4d, 0x44, 0x46, 0x4d, 1, 2, 0x02, 0x01, 0x06, 0x05, 0x04,
                                              0x03, 7,    0,    8,    0, 1, 0,    2,    0,    0x0d, 0x0c,
                                              0x0b, 0x0a, 0x11, 0,    0, 0, 0x55, 0x44, 0x33, 0x22};
  EXPECT_EQ(report().serialize(), expected);
  EXPECT_EQ(DemandReport::parse(expected), report());
}

TEST(DemandReport, OtherBytesAreRefused) {
  const std::vector<std::uint8_t> good = report().serialize();
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(DemandReport::parse(std::span(good).first(length))) << length;
  }
  const auto broken = [&](std::size_t at, std::uint8_t value) {
    std::vector<std::uint8_t> bytes = good;
    bytes[at] = value;
    return DemandReport::parse(bytes).has_value();
  };
  EXPECT_FALSE(broken(0, 0));   // magic
  EXPECT_FALSE(broken(4, 2));   // version
  EXPECT_FALSE(broken(5, 4));   // phase
  EXPECT_FALSE(broken(16, 2));  // a source beyond the experts
  EXPECT_FALSE(broken(18, 3));  // more experts than bytes
  EXPECT_FALSE(broken(18, 0));
  std::vector<std::uint8_t> longer = good;
  longer.push_back(0);
  EXPECT_FALSE(DemandReport::parse(longer));
}

CircuitMap map() {
  return {.predicted = true,
          .failure = false,
          .region = 3,
          .generation = 0x0102030405060708,
          .usable_ns = 0x1112131415161718,
          .layer = 9,
          .micro_batch = 10,
          .circuits = {{1, 2, 3, 4, true}, {0, 5, 0, 6, false}}};
}

TEST(CircuitMap, HasItsFieldsWhereTheFormatSays) {
  const std::vector<std::uint8_t> expected = {0x49, 0x43, 0x46, 0x4d, 1,    1,    3,    0,    8, 7, 6,  5, 4, 3, 2, 1,
                                              0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 9, 0, 10, 0, 2, 0, 0, 0,
                                              1,    0,    2,    0,    3,    4,    1,    0,    0, 0, 5,  0, 0, 6, 0, 0};
  EXPECT_EQ(map().serialize(), expected);
  EXPECT_EQ(CircuitMap::parse(expected), map());
}

TEST(CircuitMap, OtherBytesAreRefused) {
  const std::vector<std::uint8_t> good = map().serialize();
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(CircuitMap::parse(std::span(good).first(length))) << length;
  }
  for (const auto& [at, value] : {std::pair<std::size_t, std::uint8_t>{0, 0}, {4, 0}, {5, 4}, {28, 3}}) {
    std::vector<std::uint8_t> bytes = good;
    bytes[at] = value;
    EXPECT_FALSE(CircuitMap::parse(bytes)) << at;
  }
}

}  // namespace
}  // namespace loomnet::circuits
