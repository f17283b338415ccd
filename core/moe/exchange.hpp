// An all-to-all between the servers of a region. The bytes of two servers go by their circuits or by the electrical
// fabric, and circuits may be added and removed while the all-to-all lasts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "circuits/split.hpp"
#include "moe/region_traffic.hpp"
#include "moe/shape.hpp"
#include "moe/transfers.hpp"

namespace loomnet::moe {

using circuits::Split;

struct ExchangeOptions {
  std::uint32_t servers = 0, gpus = 8, alpha = 0;
  std::uint64_t seed = 0;  // of the hash that chooses among parallel ways
  Split split = Split::all_or_nothing;
  // A pair whose circuits are dark sends by the electrical fabric, and moves to the circuits when they have light.
  bool electrical_first = false;
  // True: the bytes that a pair sends by light are divided evenly over its circuits. False: flows of GPUs are hashed.
  bool even = false;
  circuits::ExchangeRates rates{};  // of split weighted
};

class Exchange final : public RegionTraffic, private Transfers::Sink {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void exchanged(Picoseconds now) = 0;  // all bytes have arrived
    virtual void exchange_failed(std::uint32_t source, Status status, Picoseconds now) = 0;
    virtual void drained(Picoseconds now) = 0;  // a transfer by circuits has ended
  };

  Exchange(Network& network, Transfers& transfers, const ExchangeOptions& options, Listener& listener);

  // Sets the ways from server i to server j; their queue pairs are connected. Electrical ways are one, or several among
  // which flows of GPUs are hashed, or `gpus` (one to the NIC of each GPU), or gpus * gpus (one for each two GPUs).
  // Optical ways are one, which all circuits of the two servers share, or alpha, one for each circuit. Throws
  // std::invalid_argument.
  void set_electrical(std::uint32_t i, std::uint32_t j, std::vector<Way> ways);
  // `fallback`: paths by the electrical fabric, for bytes that are under way when the pair's last circuit is removed.
  void set_optical(std::uint32_t i, std::uint32_t j, std::vector<Way> ways, std::vector<PlanePaths> fallback);
  void set_optical_nics(std::vector<NicPort> nics) override { nics_ = std::move(nics); }

  // All that this GPU of a server exchanges with other servers goes by the electrical fabric.
  void set_wired(std::uint32_t server, std::uint32_t gpu);

  // Begins an all-to-all; the one before must have ended. Flows inside a server are ignored.
  void begin(std::span<const GpuFlow> flows, Picoseconds now);
  bool open() const { return open_ > 0; }
  const ExchangeOptions& options() const { return options_; }

  void hold(std::span<const circuits::ServerPair> pairs, Picoseconds now) override;
  bool in_flight(std::span<const circuits::ServerPair> pairs) const override;
  void release(std::span<const circuits::ServerPair> pairs, const circuits::PortMap& ports, Picoseconds now) override;
  // Sends up to `most` held bytes of each pair by each of its circuits in `ports`. The rest stays held.
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
  static constexpr std::uint64_t kLight = 1ull << 32;  // bit of a transfer's cookie, above the pair's number: by light

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
  std::uint64_t open_ = 0;  // bytes that have not arrived
  std::uint64_t held_bytes_ = 0;
  std::uint64_t optical_bytes_ = 0, electrical_bytes_ = 0;
  Picoseconds began_{};
  std::vector<std::uint64_t> received_;  // by server, of this exchange
  std::vector<NodeId> hosts_;  // by server: where its work is metered
  std::vector<std::uint64_t> sums_;  // scratch: bytes by pair and way
};

}  // namespace loomnet::moe
