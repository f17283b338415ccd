// Changes of a network that are planned for a time of their own: faults, repairs, reconverged tables.
#pragma once

#include <memory>
#include <vector>

#include "clock/event_queue.hpp"
#include "engine/link_change.hpp"
#include "switch/program.hpp"

namespace loomnet {

class Network;

class PlannedChanges final : public EventHandler {
 public:
  PlannedChanges(Network& network, EventQueue& events);
  void add(Picoseconds at, const LinkChange& change);
  void add(Picoseconds at, NodeId node, std::shared_ptr<const TableBatch> tables);
  void on_event(std::uint64_t row, Picoseconds) override;

 private:
  struct Row {
    LinkChange change;
    NodeId node;
    std::shared_ptr<const TableBatch> tables;  // of the switch `node`; null: the row is a link's
  };
  Network& network_;
  EventQueue& events_;
  ObjectId id_;
  std::vector<Row> rows_;
};

}  // namespace loomnet
