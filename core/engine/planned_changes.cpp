// Keeps planned changes and applies each at its time.
#include "engine/planned_changes.hpp"

#include "engine/network.hpp"

namespace loomnet {

PlannedChanges::PlannedChanges(Network& network, EventQueue& events)
    : network_(network), events_(events), id_(events.add(*this)) {}

void PlannedChanges::add(Picoseconds at, const LinkChange& change) {
  rows_.push_back({change, 0, nullptr});
  events_.schedule(at, id_, rows_.size() - 1);
}

void PlannedChanges::add(Picoseconds at, NodeId node, std::shared_ptr<const TableBatch> tables) {
  rows_.push_back({{}, node, std::move(tables)});
  events_.schedule(at, id_, rows_.size() - 1);
}

void PlannedChanges::on_event(std::uint64_t row, Picoseconds) {
  Row& planned = rows_[row];
  if (planned.tables) {
    network_.set_tables(planned.node, std::move(planned.tables));
  } else {
    network_.apply(planned.change);
  }
}

}  // namespace loomnet
