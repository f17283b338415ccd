// What a region does in an iteration: forward and backward of its stage's layers for one micro-batch after
// another, in the order that keeps one of each under way (1F1B; Narayanan et al., "PipeDream", SOSP 2019), with
// the four all-to-alls of each layer of experts and the circuits that these ask for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "circuits/copilot.hpp"
#include "moe/exchange.hpp"
#include "moe/region_driver.hpp"
#include "moe/rotor.hpp"
#include "moe/shape.hpp"

namespace loomnet::moe {

// By which circuits tokens are dispatched forward. Their destinations are known only when the gate has routed them.
enum class FirstDispatch : std::uint8_t {
  block,    // by circuits for the gate's counts, which the dispatch waits for
  reuse,    // by the circuits there are; new ones are patched for the combine while the experts compute
  random,   // by random circuits, patched while attention computes
  copilot,  // by circuits for Copilot's prediction, patched while attention computes
};

enum class Repatch : std::uint8_t {
  layer,      // for each layer, forward and backward
  worthwhile, // the same, but only where it saves more time than it costs
  iteration,  // when an iteration begins, for the sum of the exchanges of the one before
  once,       // after the first iteration, for the sum of its exchanges
  never,
};

struct WorkOptions {
  Picoseconds attention{}, experts{};  // computing a layer forward for a micro-batch; backward takes twice that
  std::uint64_t per_rank = 0;          // bytes that a GPU sends in an all-to-all
  BitsPerSecond local{};               // rate of one GPU inside its server; 0: transfers there take no time
  bool direct = false;                 // GPUs have NICs of their own: nothing is gathered and scattered
  FirstDispatch first_dispatch = FirstDispatch::block;
  Repatch repatch = Repatch::layer;
  bool electrical_first = false;       // exchanges begin by the electrical fabric and do not wait for circuits
  circuits::Duplex duplex = circuits::Duplex::max;
  circuits::CopilotOptions copilot{};
};

// Of one region in one iteration.
struct WorkTimes {
  Picoseconds waiting{};    // for circuits while nothing else was missing
  Picoseconds exchanging{}; // in all-to-alls, including that waiting
  Picoseconds computing{};
};

class RegionWork final : public EventHandler, private Exchange::Listener, private RegionDriver::Listener {
 public:
  class Pipeline {
   public:
    virtual ~Pipeline() = default;
    virtual void forward_done(std::uint32_t region, std::uint32_t micro_batch, Picoseconds now) = 0;
    virtual void backward_done(std::uint32_t region, std::uint32_t micro_batch, Picoseconds now) = 0;
    virtual void all_done(std::uint32_t region, Picoseconds now) = 0;
    virtual void region_failed(std::uint32_t region, std::uint32_t server, Status status, Picoseconds now) = 0;
  };
  // A part of region's time line.
  struct Span {
    enum class Kind : std::uint8_t { attention, dispatch, experts, combine, blocked } kind{};
    bool backward = false;
    std::uint16_t layer = 0, micro_batch = 0;
    std::uint32_t iteration = 0;
    Picoseconds begin{}, end{};
  };

  RegionWork(Network& network, Transfers& transfers, const Shape& shape, const GateCounts& gates, std::uint32_t region,
             const WorkOptions& options, const ExchangeOptions& exchange, Pipeline& pipeline);

  Exchange& exchange() { return exchange_; }
  // Gives this region circuits; without this call all its traffic goes by the electrical fabric. Throws
  // std::invalid_argument.
  void use_circuits(NodeId panel, const circuits::RegionOptions& options, std::vector<NicPort> nics);
  // Gives this region circuits that rotate whatever the demand. Throws std::invalid_argument.
  void use_rotor(NodeId panel, const RotorOptions& options, std::vector<NicPort> nics);
  const Rotor* rotor() const { return rotor_.get(); }  // null: circuits do not rotate
  RegionDriver* driver() { return driver_.get(); }  // null: there are no circuits

  void begin(std::uint32_t iteration, Picoseconds now);
  // A micro-batch's input has arrived: activations of the stage before or, backward, gradients of the stage behind.
  // `exposed`: of the region that has sent it, when it did.
  void input(std::uint32_t micro_batch, bool backward, Picoseconds exposed, Picoseconds now);
  // What waits for circuits have cost this region so far in the iteration: those in the longest chain of work, of this
  // and of other regions, that it had to wait for.
  Picoseconds exposed() const { return exposed_; }

  const WorkTimes& times() const { return times_; }  // of the iteration at hand
  void keep_spans(std::size_t most) { most_spans_ = most; }
  const std::vector<Span>& spans() const { return spans_; }

  void on_event(std::uint64_t what, Picoseconds now) override;

 private:
  struct Task {
    std::uint32_t micro_batch = 0;
    bool backward = false;
  };
  enum class Step : std::uint8_t { idle, input, attention, dispatch, experts, combine };
  enum Timer : std::uint64_t { kComputed, kGathered, kScattered };

  void exchanged(Picoseconds now) override;
  void exchange_failed(std::uint32_t source, Status status, Picoseconds now) override;
  void drained(Picoseconds now) override;
  void circuits_changed(Picoseconds now) override;

  const Task& task() const { return order_[task_]; }
  circuits::Tokens tokens(std::uint32_t layer) const;
  bool asks_by_layer() const {
    return driver_ && (options_.repatch == Repatch::layer || options_.repatch == Repatch::worthwhile);
  }
  circuits::Use use(const circuits::Tokens& tokens, bool backward, std::uint32_t layer, bool guessed) const;
  circuits::DemandKey key(bool backward, std::uint32_t layer) const;
  void next_task(Picoseconds now);
  void start_task(Picoseconds now);
  void compute(Step step, Picoseconds now);
  void computed(Picoseconds now);
  void enter_exchange(Step step, Picoseconds now);
  void try_exchange(Picoseconds now);
  bool may_exchange() const;
  void ask(bool backward, std::uint32_t layer, Picoseconds now);
  void ask_ahead(std::uint32_t layer, Picoseconds now);
  void end_exchange(Picoseconds now);
  void learn();
  void note(Span::Kind kind, Picoseconds begin, Picoseconds end);

  Network& network_;
  const Shape& shape_;
  const GateCounts& gates_;
  std::uint32_t region_, layers_, first_layer_;
  WorkOptions options_;
  Pipeline& pipeline_;
  ObjectId id_;
  Exchange exchange_;
  std::unique_ptr<RegionDriver> driver_;
  std::unique_ptr<Rotor> rotor_;
  std::vector<Task> order_;
  std::size_t task_ = 0;
  std::uint32_t iteration_ = 0, layer_ = 0;
  Step step_ = Step::idle;
  bool waiting_ = false;  // for circuits
  Picoseconds since_{};  // the step at hand began
  Picoseconds gathering_{};  // the exchange at hand began, its circuits being there
  Picoseconds scatter_{}, inside_{};
  std::vector<GpuFlow> flows_;
  std::vector<std::uint8_t> inputs_;  // by micro-batch, bits: 1 forward's input has arrived, 2 backward's has
  Picoseconds exposed_{};
  std::vector<std::uint64_t> demanded_;  // of all layers of the iteration at hand
  std::vector<std::unique_ptr<circuits::Copilot>> copilots_;  // by layer
  std::vector<std::vector<double>> loads_;  // by layer, of the iteration at hand
  WorkTimes times_;
  std::size_t most_spans_ = 0;
  std::vector<Span> spans_;
};

}  // namespace loomnet::moe
