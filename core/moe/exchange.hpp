// An all-to-all between the servers of a region: what each pair exchanges goes by the circuits that it has, or
// by the electrical fabric, and circuits may come and go while it lasts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moe/region_traffic.hpp"
#include "moe/shape.hpp"
#include "moe/split.hpp"
#include "moe/transfers.hpp"

namespace loomnet::moe {

struct ExchangeOptions {
  std::uint32_t servers = 0, gpus = 8, alpha = 0;
  std::uint64_t seed = 0;  // of the choice among parallel ways
  Split split = Split::all_or_nothing;
  // While a pair's circuits are dark it sends by the electrical fabric, and moves when they are lit.
  bool electrical_first = false;
  // What a pair sends by light is cut into equal parts for its circuits; else flows of GPUs are hashed.
  bool even = false;
  double circuit_rate = 0, electrical_rate = 0;  // bits per second; of split weighted
};

class Exchange final : public RegionTraffic, private Transfers::Sink {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void exchanged(Picoseconds now) = 0;  // all bytes are where they belong
    virtual void exchange_failed(std::uint32_t source, Status status, Picoseconds now) = 0;
    virtual void drained(Picoseconds now) = 0;  // something by circuits has ended
  };

  Exchange(Network& network, Transfers& transfers, const ExchangeOptions& options, Listener& listener);

  // Ways from server i to server j; the queue pairs are connected. Electrical: one, several among which a
  // GPU's flows are hashed, gpus, one to the NIC of each GPU, or gpus * gpus, one from each to each. Optical: one, which all circuits of the
  // two share, or alpha, one for each circuit. Throws std::invalid_argument.
  void set_electrical(std::uint32_t i, std::uint32_t j, std::vector<Way> ways);
  // `fallback`: paths by the electrical fabric, which bytes under way take when the last circuit goes.
  void set_optical(std::uint32_t i, std::uint32_t j, std::vector<Way> ways, std::vector<PlanePaths> fallback);
  void set_optical_nics(std::vector<NicPort> nics) override { nics_ = std::move(nics); }

  // What this GPU of a server exchanges with others goes by the electrical fabric, whatever circuits there are.
  void set_wired(std::uint32_t server, std::uint32_t gpu);

  // Begins one; the one before has ended. Flows inside a server are left out.
  void begin(std::span<const GpuFlow> flows, Picoseconds now);
  bool open() const { return open_ > 0; }

  void hold(std::span<const circuits::ServerPair> pairs, Picoseconds now) override;
  bool in_flight(std::span<const circuits::ServerPair> pairs) const override;
  void release(std::span<const circuits::ServerPair> pairs, const circuits::PortMap& ports, Picoseconds now) override;
  // Of what is held, as much as `most` bytes by each circuit of a pair in `ports`; the rest stays held.
  void send_waiting(std::span<const circuits::ServerPair> pairs, const circuits::PortMap& ports, std::uint64_t most,
                    Picoseconds now);
  bool held() const { return held_bytes_ > 0; }

  // Bytes of all exchanges so far.
  std::uint64_t optical_bytes() const { return optical_bytes_; }
  std::uint64_t electrical_bytes() const { return electrical_bytes_; }

 private:
  struct Pair {  // one direction
    std::vector<Way> electrical, optical;
    std::vector<PlanePaths> fallback;
    std::uint32_t circuits = 0;
    bool held = false;
    std::uint64_t waiting = 0;  // bytes that were held
    std::vector<TransferId> by_light, by_wire;
  };
  static constexpr std::uint64_t kLight = 1ull << 32;  // in a cookie, beside the pair's number

  void arrived(std::uint64_t cookie, std::uint64_t bytes, Picoseconds now) override;
  void closed(TransferId transfer, std::uint64_t cookie, Picoseconds now) override;
  void failed(std::uint64_t cookie, Status status, Picoseconds now) override;
  Pair& pair(std::uint32_t i, std::uint32_t j) { return pairs_[std::size_t{i} * options_.servers + j]; }
  void send(std::size_t number, bool light, std::size_t way, std::uint64_t bytes, Picoseconds now);
  void send_parted(std::size_t number, bool light, std::uint64_t bytes, Picoseconds now);
  std::size_t ways(const Pair& pair, bool light) const;
  void set_paths(std::uint32_t i, std::uint32_t j, const circuits::PortMap& ports, Picoseconds now);
  void count_circuits(const circuits::PortMap& ports);
  double share_by_light(std::size_t number, std::uint64_t bytes, double seconds) const;
  void end(Picoseconds now);

  Network& network_;
  Transfers& transfers_;
  ExchangeOptions options_;
  Listener& listener_;
  std::vector<NicPort> nics_;
  std::vector<std::uint8_t> wired_;  // by server and GPU; empty: none
  std::vector<Pair> pairs_;  // by servers i * servers + j
  std::uint64_t open_ = 0;   // bytes that have not arrived
  std::uint64_t held_bytes_ = 0;
  std::uint64_t optical_bytes_ = 0, electrical_bytes_ = 0;
  Picoseconds began_{};
  std::vector<std::uint64_t> received_;  // by server, of this exchange
  std::vector<NodeId> hosts_;            // by server: where its work is metered
  std::vector<std::uint64_t> sums_;      // scratch: bytes by pair and way
};

}  // namespace loomnet::moe
