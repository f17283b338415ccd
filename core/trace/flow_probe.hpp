// Samples the state of many senders at once, into rows of numbers under common names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transport/transport.hpp"

namespace loomnet {

class FlowProbe {
 public:
  struct Sender {
    const Transport* transport = nullptr;  // outlives the probe
    QpNumber qp = 0;
  };
  struct Row {
    std::size_t sender = 0, part = 0;
  };
  explicit FlowProbe(const std::vector<Sender>& senders = {}) { add(senders); }
  // Rows and names follow those that are there. Throws std::out_of_range for an unknown queue pair.
  void add(const std::vector<Sender>& senders);

  const std::vector<Row>& rows() const { return rows_; }
  // Of all rows, in order of their first appearance. A transport's names never change.
  const std::vector<std::string>& names() const { return names_; }
  // `out`: rows().size() by names().size() values, row by row; NaN where a sender has no such value.
  void take(std::span<double> out) const;

 private:
  class Filler;
  std::vector<Sender> senders_;
  std::vector<Row> rows_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::size_t> known_;  // the number of each name
  std::vector<std::vector<std::size_t>> columns_;  // of each row's values, in their order
};

}  // namespace loomnet
