// Connects a region's controller to a network: it patches the region's panel, holds traffic of circuits that change,
// and tells the controller of links that go down.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "circuits/region_controller.hpp"
#include "engine/network.hpp"
#include "moe/region_traffic.hpp"

namespace loomnet::moe {

struct CircuitsEvent {
  circuits::RegionEvent event;
  std::uint64_t generation = 0;  // of the panel
};

// The circuits that a request has patched, at time `at`; they have light from `lit` on.
struct PatchedMap {
  Picoseconds at{}, lit{};
  std::vector<std::int32_t> peer;  // as PortMap has it
};

class RegionDriver final : private circuits::RegionWorld, public EventHandler, private NetworkWatcher {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void circuits_changed(Picoseconds now) = 0;  // the controller's state or circuits have changed
  };

  // `nics`: entry i * alpha + k is optical NIC k of server i, whose link ends at port first_port + i * alpha + k of the
  // panel. Network, traffic and listener must outlive this object. Throws std::invalid_argument.
  RegionDriver(Network& network, RegionTraffic& traffic, NodeId panel, const circuits::RegionOptions& options,
               std::vector<NicPort> nics, Listener& listener);
  ~RegionDriver() override;

  void demand(const circuits::DemandKey& key, std::span<const std::uint64_t> bytes, Picoseconds now, bool any = false,
              const circuits::Use& use = {});
  // Whether exchanges of this key may begin: its circuits have light, or there is no controller to patch them.
  bool ready(const circuits::DemandKey& key) const { return !controller_ || controller_->ready(key); }
  // Whether nothing is being patched.
  bool live() const { return !controller_ || controller_->state() == circuits::RegionController::State::live; }
  void drained(Picoseconds now);

  // Ends the controller, in whatever state it is. All held traffic continues by the electrical fabric.
  void stop(Picoseconds now);
  // Starts a new controller. It reads the circuits off the panel and hears the ranks' last demand again.
  void restart(Picoseconds now);

  const std::vector<CircuitsEvent>& events() const { return events_; }
  std::size_t events_left_out() const { return events_left_out_; }  // beyond those that are kept
  // The circuits that are in use: for each port of the region the port that it is joined to.
  circuits::PortMap ports() const;
  std::uint64_t generation() const { return network_.panel(panel_)->device().generation(); }
  std::uint64_t patches() const { return patches_; }  // requests that reached the panel
  std::size_t maps() const { return maps_.size(); }  // distinct ones among them
  // From now on keeps up to `most` patched maps for kept_maps(). Without this call none are kept.
  void keep_maps(std::size_t most);
  const std::vector<PatchedMap>& kept_maps() const { return kept_maps_; }
  const std::string& refusal() const { return refusal_; }  // of the last request that the panel did not take

  void on_event(std::uint64_t what, Picoseconds now) override;

 private:
  static constexpr std::size_t kMostEvents = 1 << 16;
  // Events, beside 0: the controller's time has come.
  static constexpr std::uint64_t kRestart = 1, kLook = 2;

  void hold(std::span<const circuits::ServerPair> pairs, Picoseconds now) override { traffic_.hold(pairs, now); }
  bool in_flight(std::span<const circuits::ServerPair> pairs) override { return traffic_.in_flight(pairs); }
  std::vector<panel::CrossConnect> cross_connects() override;
  Picoseconds patch(std::span<const panel::CrossConnect> remove, std::span<const panel::CrossConnect> add,
                    std::span<const panel::Port> all_dark, Picoseconds now) override;
  void release(std::span<const circuits::ServerPair> pairs, const circuits::PortMap& ports, Picoseconds now) override;
  void link_changed(LinkId link) override;
  void circuits_changed(NodeId panel) override;
  void tables_changed(NodeId) override {}
  bool works(std::size_t nic) const;
  panel::Port port_of(std::size_t nic) const { return static_cast<panel::Port>(options_.first_port + nic); }
  Picoseconds lit_from(Picoseconds now) override;
  Picoseconds dark_time(std::size_t cross_connects) const override;
  void keep_map(Picoseconds now);
  void look_at_links(Picoseconds now);
  void look_at_panel(Picoseconds now);
  void after(Picoseconds now);
  std::vector<circuits::ServerPair> all_pairs() const;

  Network& network_;
  RegionTraffic& traffic_;
  NodeId panel_;
  circuits::RegionOptions options_;
  std::vector<NicPort> nics_;
  Listener& listener_;
  ObjectId id_;
  std::vector<std::uint8_t> works_;  // by NIC, as the controller knows it
  std::uint64_t known_generation_ = 0;  // of the panel; another one is of another client's request
  bool patching_ = false;  // what changes at the panel now is our own request
  struct Demand {
    circuits::DemandKey key;
    std::vector<std::uint64_t> bytes;
    bool any = false;
    circuits::Use use;
  };
  std::optional<Demand> last_;  // last demand, also where there was no controller to hear it
  std::optional<circuits::RegionController> controller_;
  Picoseconds wake_ = kNever;
  std::vector<CircuitsEvent> events_;
  std::size_t events_left_out_ = 0;
  std::uint64_t patches_ = 0;
  std::size_t most_maps_ = 0;
  std::vector<PatchedMap> kept_maps_;
  std::vector<std::uint64_t> maps_;  // hashes of the maps that were patched, sorted
  std::string refusal_;
};

}  // namespace loomnet::moe
