// A job's finished iterations as an array for Python: those from number `since` on. A caller that asks again and
// again gets each iteration once, so the cost of all calls grows with the iterations and not with their square.
#pragma once

#include <algorithm>
#include <cstddef>

#include "bindings/bindings.hpp"

namespace loomnet {

struct SpanRow {
  std::int64_t begin_ps, end_ps;
};
using Spans = pybind11::array;  // not array_t<SpanRow>: the Python stub has no name for that type
inline constexpr const char* kSpansDoc =
    "(begin_ps, end_ps) of the finished iterations from number `since` on, the first being 0: a numpy structured array.";

// `All`: a vector whose elements have the members `begin` and `end`, both Picoseconds.
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
