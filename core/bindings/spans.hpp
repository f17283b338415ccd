// Iterations of a job for Python, from a cursor on: what is new costs, not what was.
#pragma once

#include <algorithm>
#include <cstddef>

#include "bindings/bindings.hpp"

namespace loomnet {

struct SpanRow {
  std::int64_t begin_ps, end_ps;
};
using Spans = pybind11::array;  // its rows have no name that a stub could say
inline constexpr const char* kSpansDoc =
    "(begin_ps, end_ps) of the finished iterations from number `since` on, the first being 0: a numpy structured array.";

// `all`: a vector of what has `begin` and `end`.
template <class All>
std::vector<SpanRow> spans_from(const All& all, std::size_t since) {
  std::vector<SpanRow> found;
  for (std::size_t i = since; i < all.size(); ++i) found.push_back({all[i].begin.count, all[i].end.count});
  return found;
}
inline Spans spans_array(const std::vector<SpanRow>& rows) {
  pybind11::array_t<SpanRow> out(static_cast<pybind11::ssize_t>(rows.size()));
  std::copy(rows.begin(), rows.end(), out.mutable_data());
  return out;
}

}  // namespace loomnet
