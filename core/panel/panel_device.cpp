// Applies requests to an optical circuit switch and derives status, light and carrier of its ports.
#include "panel/panel_device.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "panel/light.hpp"

namespace loomnet::panel {
namespace {

constexpr std::uint64_t kDarkPurpose = 0xda2c, kNicPurpose = 0x21c;

// Forwarding entries hold whole nanoseconds. Dark times are rounded up to them, so that the device and its entries
// agree on when the light is back.
Picoseconds whole_ns(Picoseconds at) { return {(at.count + 999) / 1000 * 1000}; }

std::string name(Port port, bool out) { return std::to_string(port + 1) + (out ? "B" : "A"); }

}  // namespace

PanelDevice::PanelDevice(std::size_t ports, const DeviceOptions& options)
    : options_(options),
      in_(ports),
      out_(ports),
      hosts_(ports),
      dark_random_(options.seed, 0, kDarkPurpose),
      nic_random_(options.seed, 0, kNicPurpose) {
  if (ports > kMaxPorts) {
    throw std::invalid_argument("panel: " + std::to_string(ports) + " ports, the most is " + std::to_string(kMaxPorts));
  }
  for (End& end : in_) end.level_db = kTransmitDbm;
  for (Host& host : hosts_) host.told = options.carrier == Carrier::none;
}

void PanelDevice::check(std::span<const CrossConnect> named) const {
  for (const CrossConnect& one : named) {
    for (const bool out : {false, true}) {
      const Port port = out ? one.b : one.a;
      if (port >= ports()) {
        throw std::invalid_argument("panel: port " + name(port, out) + " is not there; it has ports 1 to " +
                                    std::to_string(ports()));
      }
    }
  }
}

std::uint64_t PanelDevice::change(std::span<const CrossConnect> remove, std::span<const CrossConnect> add, Mode mode,
                                  Picoseconds now, std::span<const Port> all_dark) {
  check(remove);
  check(add);
  for (const Port port : all_dark) check({{{port, port}}});
  advance(now);
  std::vector<std::int32_t> next(ports(), -1);
  if (mode != Mode::overwrite) {
    std::ranges::transform(in_, next.begin(), &End::peer);
    for (const CrossConnect& one : remove) {
      if (next[one.a] == one.b) next[one.a] = -1;
    }
  }
  std::vector<bool> named_in(ports()), named_out(ports());
  for (const CrossConnect& one : add) {
    if (named_in[one.a] || named_out[one.b]) {
      throw std::invalid_argument("panel: port " + name(named_in[one.a] ? one.a : one.b, !named_in[one.a]) +
                                  " is named twice; a port is in one cross-connect");
    }
    named_in[one.a] = named_out[one.b] = true;
    const std::int32_t user = out_[one.b].peer;
    const bool taken_out = user >= 0 && user != one.a && next[static_cast<std::size_t>(user)] == one.b;
    if (mode == Mode::safe && (taken_out || (next[one.a] >= 0 && next[one.a] != one.b))) {
      const Port port = taken_out ? one.b : one.a;
      throw std::invalid_argument("panel: port " + name(port, taken_out) + " is in another cross-connect");
    }
    if (taken_out) next[static_cast<std::size_t>(user)] = -1;
    next[one.a] = one.b;
  }

  // `changed`: ingress ports whose cross-connect changes. `darkened`: ingress ports whose light goes dark.
  std::vector<Port> changed, darkened;
  std::vector<bool> dark(ports());
  for (const Port port : all_dark) {
    dark[port] = true;
    if (out_[port].peer >= 0) dark[static_cast<std::size_t>(out_[port].peer)] = true;
  }
  for (std::size_t port = 0; port < ports(); ++port) {
    const bool moves = next[port] != in_[port].peer;
    if (moves) changed.push_back(static_cast<Port>(port));
    if (next[port] >= 0 && (moves || dark[port])) darkened.push_back(static_cast<Port>(port));
  }
  if (changed.empty() && darkened.empty()) return generation_;
  ++generation_;

  std::vector<Simplex> touched;
  for (const Port a : changed) {
    touched.push_back({a, false});
    if (in_[a].peer < 0) continue;
    const auto old = static_cast<Port>(in_[a].peer);
    touched.push_back({old, true});
    out_[old].peer = -1;
    in_[a].passed = false;
    in_[a].generation = generation_;
  }
  for (const Port a : changed) {
    in_[a].peer = next[a];
    in_[a].generation = generation_;
    if (next[a] >= 0) out_[static_cast<std::size_t>(next[a])].peer = a;
    if (patches_.size() < kMostPatches) patches_.push_back({now, a, next[a]});
  }
  Picoseconds lasts;
  for (std::size_t i = 0; i < darkened.size(); ++i) {
    if (i == 0 || options_.dark_by_port) lasts = options_.profile.dark.sample(dark_random_, darkened.size());
    End& end = in_[darkened[i]];
    end.dark_until = whole_ns(now + lasts);
    end.passed = false;
    end.generation = generation_;
    touched.push_back({darkened[i], false});
    touched.push_back({static_cast<Port>(end.peer), true});
  }
  for (const Port a : darkened) look(a, now);
  for (const Simplex& port : touched) tell(port, now);
  return generation_;
}

void PanelDevice::set_override(Simplex port, Override value, Picoseconds now) {
  advance(now);
  end(port).override_state = value;
  look_at(port, now);
}

void PanelDevice::set_shutter(Simplex port, bool closed, Picoseconds now) {
  advance(now);
  end(port).shutter_closed = closed;
  look_at(port, now);
}

void PanelDevice::set_failed(Simplex port, bool failed, Picoseconds now) {
  advance(now);
  end(port).failed = failed;
  look_at(port, now);
}

void PanelDevice::set_attenuation(Port egress, double db, Picoseconds now) {
  if (!(db >= 0) || !std::isfinite(db)) throw std::invalid_argument("panel: an attenuation is 0 dB or more");
  advance(now);
  out_.at(egress).level_db = db;
  look_at({egress, true}, now);
}

void PanelDevice::set_transmit_power(Port ingress, double dbm, Picoseconds now) {
  if (!std::isfinite(dbm)) throw std::invalid_argument("panel: a transmitter's power is a number of dBm");
  advance(now);
  in_.at(ingress).level_db = dbm;
  look_at({ingress, false}, now);
}

void PanelDevice::advance(Picoseconds now) {
  while (!due_.empty() && due_.top().first <= now) {
    const auto [at, port] = due_.top();
    due_.pop();
    tell({port, false}, at);
    tell({port, true}, at);
  }
}

std::vector<CrossConnect> PanelDevice::cross_connects() const {
  std::vector<CrossConnect> found;
  for (std::size_t a = 0; a < ports(); ++a) {
    if (in_[a].peer >= 0) found.push_back({static_cast<Port>(a), static_cast<Port>(in_[a].peer)});
  }
  return found;
}

Status PanelDevice::status(Simplex port, Picoseconds now) const {
  const End& here = end(port);
  if (here.failed) return Status::failed;
  if (here.peer < 0) return Status::blocked;
  const End& there = end({static_cast<Port>(here.peer), !port.out});
  for (const End* one : {&here, &there}) {
    if (one->override_state != Override::normal || one->shutter_closed || one->failed) return Status::blocked;
  }
  return now < (port.out ? there : here).dark_until ? Status::tuning : Status::tuned;
}

bool PanelDevice::passes(Port ingress) const {
  return in_.at(ingress).peer >= 0 && entry(ingress, Picoseconds{}).flags == 0;
}

double PanelDevice::level(Port a, Port b) const {
  return in_[a].level_db - insertion_loss(a, b) / 100.0 - out_[b].level_db;
}

int PanelDevice::insertion_loss(Port a, Port b) const { return panel::insertion_loss(options_.seed, a, b); }

double PanelDevice::power_dbm(Port egress, Picoseconds now) const {
  const std::int32_t from = out_.at(egress).peer;
  if (from < 0 || status({egress, true}, now) != Status::tuned) return -INFINITY;
  return level(static_cast<Port>(from), egress);
}

panel_entry PanelDevice::entry(Port ingress, Picoseconds now) const {
  const End& here = in_.at(ingress);
  panel_entry found{};
  found.peer = PANEL_NO_PEER;
  found.generation = here.generation;
  found.status = static_cast<std::uint8_t>(status({ingress, false}, now));
  if (here.peer < 0) return found;
  const auto b = static_cast<Port>(here.peer);
  const End& there = out_[b];
  const auto overridden = [](const End& end) { return end.override_state != Override::normal; };
  const double power = level(ingress, b);
  found.peer = b;
  if (overridden(here) || overridden(there)) found.flags |= PANEL_FORCE_BLOCKED;
  if (here.shutter_closed || there.shutter_closed) found.flags |= PANEL_SHUTTER_CLOSED;
  if (here.failed || there.failed || power < kLosDbm) found.flags |= PANEL_BELOW_LOS;
  found.dark_until = static_cast<std::uint64_t>(std::max(here.dark_until.count, std::int64_t{0}) / 1000);
  found.drop = drop_probability(power);
  return found;
}

void PanelDevice::look_at(Simplex port, Picoseconds now) {
  const std::int32_t peer = end(port).peer;
  if (peer >= 0) {
    look(port.out ? static_cast<Port>(peer) : port.port, now);
    tell({static_cast<Port>(peer), !port.out}, now);
  }
  tell(port, now);
}

void PanelDevice::look(Port ingress, Picoseconds now) {
  End& here = in_[ingress];
  const bool passed = std::exchange(here.passed, passes(ingress));
  if (!here.passed || passed) return;
  here.lit_from = std::max(here.dark_until, now);
  for (const Port port : {ingress, static_cast<Port>(here.peer)}) {
    hosts_[port].nic_up = options_.profile.nic_up.sample(nic_random_, 1);
    for (const Picoseconds at : {here.lit_from, carrier_from(port)}) {
      if (at > now && at != kNever) due_.emplace(at, port);
    }
  }
}

Picoseconds PanelDevice::carrier_from(Port port) const {
  const Carrier rule = options_.carrier;
  if (rule == Carrier::none) return {};
  const std::int32_t source = out_[port].peer;
  if (source < 0 || !in_[static_cast<std::size_t>(source)].passed) return kNever;
  Picoseconds lit = in_[static_cast<std::size_t>(source)].lit_from;
  if (rule == Carrier::both) {
    if (!in_[port].passed) return kNever;
    lit = std::max(lit, in_[port].lit_from);
  }
  return lit + hosts_[port].nic_up;
}

bool PanelDevice::carrier(Port port, Picoseconds now) const {
  if (port >= ports()) throw std::out_of_range("panel: no such port");
  const Picoseconds from = carrier_from(port);
  return from != kNever && now >= from;
}

void PanelDevice::tell(Simplex port, Picoseconds now) {
  End& here = end(port);
  const Status found = status(port, now);
  if (std::exchange(here.told, found) != found) {
    events_.push_back({DeviceEvent::Kind::status, now, port, static_cast<std::uint8_t>(found), generation_});
  }
  const bool up = carrier(port.port, now);
  if (std::exchange(hosts_[port.port].told, up) != up) {
    events_.push_back({DeviceEvent::Kind::carrier, now, {port.port, false}, up, generation_});
  }
}

}  // namespace loomnet::panel
