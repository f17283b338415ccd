// The states of a region's controller: live, drain, dark, and live again.
#include "circuits/region_controller.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace loomnet::circuits {

using Kind = RegionEvent::Kind;

namespace {
// Circuits that one of two maps has and the other has not.
std::uint32_t circuits_between(const PortMap& before, const PortMap& after) {
  std::uint32_t count = 0;
  for (std::size_t port = 0; port < after.peer.size(); ++port) {
    if (after.peer[port] == before.peer[port]) continue;
    for (const std::int32_t peer : {before.peer[port], after.peer[port]}) {
      count += peer != kNoPeer && port < static_cast<std::size_t>(peer);
    }
  }
  return count;
}
}  // namespace

RegionController::RegionController(const RegionOptions& options, RegionWorld& world)
    : options_(options),
      world_(world),
      nics_(server_nics(options.nics, options.alpha)),
      broken_server_(options.servers),
      broken_port_(std::size_t{options.servers} * options.alpha) {
  if (options.servers < 2) throw std::invalid_argument("circuits: a region has 2 servers or more");
  if (options.worthwhile) worthwhile_.emplace(options.servers, *options.worthwhile);
  look();
}

// Reads the circuits that can be used off the panel: an earlier controller or another client may have patched
// them. Returns the pairs of servers that have lost or got a circuit since this controller last looked.
std::set<ServerPair> RegionController::look() {
  const PortMap known = std::move(ports_);
  ports_ = {options_.servers, options_.alpha, std::vector<std::int32_t>(broken_port_.size(), kNoPeer)};
  std::set<panel::CrossConnect> found;
  for (const panel::CrossConnect& one : panel_works_ ? mine() : std::vector<panel::CrossConnect>{}) found.insert(one);
  for (const panel::CrossConnect& one : found) {
    const bool works = !broken_port_[one.a - options_.first_port] && !broken_port_[one.b - options_.first_port];
    if (works && one.a != one.b && found.contains({one.b, one.a})) {
      ports_.peer[one.a - options_.first_port] = one.b - options_.first_port;
    }
  }
  std::set<ServerPair> moved;
  for (std::size_t port = 0; port < known.peer.size(); ++port) {
    if (known.peer[port] == ports_.peer[port]) continue;
    for (const std::int32_t peer : {known.peer[port], ports_.peer[port]}) {
      if (peer != kNoPeer) moved.insert(pair_of(port, static_cast<std::size_t>(peer)));
    }
  }
  return moved;
}

ServerPair RegionController::pair_of(std::size_t port, std::size_t other) const {
  return std::minmax(static_cast<std::uint32_t>(port / options_.alpha),
                     static_cast<std::uint32_t>(other / options_.alpha));
}

// Holds those that are not held yet.
void RegionController::hold(const std::set<ServerPair>& pairs, Picoseconds now) {
  std::vector<ServerPair> more, all;
  std::ranges::set_difference(pairs, held_, std::back_inserter(more));
  if (more.empty()) return;
  std::ranges::set_union(pairs, held_, std::back_inserter(all));
  held_ = std::move(all);
  world_.hold(more, now);
}

void RegionController::circuits_changed(Picoseconds now) {
  advance(now);
  settle(now);
}

void RegionController::settle(Picoseconds now) {
  const PortMap before = ports_;
  const std::set<ServerPair> moved = look();
  if (moved.empty()) return;
  disturbed_ = true;
  hold(moved, now);
  const Picoseconds lit = std::max(world_.lit_from(now), now);
  tell(Kind::outside, now, circuits_between(before, ports_), lit - now);
  if (state_ == State::drain) return;  // its request is made from what the panel has by then
  until_ = state_ == State::dark ? std::max(lit, until_) : lit;
  state_ = State::dark;
  advance(now);
}

std::vector<panel::CrossConnect> RegionController::mine() const {
  const std::size_t first = options_.first_port, end = first + broken_port_.size();
  std::vector<panel::CrossConnect> found;
  for (const panel::CrossConnect& one : world_.cross_connects()) {
    if (one.a >= first && one.a < end && one.b >= first && one.b < end) found.push_back(one);
  }
  return found;
}

