// Re-patches the circuits of one region while its job runs (MixNet, SIGCOMM 2025): from a layer's demand to
// an assignment, to ports, to one request to the panel. Traffic of the circuits that change is held first,
// and goes on when there is light. It has no clock and no panel of its own: it acts through RegionWorld, which its
// driver implements.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "circuits/assignment.hpp"
#include "circuits/nic_map.hpp"
#include "circuits/worthwhile.hpp"
#include "clock/time.hpp"
#include "panel/panel_device.hpp"

namespace loomnet::circuits {

// Names the all-to-alls that a demand belongs to: those of one layer and micro-batch, forward or backward.
struct DemandKey {
  std::uint32_t iteration = 0;
  std::uint16_t layer = 0, micro_batch = 0;
  bool backward = false;
  bool guessed = false;  // asked for before the layer's gate has routed its tokens
  friend auto operator<=>(const DemandKey&, const DemandKey&) = default;
};

using ServerPair = std::pair<std::uint32_t, std::uint32_t>;  // the lower number first

class RegionWorld {
 public:
  virtual ~RegionWorld() = default;
  // Stops traffic between these servers on their circuits: no transfer begins there, and those under way pause.
  virtual void hold(std::span<const ServerPair> pairs, Picoseconds now) = 0;
  // Whether packets of held transfers are still on the circuits of these pairs.
  virtual bool in_flight(std::span<const ServerPair> pairs) = 0;
  virtual std::vector<panel::CrossConnect> cross_connects() = 0;  // of the whole panel
  // Sends one request to the panel and returns the time at which all ports that it darkens have light again. Throws
  // std::runtime_error or std::invalid_argument where the panel does not answer or refuses; the panel is then
  // unchanged.
  virtual Picoseconds patch(std::span<const panel::CrossConnect> remove, std::span<const panel::CrossConnect> add,
                            std::span<const panel::Port> all_dark, Picoseconds now) = 0;
  virtual Picoseconds lit_from(Picoseconds now) = 0;  // when all of the region's circuits have light
  // How long a request that brings so many cross-connects is expected to take, until they have light.
  virtual Picoseconds dark_time(std::size_t cross_connects) const = 0;
  // Transfers of these pairs go on, by the circuits of `ports` or without.
  virtual void release(std::span<const ServerPair> pairs, const PortMap& ports, Picoseconds now) = 0;
};

struct RegionOptions {
  std::uint32_t servers = 0, nics = 8, alpha = 6;
  Rule rule = Rule::skip;
  Ties ties = Ties::free;
  std::uint64_t seed = 0;                  // rule random adds the number of the request to it
  // If set, it replaces `rule`: it takes the demand and the free ports of each server and returns an assignment.
  std::function<Assignment(std::span<const std::uint64_t>, std::span<const std::uint32_t>)> assigner{};
  // If set, a request is patched only where that saves more than it costs; else each one is.
  std::optional<Weighing> worthwhile{};
  bool all_dark = false;                   // each request darkens the whole region, as in the authors' simulator
  Picoseconds drain_limit = milliseconds(10);  // after it the panel is patched, and packets still on a circuit are lost
  panel::Port first_port = 0;  // first of the region's ports at its panel
};

struct RegionEvent {
  // `outside`: another client has patched the panel.
  enum class Kind : std::uint8_t { demand, drain, apply, lit, release, fail, outside } kind = Kind::demand;
  Picoseconds at;
  DemandKey key;
  std::uint32_t changed = 0;  // circuits that go or come
  Picoseconds dark;  // of apply and outside
  friend bool operator==(const RegionEvent&, const RegionEvent&) = default;
};

class RegionController {
 public:
  enum class State : std::uint8_t { live, drain, dark };

  // Throws std::invalid_argument.
  RegionController(const RegionOptions& options, RegionWorld& world);

