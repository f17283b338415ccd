#include "moe/region_driver.hpp"

#include <algorithm>
#include <stdexcept>

#include "clock/random.hpp"

namespace loomnet::moe {

using circuits::RegionController;

RegionDriver::RegionDriver(Network& network, RegionTraffic& traffic, NodeId panel,
                           const circuits::RegionOptions& options, std::vector<NicPort> nics, Listener& listener)
    : network_(network),
      traffic_(traffic),
      panel_(panel),
      options_(options),
      nics_(std::move(nics)),
      listener_(listener),
      id_(network.events().add(*this)),
      works_(nics_.size(), 1) {
  if (!network.panel(panel)) throw std::invalid_argument("moe: a region's panel is a panel");
  if (nics_.size() != std::size_t{options.servers} * options.alpha ||
      options.first_port + nics_.size() > network.ports(panel)) {
    throw std::invalid_argument("moe: " + std::to_string(options.servers) + " servers with " +
                                std::to_string(options.alpha) + " optical NICs each need " +
                                std::to_string(options.servers * options.alpha) + " ports of a panel");
  }
  for (std::size_t nic = 0; nic < nics_.size(); ++nic) {
    const Endpoint far = network.far_end({nics_[nic].host, nics_[nic].port});
    if (far.node != panel || far.port != options.first_port + nic) {
      throw std::invalid_argument("moe: optical NIC " + std::to_string(nic % options.alpha) + " of server " +
                                  std::to_string(nic / options.alpha) + " is not at port " +
                                  std::to_string(options.first_port + nic) + " of the panel");
    }
  }
  traffic.set_optical_nics(nics_);
  network.add_watcher(*this);
  restart(network.now());
}

RegionDriver::~RegionDriver() { network_.remove_watcher(*this); }

std::vector<circuits::ServerPair> RegionDriver::all_pairs() const {
  std::vector<circuits::ServerPair> found;
  for (std::uint32_t i = 0; i < options_.servers; ++i) {
    for (std::uint32_t j = i + 1; j < options_.servers; ++j) found.emplace_back(i, j);
  }
  return found;
}

void RegionDriver::restart(Picoseconds now) {
  // If circuits are still dark from a request of the controller before, start when they have light.
  if (const Picoseconds lit = lit_from(now); lit > now) return network_.events().schedule(lit, id_, kRestart);
  controller_.emplace(options_, static_cast<circuits::RegionWorld&>(*this));
  known_generation_ = generation();
  std::ranges::fill(works_, 1);
  traffic_.release(all_pairs(), controller_->ports(), now);
  look_at_links(now);
  if (last_) {
    last_->use.hidden = {};
    controller_->demand(last_->key, last_->bytes, now, last_->any, last_->use);
    after(now);
  }
}

void RegionDriver::stop(Picoseconds now) {
  if (!controller_) return;
  after(now);
  controller_.reset();
  const std::size_t ports = nics_.size();
  traffic_.release(all_pairs(), {options_.servers, options_.alpha, std::vector<std::int32_t>(ports, circuits::kNoPeer)},
                   now);
  listener_.circuits_changed(now);
}

void RegionDriver::demand(const circuits::DemandKey& key, std::span<const std::uint64_t> bytes, Picoseconds now,
                          bool any, const circuits::Use& use) {
  last_ = {key, {bytes.begin(), bytes.end()}, any, use};
  if (!controller_) return;
  controller_->demand(key, bytes, now, any, use);
  after(now);
}

void RegionDriver::drained(Picoseconds now) {
  if (!controller_ || controller_->state() != RegionController::State::drain) return;
  controller_->drained(now);
  after(now);
}

void RegionDriver::on_event(std::uint64_t what, Picoseconds now) {
  if (what == kRestart) return controller_ ? void() : restart(now);
  if (what == kLook) return look_at_panel(now);
  if (now < wake_) return;
  wake_ = kNever;
  if (!controller_) return;
  controller_->advance(now);
  after(now);
}

// To be called after every call of the controller: takes its events, its refusal and its next time.
void RegionDriver::after(Picoseconds now) {
  const std::uint64_t generation = network_.panel(panel_)->device().generation();
  for (const circuits::RegionEvent& event : controller_->take_events()) {
    if (events_.size() < kMostEvents) {
      events_.push_back({event, generation});
    } else {
      ++events_left_out_;
    }
  }
  if (!controller_->refusal().empty()) refusal_ = controller_->refusal();
  const Picoseconds next = controller_->next_time();
  if (next != kNever && next != wake_) {
    wake_ = next;
    network_.events().schedule(next, id_, 0);
  }
  listener_.circuits_changed(now);
}

std::vector<panel::CrossConnect> RegionDriver::cross_connects() {
  return network_.panel(panel_)->device().cross_connects();
}

Picoseconds RegionDriver::patch(std::span<const panel::CrossConnect> remove, std::span<const panel::CrossConnect> add,
                                std::span<const panel::Port> all_dark, Picoseconds now) {
  patching_ = true;
  try {
    network_.operate(panel_, [&](panel::PanelDevice& device, Picoseconds) {
      device.change(remove, add, panel::Mode::update, now, all_dark);
    });
  } catch (...) {
    patching_ = false;
    throw;
  }
  patching_ = false;
  known_generation_ = generation();
  ++patches_;
  const panel::PanelDevice& device = network_.panel(panel_)->device();
  std::uint64_t map = 0;
  for (std::size_t nic = 0; nic < nics_.size(); ++nic) {
    map = hash_key(map, nic, static_cast<std::uint64_t>(device.target({port_of(nic), false}) + 1));
  }
  const auto at = std::ranges::lower_bound(maps_, map);
  if (at == maps_.end() || *at != map) maps_.insert(at, map);
  keep_map(now);
  return lit_from(now);
}

void RegionDriver::keep_maps(std::size_t most) {
  most_maps_ = most;
  keep_map(network_.now());  // the circuits before the first request
}

void RegionDriver::keep_map(Picoseconds now) {
  if (kept_maps_.size() >= most_maps_) return;
  const panel::PanelDevice& device = network_.panel(panel_)->device();
  PatchedMap map{now, lit_from(now), {}};
  for (std::size_t nic = 0; nic < nics_.size(); ++nic) {
    const std::int32_t far = device.target({port_of(nic), false});
    map.peer.push_back(far < 0 ? circuits::kNoPeer : far - static_cast<std::int32_t>(options_.first_port));
  }
  kept_maps_.push_back(std::move(map));
}

// When all circuits that there are have light.
Picoseconds RegionDriver::lit_from(Picoseconds now) {
  const panel::PanelDevice& device = network_.panel(panel_)->device();
  Picoseconds lit = now;
  for (std::size_t nic = 0; nic < nics_.size(); ++nic) {
    if (device.target({port_of(nic), false}) >= 0) lit = std::max(lit, device.dark_until(port_of(nic)));
  }
  return lit;
}

// Means of the panel's profile: a controller does not know what will be drawn.
Picoseconds RegionDriver::dark_time(std::size_t cross_connects) const {
  if (cross_connects == 0) return {};
  const panel::DeviceOptions& options = network_.panel(panel_)->device().options();
  const Picoseconds dark = traffic_.drain_time() + options.profile.dark.mean(cross_connects);
  return options.carrier == panel::Carrier::none ? dark : dark + options.profile.nic_up.mean(1);
}

void RegionDriver::release(std::span<const circuits::ServerPair> pairs, const circuits::PortMap& ports,
                           Picoseconds now) {
  traffic_.release(pairs, ports, now);
}

circuits::PortMap RegionDriver::ports() const {
  if (controller_) return controller_->ports();
  return {options_.servers, options_.alpha, std::vector<std::int32_t>(nics_.size(), circuits::kNoPeer)};
}

// Light of this NIC reaches the panel and the panel's reaches it, and its port there is open.
bool RegionDriver::works(std::size_t nic) const {
  const panel::PanelDevice& device = network_.panel(panel_)->device();
  for (const panel::Simplex end : {panel::Simplex{port_of(nic), false}, panel::Simplex{port_of(nic), true}}) {
    if (device.override_of(end) != panel::Override::normal || device.shutter_closed(end)) return false;
    if (device.status(end, network_.now()) == panel::Status::failed) return false;
  }
  const std::uint32_t half = network_.egress_half(nics_[nic].host, nics_[nic].port);
  return network_.half(half / 2, true).up() && network_.half(half / 2, false).up();
}

void RegionDriver::look_at_links(Picoseconds now) {
  if (!controller_) return;
  for (std::size_t nic = 0; nic < nics_.size(); ++nic) {
    if (works(nic) == (works_[nic] != 0)) continue;
    works_[nic] = works(nic);
    controller_->set_port(static_cast<std::uint32_t>(nic / options_.alpha),
                          static_cast<std::uint32_t>(nic % options_.alpha), works_[nic] != 0, now);
    after(now);
  }
}

// After another client's request. It is looked at when the network has told all its watchers of it.
void RegionDriver::circuits_changed(NodeId panel) {
  if (panel != panel_ || patching_ || !controller_) return;
  bool changed = generation() != known_generation_;
  for (std::size_t nic = 0; nic < nics_.size() && !changed; ++nic) changed = works(nic) != (works_[nic] != 0);
  if (changed) network_.events().schedule(network_.now(), id_, kLook);
}

void RegionDriver::look_at_panel(Picoseconds now) {
  if (!controller_) return;
  known_generation_ = generation();
  controller_->circuits_changed(now);
  after(now);
  look_at_links(now);
}

void RegionDriver::link_changed(LinkId link) {
  const auto [a, b] = network_.ends(link);
  if (a.node == panel_ || b.node == panel_) look_at_links(network_.now());
}

}  // namespace loomnet::moe