std::uint32_t RegionController::circuits(std::uint32_t i, std::uint32_t j) const {
  std::uint32_t count = 0;
  for (std::uint32_t k = 0; k < options_.alpha; ++k) {
    const std::int32_t other = ports_.peer.at(i * options_.alpha + k);
    count += other != kNoPeer && static_cast<std::uint32_t>(other) / options_.alpha == j;
  }
  return count;
}

RegionController::Ports RegionController::working() const {
  Ports found{std::vector<std::uint32_t>(options_.servers), broken_port_};
  for (std::uint32_t server = 0; server < options_.servers; ++server) {
    for (std::uint32_t k = 0; k < options_.alpha; ++k) {
      std::uint8_t& port = found.broken[server * options_.alpha + k];
      port |= broken_server_[server] || !panel_works_;
      found.free[server] += !port;
    }
  }
  return found;
}

Assignment RegionController::assigned(const Wanted& wanted, const Ports& ports) const {
  const std::vector<std::uint32_t>& free = ports.free;
  return wanted.any          ? assign(wanted.bytes, free, Rule::random, options_.seed + requests_)
         : options_.assigner ? options_.assigner(wanted.bytes, free)
                             : assign(wanted.bytes, free, options_.rule, options_.seed + requests_, options_.ties);
}

PortMap RegionController::mapped(const Assignment& found, const Wanted& wanted, const Ports& ports) const {
  return map_ports(found, wanted.bytes, nics_, ports_, ports.broken);
}

PortMap RegionController::plan(const Wanted& wanted) {
  const Ports ports = working();
  Assignment found = assigned(wanted, ports);
  PortMap planned = mapped(found, wanted, ports);
  if (!worthwhile_) return planned;
  Worthwhile::Circuits present;
  for (std::uint32_t i = 0; i < options_.servers; ++i) {
    for (std::uint32_t j = 0; j < options_.servers; ++j) present.push_back(circuits(i, j));
  }
  const auto dark = [this](std::uint32_t circuits) {
    return world_.dark_time(options_.all_dark ? broken_port_.size() : std::size_t{2} * circuits);
  };
  Worthwhile::Circuits chosen = worthwhile_->choose(present, found.circuits, ports.free, wanted.use, dark);
  if (chosen == present) return ports_;
  if (chosen == found.circuits) return planned;
  found.circuits = std::move(chosen);
  return mapped(found, wanted, ports);
}

void RegionController::demand(const DemandKey& key, std::span<const std::uint64_t> bytes, Picoseconds now, bool any,
                              Use use) {
  if (bytes.size() != std::size_t{options_.servers} * options_.servers) {
    throw std::invalid_argument("circuits: a demand of " + std::to_string(bytes.size()) + " pairs in a region of " +
                                std::to_string(options_.servers) + " servers");
  }
  if (worthwhile_ && use.bytes.size() != bytes.size()) {
    throw std::invalid_argument("circuits: what is worthwhile needs the bytes that servers send each other");
  }
  advance(now);
  if (next_ ? next_->key == key : assigned_ && wanted_.key == key) return;
  if (turns_back(key, bytes, any)) {
    (next_ ? next_->key : wanted_.key) = key;
    return;
  }
  Wanted wanted{key, {bytes.begin(), bytes.end()}, any, std::move(use), now};
  if (state_ != State::live) {
    const Ports ports = working();
    (void)mapped(assigned(wanted, ports), wanted, ports);  // a demand that cannot be assigned throws to its caller
    next_ = std::move(wanted);  // a request that is under way is finished first
    return;
  }
  take(std::move(wanted), now);
}

bool RegionController::turns_back(const DemandKey& key, std::span<const std::uint64_t> bytes, bool any) const {
  if (worthwhile_ || (!next_ && (!assigned_ || disturbed_))) return false;
  const Wanted& last = next_ ? *next_ : wanted_;
  return key.backward && !last.key.backward && !last.key.guessed && last.key.layer == key.layer && !last.any && !any &&
         std::ranges::equal(last.bytes, bytes);
}