  // Asks for circuits. `bytes` is what pairs of servers exchange: entry i * servers + j, symmetrical. Does nothing
  // where the circuits of this key are patched already or are being patched, or, for a layer's backward pass, those of
  // its forward pass with the same demand: the last layer of a stage is patched once for both. `any`: the rule is
  // random, whatever the demand. `use`: what the circuits are for, where the options say `worthwhile`. Throws
  // std::invalid_argument.
  void demand(const DemandKey& key, std::span<const std::uint64_t> bytes, Picoseconds now, bool any = false,
              Use use = {});
  // To be called when a packet or transfer that in_flight() counts has arrived: the drain may be over.
  void drained(Picoseconds now);
  Picoseconds next_time() const { return state_ == State::live ? kNever : until_; }
  void advance(Picoseconds now);
  // Another client of the panel may have changed its circuits. They are left as they are until the next demand:
  // what went by circuits that have gone is held until those that are there have light, and goes on by them or
  // by the electrical fabric.
  void circuits_changed(Picoseconds now);
  // A part has failed or works again. The last demand is assigned anew to the parts that work.
  void set_server(std::uint32_t server, bool works, Picoseconds now);
  void set_port(std::uint32_t server, std::uint32_t optical, bool works, Picoseconds now);
  void set_panel(bool works, Picoseconds now);  // without it all goes by the electrical fabric

  State state() const { return state_; }
  const PortMap& ports() const { return ports_; }  // as patched
  std::uint32_t circuits(std::uint32_t i, std::uint32_t j) const;
  const DemandKey& key() const { return wanted_.key; }
  // Whether the circuits of this key are patched and have light.
  bool ready(const DemandKey& key) const { return state_ == State::live && assigned_ && wanted_.key == key; }
  std::vector<RegionEvent> take_events() { return std::exchange(events_, {}); }
  const std::string& refusal() const { return refusal_; }  // why the panel did not take the last request

 private:
  struct Wanted {
    DemandKey key;
    std::vector<std::uint64_t> bytes;
    bool any = false;
    Use use;
    Picoseconds asked;  // its use.hidden counts from here
  };
  struct Ports {
    std::vector<std::uint32_t> free;  // of each server
    std::vector<std::uint8_t> broken;  // by port
  };
  // Whether a backward pass of this demand comes right after the forward pass of its layer, whose circuits it takes.
  bool turns_back(const DemandKey& key, std::span<const std::uint64_t> bytes, bool any) const;
  std::set<ServerPair> look();
  void settle(Picoseconds now);
  ServerPair pair_of(std::size_t port, std::size_t other) const;  // of ports of the region
  void hold(const std::set<ServerPair>& pairs, Picoseconds now);
  Ports working() const;
  Assignment assigned(const Wanted& wanted, const Ports& ports) const;
  PortMap mapped(const Assignment& found, const Wanted& wanted, const Ports& ports) const;
  PortMap plan(const Wanted& wanted);
  // The request at hand keeps the circuits that there are because others are not worthwhile.
  bool stays() const { return worthwhile_ && planned_.peer == ports_.peer; }
  void take(Wanted wanted, Picoseconds now);
  void apply(Picoseconds now);
  void go_live(Picoseconds now);
  void again(Picoseconds now);
  std::vector<panel::CrossConnect> mine() const;  // the panel's cross-connects whose both ports are the region's
  void tell(RegionEvent::Kind kind, Picoseconds now, std::uint32_t changed = 0, Picoseconds dark = {});

  RegionOptions options_;
  RegionWorld& world_;
  ServerNics nics_;
  State state_ = State::live;
  bool assigned_ = false;  // there has been a demand
  bool disturbed_ = false;  // since then another client has changed circuits, or the panel has refused it
  bool panel_works_ = true;
  std::vector<std::uint8_t> broken_server_, broken_port_;
  Wanted wanted_;
  std::optional<Wanted> next_;  // newest demand that came while another was being patched
  PortMap ports_, planned_;
  std::vector<ServerPair> held_;
  Picoseconds until_;  // state drain: when its limit is over; state dark: when the light is back
  std::uint64_t requests_ = 0;
  std::optional<Worthwhile> worthwhile_;
  std::vector<RegionEvent> events_;
  std::string refusal_;
};

}  // namespace loomnet::circuits
