// The collective executor of one rank inside the engine: it posts to the emulated NIC of the rank's
// host, and moves real bytes or lengths only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collective/executor.hpp"
#include "collective/sum_pairs.hpp"
#include "engine/network.hpp"
#include "traffic/sparse_memory.hpp"
#include "traffic/step_pairs.hpp"

namespace loomnet {

struct NicExecutorConfig {
  JobId job{};
  NodeId host = 0;
  JobRank rank = 0;
  bool payload = false;
  bool await_sends = true;  // as CollectiveExecutor has it
  CommunicatorId communicator = 0;
  RingSteps rings{};
};

class NicExecutor final : public NicClient, private Verbs, private OperationSink, private StepWatch {
 public:
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void finished(const OperationResult& result, Picoseconds now) = 0;
    // The rank has received a ring step. Called from inside the executor: it may not call the executor.
    virtual void step_received(std::uint32_t /*ring_step*/, Picoseconds /*now*/) {}
  };

  // Becomes a client of the host's NIC, with a staging region of the job and one communicator of all
  // ranks. `layout` and `sink` must outlive the executor.
  NicExecutor(Network& network, const NicExecutorConfig& config, const StagingLayout& layout, Sink& sink);
  ~NicExecutor() override;
  NicExecutor(const NicExecutor&) = delete;

  std::uint32_t staging_key() const { return key_; }
  // The rank reaches `peer`, whose staging region has this key, by queue pair `qp` of its host. Throws
  // std::invalid_argument where the queue pair is another job's or another client's.
  void connect(JobRank peer, QpNumber qp, std::uint32_t peer_key);
  // The rank's parts of sums in the network go by this queue pair of its host, in turn with those of earlier calls;
  // the layout has an area for them.
  void connect_sums(QpNumber qp);
  // Each ring step from `from` to `to` takes the next of these queue pairs, (number at `from`, number at `to`),
  // as a new one. The two are connected already.
  static void take_by_step(NicExecutor& from, NicExecutor& to, const std::vector<std::pair<QpNumber, QpNumber>>& pairs);
  // The communicator is closed, and another one made in its place. No operation of it runs here.
  void remake(CommunicatorId id, Picoseconds now);
  // As CollectiveExecutor::release_steps.
  void release_steps(std::uint32_t end, Picoseconds now);
  // Operations run one after another, in the order of start().
  void start(Operation operation, Picoseconds now);

  void on_completion(const Completion& c, Picoseconds now) override;
  void on_arrival(const Arrival& a, Picoseconds now) override;

 private:
  static constexpr JobRank kNobody = ~0u;
  struct Peer {
    QpNumber qp = 0;
    std::uint32_t key = 0;
    std::unique_ptr<StepSender> sender;      // null: all goes by `qp`
    std::unique_ptr<StepReceiver> receiver;  // null: all comes by `qp`
  };
  struct Outgoing {
    QpNumber qp;
    StepSender* sender;  // null: it goes by `qp`
    WorkRequest request;
  };
  JobRank peer_of(QpNumber qp) const { return qp < by_qp_.size() ? by_qp_[qp] : kNobody; }
  void post(JobRank peer, const Write& write) override;
  void post_sum(const Sum& sum) override;
  void own(JobRank peer, QpNumber qp);
  void create(CommunicatorId id);
  void step_received(std::uint32_t, std::uint32_t ring_step) override { sink_.step_received(ring_step, now_); }
  void finished(OperationId, const OperationResult& result) override { sink_.finished(result, now_); }
  void flush(Picoseconds now);

  NicExecutorConfig config_;
  Nic& nic_;
  Sink& sink_;
  ClientId client_{};
  std::uint32_t key_ = 0;
  SparseMemory staging_;
  std::unique_ptr<CollectiveExecutor> executor_;
  std::vector<Peer> peers_;
  std::vector<JobRank> by_qp_;
  SumPairs sums_;
  std::vector<Outgoing> outbox_;
  Picoseconds now_{};
  bool flushing_ = false;
};

// What a rank's memory has for sums in the network: StagingConfig's sum_slots and so on.
struct SumShape {
  std::uint32_t slots = 7, values = 256, window = 256, scale = 0, servers = 1, reach = 2;
  bool floats = false;
};

// Slots and their size for operations of which none moves more than `longest` bytes: no slot is longer
// than that. One communicator without messages has one channel.
StagingLayout staging_layout(std::size_t ranks, std::uint64_t longest, std::uint32_t slots, std::uint32_t slot_payload,
                             const std::optional<SumShape>& sums = {});

}  // namespace loomnet
