// Tokens of experts folded into what servers exchange.
#include "circuits/demand.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <string>

namespace loomnet::circuits {
namespace {

using Counts = std::vector<std::uint64_t>;

const Counts kTokens = {9810, 5338, 1231, 3042,  4452, 2004, 841,  6050, 9278, 6282,  839,  3722,  3821,
                        2903, 909,  5014, 10684, 5165, 1044, 2634, 4344, 3333, 675,   4889, 10897, 5629,
                        1086, 2114, 2762, 3463,  1059, 5758, 8684, 5666, 1046, 3955,  4334, 2952,  944,
                        5187, 8361, 5908, 777,   3043, 3984, 3422, 897,  6376, 10208, 5507, 1117,  4148,
                        3967, 3119, 904,  3798,  9781, 5211, 902,  3343, 4289, 2839,  1008, 5395};

std::string error_of(const auto& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "none";
}

TEST(Demand, OneExpertOnAServerIsItsOwnRow) {
  const Tokens tokens = tokens_of(8, kTokens);
  EXPECT_EQ(tokens.row_sum, 32768u);
  const Counts servers = server_tokens(tokens, {.tensor_parallel = 8});
  ASSERT_EQ(servers.size(), 64u);
  EXPECT_EQ(servers[0 * 8 + 0], 0u) << "what stays on a server is left out";
  EXPECT_EQ(servers[0 * 8 + 7], 8u * 6050) << "each of eight GPUs sends its part";
  const Counts demand = pair_demand(servers, 8);
  EXPECT_EQ(demand[0 * 8 + 1], 8u * 14616);
  EXPECT_EQ(demand[7 * 8 + 0], 8u * 15831);
  EXPECT_EQ(std::accumulate(demand.begin(), demand.end(), std::uint64_t{}) / 2, 8u * 228839);
  EXPECT_EQ(pair_demand(servers, 8, Duplex::max)[0 * 8 + 7], 8u * 9781);
}

TEST(Demand, TwoExpertsOnAServerAreAdded) {
  const Counts demand = pair_demand(server_tokens(tokens_of(8, kTokens), {.tensor_parallel = 4}), 4);
  const std::uint64_t expected[] = {41209, 41799, 43521, 22723, 21891, 27618};
  std::size_t at = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = i + 1; j < 4; ++j) EXPECT_EQ(demand[i * 4 + j], 4 * expected[at++]);
  }
}

TEST(Demand, AnExpertMaySpanServers) {
  // Two experts of 16 GPUs each: halves of a group talk to halves.
  const Counts found = server_tokens(tokens_of(2, {6, 4, 3, 7}), {.tensor_parallel = 16});
  ASSERT_EQ(found.size(), 16u);
  EXPECT_EQ(found[0 * 4 + 2], 8u * 4);
  EXPECT_EQ(found[1 * 4 + 3], 8u * 4);
  EXPECT_EQ(found[2 * 4 + 0], 8u * 3);
  EXPECT_EQ(found[0 * 4 + 3], 0u);
}

TEST(Demand, BytesAreRoundedUpAndExact) {
  const Tokens tokens = tokens_of(8, kTokens);
  EXPECT_EQ(gpu_bytes(tokens, 0, 7, 32768), 6050u);
  EXPECT_EQ(gpu_bytes(tokens, 0, 7, 32769), 6051u);
  const std::uint64_t most = ~0ull;  // beyond what a double, or 64 bits of the product, could hold
  EXPECT_EQ(gpu_bytes(tokens, 0, 0, most),
            static_cast<std::uint64_t>((static_cast<unsigned __int128>(most) * 9810 + 32767) / 32768));
  EXPECT_EQ(gpu_bytes(tokens_of(2, {0, 5, 5, 0}), 0, 0, 100), 0u);
}

TEST(Demand, RefusesWeightsThatAreNone) {
  EXPECT_EQ(error_of([] { tokens_of(2, {1, 2, 3}); }), "circuits: weights have 3 entries, not 2 x 2");
  EXPECT_EQ(error_of([] { tokens_of(2, {1, 2, 3, 1}); }),
            "circuits: weights of row 1 sum to 4, those of row 0 to 3; all rows have one sum");
  EXPECT_EQ(error_of([] { tokens_of(2, {0, 0, 0, 0}); }), "circuits: weights are all 0");
  EXPECT_EQ(error_of([] { tokens_of(1, {1ull << 41}); }), "circuits: weights of row 0 are above 2^40");
  EXPECT_NE(error_of([] { server_tokens(tokens_of(1, {1}), {.tensor_parallel = 0}); }), "none");
  EXPECT_NE(error_of([] { pair_demand(Counts{1, 2}, 2); }), "none");
}

}  // namespace
}  // namespace loomnet::circuits
