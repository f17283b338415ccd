// Operations that a network can sum, and the shape of ranks whose network does.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "collective/harness.hpp"

namespace loomnet::testing {

inline constexpr std::uint32_t kValues = 64;

inline StagingConfig sums(std::uint32_t window = 8, std::uint32_t slots = 7, std::uint32_t scale = 0,
                          bool floats = false) {
  return {.slots = 3,
          .slot_payload = 128,
          .channels = 8,
          .sum_slots = slots,
          .sum_values = kValues,
          .sum_window = window,
          .sum_scale = scale,
          .sum_floats = floats};
}

template <typename T>
Operation all_reduce(DataType type, std::vector<T>& in, std::vector<T>& out, ReduceOp op = ReduceOp::sum) {
  Operation o;
  o.collective = Collective::all_reduce;
  o.type = type;
  o.reduce = op;
  o.count = in.size();
  o.input = buffer(in);
  o.output = buffer(out);
  return o;
}

inline void expect_ok(World& world, JobRank r, OperationId id) {
  const OperationResult* result = world.result(r, id);
  ASSERT_NE(result, nullptr) << "unfinished on rank " << r;
  ASSERT_EQ(result->status, OperationStatus::ok) << result->message;
}

}  // namespace loomnet::testing
