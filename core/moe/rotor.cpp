#include "moe/rotor.hpp"

#include <algorithm>
#include <stdexcept>

namespace loomnet::moe {

// The circle method: one place is fixed and the others rotate round it. For an odd number of servers the fixed place
// is empty.
std::vector<std::vector<std::uint32_t>> round_robin(std::uint32_t servers) {
  const std::uint32_t places = servers + servers % 2;
  std::vector<std::vector<std::uint32_t>> found;
  for (std::uint32_t round = 0; round + 1 < places; ++round) {
    std::vector<std::uint32_t> partner(servers);
    for (std::uint32_t k = 0; k < places / 2; ++k) {
      const std::uint32_t a = k == 0 ? places - 1 : (round + k) % (places - 1);
      const std::uint32_t b = (round + places - 1 - k) % (places - 1);
      if (a < servers) partner[a] = b < servers ? b : a;
      if (b < servers) partner[b] = a < servers ? a : b;
    }
    found.push_back(std::move(partner));
  }
  return found;
}

Rotor::Rotor(Network& network, Exchange& exchange, NodeId panel, const RotorOptions& options, std::vector<NicPort> nics)
    : network_(network),
      exchange_(exchange),
      panel_(panel),
      options_(options),
      nics_(std::move(nics)),
      id_(network.events().add(*this)),
      matchings_(round_robin(options.servers)) {
  if (!network.panel(panel)) throw std::invalid_argument("moe: a region's panel is a panel");
  if (options.slot.count <= 0 || options.slot_bytes == 0) {
    throw std::invalid_argument("moe: a rotor's slot must be longer than 0 and carry a byte");
  }
  if (options.servers < 2 || nics_.size() != std::size_t{options.servers} * options.alpha ||
      options.first_port + nics_.size() > network.ports(panel)) {
    throw std::invalid_argument("moe: a rotor's servers have as many optical NICs each, at ports of one panel");
  }
  exchange.set_optical_nics(nics_);
  for (std::uint32_t i = 0; i < options.servers; ++i) {
    for (std::uint32_t j = i + 1; j < options.servers; ++j) all_.emplace_back(i, j);
  }
  exchange.hold(all_, network.now());
}

bool Rotor::works(std::size_t nic) const {
  const std::uint32_t half = network_.egress_half(nics_[nic].host, nics_[nic].port);
  return network_.half(half / 2, true).up() && network_.half(half / 2, false).up();
}

void Rotor::begin(Picoseconds now) {
  turn_ = static_cast<std::uint64_t>(now.count / options_.slot.count);
  // The bytes of the exchange before have arrived, but their acknowledgements may still be under way, by the
  // circuits that this turn would take down.
  state_ = State::drain;
  over_ = now;
  drained(now);
}

// Patches the circuits of the next turn, as one request.
void Rotor::turn(Picoseconds now) {
  const std::uint32_t alpha = options_.alpha;
  ports_ = {options_.servers, alpha, std::vector<std::int32_t>(nics_.size(), circuits::kNoPeer)};
  std::vector<panel::CrossConnect> wanted;
  std::vector<panel::CrossConnect> remove;
  for (std::size_t nic = 0; nic < nics_.size(); ++nic) {
    const auto server = static_cast<std::uint32_t>(nic / alpha), k = static_cast<std::uint32_t>(nic % alpha);
    const std::uint32_t partner = matchings_[(turn_ + k) % matchings_.size()][server];
    const std::size_t far = std::size_t{partner} * alpha + k;
    const bool joined = partner != server && works(nic) && works(far);
    const auto here = static_cast<panel::Port>(options_.first_port + nic);
    if (joined) {
      ports_.peer[nic] = static_cast<std::int32_t>(far);
      wanted.push_back({here, static_cast<panel::Port>(options_.first_port + far)});
    } else if (const auto at = network_.panel(panel_)->device().target({here, false}); at >= 0) {
      remove.push_back({here, static_cast<panel::Port>(at)});
    }
  }
  network_.operate(panel_, [&](panel::PanelDevice& device, Picoseconds) {
    device.change(remove, wanted, panel::Mode::update, now);
  });
  ++turn_;
  ++turns_;
  Picoseconds lit = now;
  const panel::PanelDevice& device = network_.panel(panel_)->device();
  for (const panel::CrossConnect& one : wanted) lit = std::max(lit, device.dark_until(one.a));
  state_ = State::dark;
  after(lit - now, now);
}

void Rotor::on_event(std::uint64_t what, Picoseconds now) {
  if (what != timer_ || state_ == State::idle) return;
  if (state_ == State::dark) {
    state_ = State::slot;
    over_ = now + options_.slot;
    after(options_.slot, now);
    return exchange_.send_waiting(all_, ports_, options_.slot_bytes, now);
  }
  if (state_ != State::slot) return;
  state_ = State::drain;
  drained(now);
}

// The next turn begins when all transfers by the circuits of this one have ended.
void Rotor::drained(Picoseconds now) {
  if (state_ != State::drain || exchange_.in_flight(all_)) return;
  stretched_ += now - over_;
  turn(now);
}

}  // namespace loomnet::moe
