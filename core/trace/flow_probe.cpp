// Columns are found once, when a sender is added; a sample only writes numbers.
#include "trace/flow_probe.hpp"

#include <algorithm>
#include <limits>

namespace loomnet {
namespace {

struct Names final : Observer {
  void value(std::string_view name, double) override { names.emplace_back(name); }
  std::vector<std::string> names;
};

}  // namespace

class FlowProbe::Filler final : public Observer {
 public:
  Filler(std::span<double> row, const std::vector<std::size_t>& columns) : row_(row), columns_(columns) {}
  void value(std::string_view, double value) override {
    if (next_ < columns_.size()) row_[columns_[next_++]] = value;
  }

 private:
  std::span<double> row_;
  const std::vector<std::size_t>& columns_;
  std::size_t next_ = 0;
};

void FlowProbe::add(const std::vector<Sender>& senders) {
  for (const Sender& sender : senders) {
    const std::size_t parts = sender.transport->state_parts(sender.qp);
    for (std::size_t part = 0; part < parts; ++part) {
      Names found;
      sender.transport->state(sender.qp, part, found);
      std::vector<std::size_t> columns;
      for (const std::string& name : found.names) {
        const auto [it, fresh] = known_.try_emplace(name, names_.size());
        if (fresh) names_.push_back(name);
        columns.push_back(it->second);
      }
      rows_.push_back({senders_.size(), part});
      columns_.push_back(std::move(columns));
    }
    senders_.push_back(sender);
  }
}

void FlowProbe::take(std::span<double> out) const {
  std::fill(out.begin(), out.end(), std::numeric_limits<double>::quiet_NaN());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    Filler filler(out.subspan(i * names_.size(), names_.size()), columns_[i]);
    const Sender& sender = senders_[rows_[i].sender];
    sender.transport->state(sender.qp, rows_[i].part, filler);
  }
}

}  // namespace loomnet