void RegionController::take(Wanted wanted, Picoseconds now) {
  std::set<ServerPair> affected = look();
  wanted.use.hidden = std::max(Picoseconds{}, wanted.use.hidden - (now - std::exchange(wanted.asked, now)));
  PortMap planned = plan(wanted);  // throws before anything has changed
  wanted_ = std::move(wanted);
  assigned_ = true;
  disturbed_ = false;
  planned_ = std::move(planned);
  const bool all_dark = options_.all_dark && !stays();
  for (std::size_t port = 0; port < planned_.peer.size(); ++port) {
    if (planned_.peer[port] == ports_.peer[port] && !all_dark) continue;
    for (const std::int32_t peer : {ports_.peer[port], planned_.peer[port]}) {
      if (peer != kNoPeer) affected.insert(pair_of(port, static_cast<std::size_t>(peer)));
    }
  }
  const std::uint32_t changed = circuits_between(ports_, planned_);
  tell(Kind::demand, now, changed);
  if (affected.empty()) return;
  hold(affected, now);
  state_ = State::drain;
  until_ = now + options_.drain_limit;
  tell(Kind::drain, now, changed);
  drained(now);
}

void RegionController::drained(Picoseconds now) {
  if (state_ == State::drain && !world_.in_flight(held_)) apply(now);
}

void RegionController::advance(Picoseconds now) {
  while (state_ != State::live && now >= until_) {
    const Picoseconds due = until_;
    if (state_ == State::drain) {
      apply(due);
    } else {
      tell(Kind::lit, due);
      go_live(due);
    }
  }
}

void RegionController::apply(Picoseconds now) {
  std::vector<panel::CrossConnect> wanted, remove, add;
  const auto at = [&](std::size_t port) { return static_cast<panel::Port>(options_.first_port + port); };
  for (std::size_t port = 0; port < planned_.peer.size(); ++port) {
    const std::int32_t peer = planned_.peer[port];
    if (peer != kNoPeer) wanted.push_back({at(port), at(static_cast<std::size_t>(peer))});
  }
  std::vector<panel::CrossConnect> existing = mine();
  std::ranges::sort(existing);
  std::ranges::sort(wanted);
  std::ranges::set_difference(existing, wanted, std::back_inserter(remove));
  std::ranges::set_difference(wanted, existing, std::back_inserter(add));
  std::vector<panel::Port> all_dark;
  if (options_.all_dark && !stays()) {
    for (std::size_t port = 0; port < planned_.peer.size(); ++port) all_dark.push_back(at(port));
  }
  refusal_.clear();
  const auto count = static_cast<std::uint32_t>(remove.size() + add.size());
  if (count == 0 && all_dark.empty()) {  // another client has patched just this: nothing to ask for
    until_ = std::max(world_.lit_from(now), now);
  } else if (++requests_; panel_works_) {
    try {
      until_ = std::max(world_.patch(remove, add, all_dark, now), now);
    } catch (const std::exception& error) {
      // The panel refused and is unchanged, so held transfers continue by the old circuits.
      refusal_ = error.what();
      disturbed_ = true;
      tell(Kind::fail, now, count);
      planned_ = ports_;
      return go_live(now);
    }
  } else {
    planned_.peer.assign(planned_.peer.size(), kNoPeer);  // the panel may have failed during the drain
    until_ = now;
  }
  ports_ = planned_;
  state_ = State::dark;
  tell(Kind::apply, now, count, until_ - now);
  if (until_ <= now) go_live(now);
}

void RegionController::go_live(Picoseconds now) {
  state_ = State::live;
  const std::vector<ServerPair> released = std::exchange(held_, {});
  tell(Kind::release, now);
  world_.release(released, ports_, now);
  if (next_ && state_ == State::live) take(*std::exchange(next_, {}), now);
}

void RegionController::again(Picoseconds now) {
  tell(Kind::fail, now);
  if (!assigned_) return settle(now);
  if (state_ != State::live) {
    if (!next_) next_ = wanted_;
    return;
  }
  take(wanted_, now);
}

void RegionController::set_server(std::uint32_t server, bool works, Picoseconds now) {
  advance(now);
  broken_server_.at(server) = !works;
  again(now);
}

void RegionController::set_port(std::uint32_t server, std::uint32_t optical, bool works, Picoseconds now) {
  if (optical >= options_.alpha) throw std::out_of_range("circuits: no such optical NIC");
  advance(now);
  broken_port_.at(server * options_.alpha + optical) = !works;
  again(now);
}

void RegionController::set_panel(bool works, Picoseconds now) {
  advance(now);
  panel_works_ = works;
  again(now);
}

void RegionController::tell(Kind kind, Picoseconds now, std::uint32_t changed, Picoseconds dark) {
  events_.push_back({kind, now, wanted_.key, changed, dark});
}

}  // namespace loomnet::circuits
