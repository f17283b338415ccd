#include "moe/exchange.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "clock/random.hpp"

namespace loomnet::moe {
namespace {
constexpr std::uint64_t kWays = 0x6d6f65776179;  // names this use of hash_key
}

Exchange::Exchange(Network& network, Transfers& transfers, const ExchangeOptions& options, Listener& listener)
    : network_(network),
      transfers_(transfers),
      options_(options),
      listener_(listener),
      pairs_(std::size_t{options.servers} * options.servers),
      received_(options.servers),
      hosts_(options.servers) {}

void Exchange::set_electrical(std::uint32_t i, std::uint32_t j, std::vector<Way> ways) {
  if (ways.empty()) throw std::invalid_argument("moe: two servers have an electrical way at least");
  for (const Way& way : ways) transfers_.own(way);
  hosts_.at(i) = ways.front().source;
  pair(i, j).electrical = std::move(ways);
}

void Exchange::set_optical(std::uint32_t i, std::uint32_t j, std::vector<Way> ways, std::vector<PlanePaths> fallback) {
  if (ways.size() != 1 && ways.size() != options_.alpha) {
    throw std::invalid_argument("moe: two servers have one optical way or one for each circuit");
  }
  for (const Way& way : ways) transfers_.own(way);
  pair(i, j).optical = std::move(ways);
  pair(i, j).fallback = std::move(fallback);
}

void Exchange::set_wired(std::uint32_t server, std::uint32_t gpu) {
  wired_.resize(std::size_t{options_.servers} * options_.gpus);
  wired_.at(std::size_t{server} * options_.gpus + gpu) = 1;
}

std::size_t Exchange::ways(const Pair& pair, bool light) const {
  if (!light) return pair.electrical.size();
  return std::min<std::size_t>(pair.optical.size(), pair.circuits);
}

// The share of a pair's bytes that goes by circuits, 0 to 1.
double Exchange::share_by_light(std::size_t number, std::uint64_t bytes, double seconds) const {
  const Pair& p = pairs_[number];
  if (p.circuits == 0 || bytes == 0) return 0;
  if (options_.split == Split::all_or_nothing) return 1;
  return std::min(1.0, p.circuits * options_.rates.circuit * seconds / (8.0 * static_cast<double>(bytes)));
}

void Exchange::begin(std::span<const GpuFlow> flows, Picoseconds now) {
  const std::uint32_t n = options_.servers;
  std::vector<std::uint64_t> bytes(pairs_.size());
  for (const GpuFlow& flow : flows) {
    if (flow.source != flow.destination) bytes[flow.source * n + flow.destination] += flow.bytes;
  }
  double seconds = 0;
  if (options_.split == Split::weighted) {
    std::vector<std::uint32_t> circuits(pairs_.size());
    for (std::size_t p = 0; p < pairs_.size(); ++p) circuits[p] = pairs_[p].held ? 0 : pairs_[p].circuits;
    seconds = circuits::weighted_seconds(n, bytes, circuits, options_.rates);
  }
  std::size_t stride = 1;
  for (const Pair& p : pairs_) stride = std::max({stride, ways(p, false), ways(p, true)});
  sums_.assign(pairs_.size() * 2 * stride, 0);
  std::vector<double> share(pairs_.size());
  for (std::size_t p = 0; p < pairs_.size(); ++p) share[p] = share_by_light(p, bytes[p], seconds);
  for (const GpuFlow& flow : flows) {
    if (flow.source == flow.destination) continue;
    const std::size_t number = flow.source * n + flow.destination;
    Pair& p = pairs_[number];
    const bool wired = !wired_.empty() && (wired_[flow.source * options_.gpus + flow.from] != 0 ||
                                           wired_[flow.destination * options_.gpus + flow.to] != 0);
    if (p.held && !options_.electrical_first && !wired) {
      p.waiting += flow.bytes;
      continue;
    }
    std::uint64_t light = 0;
    if (!p.held && !wired) {
      light =
          share[number] == 1 ? flow.bytes : static_cast<std::uint64_t>(share[number] * static_cast<double>(flow.bytes));
    }
    const std::uint64_t hash =
        hash_key(options_.seed, number * options_.gpus * options_.gpus + flow.from * options_.gpus + flow.to, kWays);
    const auto way = [&](bool by_light) {
      const std::size_t count = ways(p, by_light);
      if (!by_light && count == options_.gpus) return std::size_t{flow.to};
      if (!by_light && count == std::size_t{options_.gpus} * options_.gpus) {
        return std::size_t{flow.from} * options_.gpus + flow.to;
      }
      return static_cast<std::size_t>(hash % count);
    };
    if (light > 0) sums_[(number * 2 + 1) * stride + way(true)] += light;
    if (light < flow.bytes) sums_[number * 2 * stride + way(false)] += flow.bytes - light;
  }
  began_ = now;
  std::ranges::fill(received_, 0);
  open_ = 0;
  for (const std::uint64_t each : bytes) open_ += each;
  if (open_ == 0) return end(now);
  for (const NodeId host : hosts_) transfers_.meter(host).begin(now);
  for (std::size_t number = 0; number < pairs_.size(); ++number) {
    held_bytes_ += pairs_[number].waiting;
    if (options_.even) {
      const auto light = sums_.begin() + static_cast<std::ptrdiff_t>((number * 2 + 1) * stride);
      const auto end = light + static_cast<std::ptrdiff_t>(stride);
      send_parted(number, true, std::accumulate(light, end, std::uint64_t{0}), now);
      std::fill(light, end, 0);
    }
    for (const bool light : {false, true}) {
      for (std::size_t way = 0; way < stride; ++way) {
        send(number, light, way, sums_[(number * 2 + light) * stride + way], now);
      }
    }
  }
}

void Exchange::send(std::size_t number, bool light, std::size_t way, std::uint64_t bytes, Picoseconds now) {
  if (bytes == 0) return;
  Pair& p = pairs_[number];
  const Way& by = (light ? p.optical : p.electrical).at(way);
  (light ? p.by_light : p.by_wire).push_back(transfers_.start(by, bytes, *this, number | (light ? kLight : 0), now));
}

void Exchange::send_parted(std::size_t number, bool light, std::uint64_t bytes, Picoseconds now) {
  const std::size_t count = ways(pairs_[number], light);
  for (std::size_t way = 0; way < count; ++way) {
    send(number, light, way, bytes / count + (way < bytes % count), now);
  }
}

void Exchange::arrived(std::uint64_t cookie, std::uint64_t bytes, Picoseconds now) {
  const std::uint64_t number = cookie & (kLight - 1);
  (cookie & kLight ? optical_bytes_ : electrical_bytes_) += bytes;
  received_[number % options_.servers] += bytes;
  open_ -= bytes;
  if (open_ == 0) end(now);
}

void Exchange::end(Picoseconds now) {
  for (std::uint32_t server = 0; server < options_.servers; ++server) {
    if (now > began_) transfers_.meter(hosts_[server]).end(began_, now, received_[server]);
  }
  listener_.exchanged(now);
}

void Exchange::closed(TransferId transfer, std::uint64_t cookie, Picoseconds now) {
  Pair& p = pairs_[cookie & (kLight - 1)];
  std::erase(cookie & kLight ? p.by_light : p.by_wire, transfer);
  if (cookie & kLight) listener_.drained(now);
}

void Exchange::failed(std::uint64_t cookie, Status status, Picoseconds now) {
  listener_.exchange_failed(static_cast<std::uint32_t>((cookie & (kLight - 1)) / options_.servers), status, now);
}

void Exchange::hold(std::span<const circuits::ServerPair> pairs, Picoseconds now) {
  for (const auto& [a, b] : pairs) {
    for (const auto& [i, j] : {std::pair{a, b}, std::pair{b, a}}) {
      Pair& p = pair(i, j);
      p.held = true;
      std::uint64_t rest = 0;
      for (const TransferId transfer : p.by_light) rest += transfers_.take_back(transfer);
      if (rest == 0) continue;
      if (options_.electrical_first) {
        send_parted(std::size_t{i} * options_.servers + j, false, rest, now);
      } else {
        p.waiting += rest;
        held_bytes_ += rest;
      }
    }
  }
}

bool Exchange::in_flight(std::span<const circuits::ServerPair> pairs) const {
  for (const auto& [a, b] : pairs) {
    for (const auto& [i, j] : {std::pair{a, b}, std::pair{b, a}}) {
      if (!pairs_[std::size_t{i} * options_.servers + j].by_light.empty()) return true;
    }
  }
  return false;
}

void Exchange::count_circuits(const circuits::PortMap& ports) {
  for (Pair& p : pairs_) p.circuits = 0;
  for (std::size_t port = 0; port < ports.peer.size(); ++port) {
    if (ports.peer[port] == circuits::kNoPeer) continue;
    const auto i = static_cast<std::uint32_t>(port / ports.alpha);
    const auto j = static_cast<std::uint32_t>(ports.peer[port]) / ports.alpha;
    if (i != j) ++pair(i, j).circuits;
  }
}

void Exchange::release(std::span<const circuits::ServerPair> pairs, const circuits::PortMap& ports, Picoseconds now) {
  count_circuits(ports);
  for (const auto& [a, b] : pairs) {
    set_paths(a, b, ports, now);
    set_paths(b, a, ports, now);
  }
  for (const auto& [a, b] : pairs) {
    for (const auto& [i, j] : {std::pair{a, b}, std::pair{b, a}}) {
      const std::size_t number = std::size_t{i} * options_.servers + j;
      Pair& p = pairs_[number];
      p.held = false;
      const bool light = p.circuits > 0;
      std::uint64_t rest = std::exchange(p.waiting, 0);
      held_bytes_ -= rest;
      if (light && options_.electrical_first) {
        for (const TransferId transfer : p.by_wire) rest += transfers_.take_back(transfer);
      }
      if (rest > 0) send_parted(number, light, rest, now);
    }
  }
}

void Exchange::send_waiting(std::span<const circuits::ServerPair> pairs, const circuits::PortMap& ports,
                            std::uint64_t most, Picoseconds now) {
  count_circuits(ports);
  for (const auto& [a, b] : pairs) {
    for (const auto& [i, j] : {std::pair{a, b}, std::pair{b, a}}) {
      Pair& p = pair(i, j);
      const std::uint64_t part = std::min(p.waiting, most * p.circuits);
      if (part == 0) continue;
      set_paths(i, j, ports, now);
      if (p.by_light.empty() && pair(j, i).waiting == 0) set_paths(j, i, ports, now);  // acknowledgements
      p.waiting -= part;
      held_bytes_ -= part;
      send_parted(std::size_t{i} * options_.servers + j, true, part, now);
    }
  }
}

// Makes the optical ways from i to j leave by the NIC ports of the pair's circuits. Circuits are numbered in the order
// of the lower server's ports, so that both ends choose the same circuit for a way.
void Exchange::set_paths(std::uint32_t i, std::uint32_t j, const circuits::PortMap& ports, Picoseconds now) {
  Pair& p = pair(i, j);
  if (p.optical.empty()) return;
  const std::uint32_t low = std::min(i, j), high = std::max(i, j);
  std::vector<PlanePort> mine;
  for (std::uint32_t k = 0; k < ports.alpha; ++k) {
    const std::size_t port = std::size_t{low} * ports.alpha + k;
    const std::int32_t peer = ports.peer[port];
    if (peer == circuits::kNoPeer || static_cast<std::uint32_t>(peer) / ports.alpha != high) continue;
    mine.push_back(nics_.at(i == low ? port : static_cast<std::size_t>(peer)).port);
  }
  Nic& nic = network_.nic(p.optical.front().source);
  for (std::size_t way = 0; way < p.optical.size(); ++way) {
    std::vector<PlanePaths> planes(nic.ports());
    const bool all = p.optical.size() == 1;
    if (mine.empty()) {
      // Bytes under way continue by wires, and their acknowledgements too, in the other direction.
      if ((p.by_light.empty() && pair(j, i).by_light.empty()) || p.fallback.empty()) continue;
      planes = p.fallback;
    }
    // A circuit has the same plane number at both ends, and no two ports of a NIC have the same.
    std::uint8_t next = static_cast<std::uint8_t>(mine.size());
    for (PlanePort port = 0; port < planes.size() && !mine.empty(); ++port) {
      const auto found = std::ranges::find(mine, port);
      planes[port].plane = found == mine.end() ? next++ : static_cast<Plane>(found - mine.begin());
      if (found == mine.end() || (!all && mine[way % mine.size()] != port)) continue;
      planes[port].uplinks = {0};
    }
    nic.set_paths(p.optical[way].qp, std::move(planes), now);
  }
}

}  // namespace loomnet::moe
