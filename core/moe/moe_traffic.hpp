// A mixture of experts that trains without PyTorch: regions compute and exchange tokens, stages pass activations
// and gradients on, and replicas sum their gradients round rings. An iteration ends when all sums are complete.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "moe/region_work.hpp"

namespace loomnet::moe {

struct MoeConfig {
  JobId job{};
  Shape shape;
  GateCounts gates;
  WorkOptions work;
  ExchangeOptions exchange;          // its servers, gpus and seed are taken from the shape and the network
  std::uint64_t activations = 0;     // bytes that a server sends the next stage for a micro-batch; gradients as many
  std::uint64_t gradients = 0;       // bytes of a server's gradients, which replicas sum
  std::uint32_t iterations = 1;
  Picoseconds start{};
  Picoseconds stop = kNever;         // no iteration begins then or later
  std::uint32_t message = 1 << 20;   // bytes of a write
  unsigned depth = 4;                // writes outstanding of each transfer
};

class MoeTraffic final : public EventHandler, private RegionWork::Pipeline, private Transfers::Sink {
 public:
  struct Iteration {
    Picoseconds begin, end;
    WorkTimes mean, most;              // of the regions' times the mean and the longest, each time taken separately
    std::uint64_t optical = 0, electrical = 0;  // bytes of experts between servers
    Picoseconds exposed{};  // waits for circuits in the chain of work that the iteration's end had to wait for
  };
  struct Failure {
    std::uint32_t region = 0, server = 0;
    Picoseconds at{};
    std::string message;
  };

  // Throws std::invalid_argument.
  MoeTraffic(Network& network, MoeConfig config);
  ~MoeTraffic() override;

  // --- before start() -----------------------------------------------------------------------------------
  RegionWork& region(std::uint32_t number) { return *regions_.at(number); }
  // Parallel ways of a region's server to the same server of the next stage or, backward, of the one before.
  void set_stage_ways(std::uint32_t region, std::uint32_t server, bool backward, std::vector<Way> ways);
  // Ways of a region's server to the same server of the next replica: each carries a ring of its own.
  void set_ring_ways(std::uint32_t region, std::uint32_t server, std::vector<Way> ways);
  void start();

  bool done() const { return done_; }
  Picoseconds ended() const { return ended_; }  // when it was done
  const std::vector<Iteration>& iterations() const { return iterations_; }
  const std::vector<Failure>& failures() const { return failures_; }
  const MoeConfig& config() const { return config_; }

  void on_event(std::uint64_t what, Picoseconds now) override;

 private:
  enum class Kind : std::uint8_t { forward, backward, ring };
  struct Servers {  // of a region
    std::vector<std::vector<Way>> ahead, behind, rings;  // by server
    std::vector<std::uint64_t> forward, backward;  // by micro-batch: bytes that the region still waits for
    std::vector<Picoseconds> forward_exposed, backward_exposed;  // by micro-batch: of the region that sends them
  };

  void forward_done(std::uint32_t region, std::uint32_t micro_batch, Picoseconds now) override;
  void backward_done(std::uint32_t region, std::uint32_t micro_batch, Picoseconds now) override;
  void all_done(std::uint32_t region, Picoseconds now) override;
  void region_failed(std::uint32_t region, std::uint32_t server, Status status, Picoseconds now) override;
  void arrived(std::uint64_t cookie, std::uint64_t bytes, Picoseconds now) override;
  void closed(TransferId, std::uint64_t, Picoseconds) override {}
  void failed(std::uint64_t cookie, Status status, Picoseconds now) override;

  static std::uint64_t cookie(Kind kind, std::uint32_t region, std::uint32_t micro_batch) {
    return static_cast<std::uint64_t>(kind) << 56 | std::uint64_t{micro_batch} << 32 | region;
  }
  void begin(Picoseconds now);
  void end(std::uint32_t stage, Picoseconds now);
  void send(const std::vector<Way>& parallel, std::uint64_t bytes, std::uint64_t cookie, Picoseconds now);
  void hand_on(std::uint32_t region, std::uint32_t micro_batch, bool backward, Picoseconds now);
  void sum(std::uint32_t stage, Picoseconds now);
  void summed(std::uint32_t stage, Picoseconds now);

  Network& network_;
  MoeConfig config_;
  ObjectId id_;
  Transfers transfers_;
  std::vector<std::unique_ptr<RegionWork>> regions_;
  std::vector<Servers> servers_;             // by region
  std::vector<std::uint32_t> waiting_;       // by stage: replicas that are not done with it
  std::vector<Picoseconds> exposed_;         // by stage: of the replica that was done with it last
  std::uint64_t ring_bytes_ = 0;             // of all rings under way
  std::uint32_t stages_open_ = 0;            // whose gradients are not being summed yet
  Picoseconds began_{};
  std::vector<Iteration> iterations_;
  std::vector<Failure> failures_;
  bool done_ = false;
  Picoseconds ended_{};
};

}  // namespace loomnet::moe
