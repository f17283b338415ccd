// A bare NIC for transport tests: memory regions with real bytes, a record of everything the
// transport reported, and nothing of any transport.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "packet/packet.hpp"
#include "testbed_transcript.hpp"
#include "transport/transport.hpp"

namespace loomnet::testbed {

struct Region {
  std::uint32_t key = 0;
  std::uint64_t base = 0;
  bool writable = true;
  std::vector<std::uint8_t> bytes;
};

struct Done {
  Completion completion;
  Picoseconds at{};
};
struct Arrived {
  Arrival arrival;
  Picoseconds at{};
};

class Nic final : public TransportSink {
 public:
  struct Port {
    bool up = true;
    bool pulling = false;  // a pull is scheduled for `pull_at`
    Picoseconds pull_at{};
    Picoseconds free_at{};  // the link is clocking a packet out until then
    std::uint32_t generation = 0;
  };
  // What the surrounding bed does for its NICs.
  struct Hooks {
    std::function<PacketPtr()> allocate;
    std::function<void(HostId, PlanePort)> ready;
    std::function<void(HostId, Line::What, std::uint32_t, std::uint32_t)> record;
    std::function<Picoseconds()> now;
  };

  Nic(HostId host, std::size_t planes, Hooks hooks) : host(host), ports(planes), hooks_(std::move(hooks)) {}

  // Registers `length` zero bytes at `base`; they live as long as the NIC.
  Region& add_region(std::uint32_t key, std::uint64_t base, std::size_t length) {
    regions_.push_back(std::make_unique<Region>(Region{key, base, true, {}}));
    regions_.back()->bytes.resize(length);
    return *regions_.back();
  }

  PacketPtr allocate() override { return hooks_.allocate(); }
  bool place(QpNumber qp, std::uint32_t key, std::uint64_t address, const Payload& payload) override {
    if (payload.length == 0) return true;
    for (auto& region : regions_) {
      if (region->key != key) continue;
      const std::uint64_t size = region->bytes.size();
      if (!region->writable || address < region->base || payload.length > size ||
          address - region->base > size - payload.length) {
        break;
      }
      if (payload.data) {
        std::memcpy(region->bytes.data() + (address - region->base), payload.data, payload.length);
      }
      placed_bytes += payload.length;
      ++placements;
      if (on_place) on_place(qp, address, payload);
      return true;
    }
    ++access_errors;
    return false;
  }
  void complete(const Completion& completion) override {
    completions.push_back({completion, hooks_.now()});
    hooks_.record(host, Line::What::completed, static_cast<std::uint32_t>(completion.id),
                  static_cast<std::uint32_t>(completion.status));
    if (on_complete) on_complete(completion);
  }
  void arrived(const Arrival& arrival) override {
    arrivals.push_back({arrival, hooks_.now()});
    hooks_.record(host, Line::What::arrived, arrival.immediate, arrival.length);
    if (on_arrival) on_arrival(arrival);
  }
  void event(const TransportEvent& event) override {
    events.push_back(event);
    hooks_.record(host, Line::What::event, static_cast<std::uint32_t>(event.kind), event.value);
  }
  void port_ready(PlanePort port) override {
    if (port < ports.size()) hooks_.ready(host, port);
  }

  // Value of a transport's counter by its name; 0 and a loud failure for a name it does not have.
  std::uint64_t counter(std::string_view name) const {
    std::vector<TransportCounter> all;
    transport->counters(all);
    for (const TransportCounter& c : all) {
      if (c.name == name) return c.value;
    }
    throw std::out_of_range("transport has no counter " + std::string(name));
  }

  HostId host;
  std::vector<Port> ports;
  std::unique_ptr<Transport> transport;
  Picoseconds deadline_at = kNever;  // earliest deadline event in the bed's queue
  std::vector<Done> completions;
  std::vector<Arrived> arrivals;
  std::vector<TransportEvent> events;
  std::uint64_t placed_bytes = 0, placements = 0, access_errors = 0, fcs_drops = 0;
  std::function<void(QpNumber, std::uint64_t, const Payload&)> on_place;
  std::function<void(const Completion&)> on_complete;
  std::function<void(const Arrival&)> on_arrival;  // called as it is delivered: check the bytes here

 private:
  std::vector<std::unique_ptr<Region>> regions_;
  Hooks hooks_;
};

}  // namespace loomnet::testbed
