// The live clock: the network's own event queue gated by the wall clock, with packets going out to
// and coming in from the kernel. One thread, which sleeps 20 us whenever a pass found no work: a
// busy loop would starve the kernel's own packet processing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/network.hpp"
#include "live/command_queue.hpp"
#include "live/fidelity.hpp"
#include "live/holders.hpp"
#include "live/host_carriers.hpp"
#include "live/live_clock.hpp"
#include "live/live_fabric.hpp"
#include "live/stages.hpp"
#include "live/uid_table.hpp"
#include "live/worker.hpp"
#include "switch/kernel_return.hpp"

namespace loomnet {

struct LiveLoopConfig {
  double dilation = 1;
  bool realtime = true;  // SCHED_FIFO 1, else nice -20, else as we are
  std::int64_t idle_sleep_ns = 20'000;
  // Awake longer than `awake_limit_ns` under SCHED_FIFO, the loop sleeps for `rest_ns` even with work to do. The
  // kernel stops a thread for up to 50 ms in every second in which the ordinary tasks of its core got less than
  // 5 % of it. A sleep of 20 us leaves them 4 %, since the change to them and back takes part of it; 40 us
  // leave them 8 %.
  std::int64_t awake_limit_ns = 400'000;
  std::int64_t rest_ns = 40'000;
  std::int64_t uid_timeout_ns = 1'000'000'000;   // a uid that is away longer is missing
  Picoseconds lateness_bound = milliseconds(1);  // a p99 above it: "fell behind"
};

// What else a pass looks at: the ranks' ports.
class LivePoller {
 public:
  virtual ~LivePoller() = default;
  // True if there was work. Adds to `posts` how long each request that it found had waited.
  virtual bool poll(Picoseconds now, LatenessHistogram& posts) = 0;
};

class LiveLoop final : public KernelGate {
 public:
  // Network and fabric must outlive the loop, and are its thread's alone between start() and
  // stop(): others reach them through call().
  LiveLoop(Network& network, LiveFabric& fabric, const LiveLoopConfig& config = {});
  ~LiveLoop() override;

  void add_poller(LivePoller& poller) { pollers_.push_back(&poller); }  // before start()
  // Starts the clock where the network's stands. Throws LiveError.
  void start();
  // Runs `work` between two passes, on the loop's thread, or here where the loop stands for this thread; its result
  // or exception comes back here.
  template <typename Work>
  auto call(Work work) -> decltype(work()) {
    if (holders_.mine()) return work();
    return commands_.call(std::move(work));
  }
  // The threads that hold the loop now, by LiveRun::pause().
  Holders& holders() { return holders_; }
  // Called by a command on the loop's thread: calls `stands`, then waits until `go` is ready. Meanwhile another thread
  // may change the network, so the loop only takes frames from the sockets, which hold few, and keeps them.
  void stand(const std::function<void()>& stands, std::future<void> go);
  bool post(CommandQueue::Command command) { return commands_.post(std::move(command)); }
  // Ends the loop: waits up to 100 ms for packets in the kernel, joins. Idempotent.
  void stop();
  bool running() const { return thread_.joinable(); }
  // What a loaded switch program has done wrong (ProgramFault); nothing: none has. From then on no packet moves.
  // Any thread.
  std::string program_fault() const {
    const std::lock_guard lock(fault_guard_);
    return fault_;
  }
  // The kernel's id of the loop's thread; 0 before the thread runs.
  pid_t thread_id() const { return thread_id_.load(); }
  const LiveClock& clock() const { return clock_; }

  // Lateness since the last call, by stage: one phase's window. While running, any thread; after stop(), the one that
  // called it.
  StageLateness take_window();
  // Frames taken from the kernel so far, how late packets were, and how many were later than `bound`. While
  // running, any thread.
  struct Pace {
    std::uint64_t frames = 0, late = 0;
    LatenessSummary packets;
  };
  Pace pace(Picoseconds bound);
  // The whole run, with every packet accounted for. After stop().
  Fidelity fidelity();

  // KernelGate; the network calls these on the loop's thread.
  void to_switch(NodeId node, std::uint16_t port, PacketPtr packet, Picoseconds now) override;
  void to_host(HostId host, PlanePort port, PacketPtr packet, Picoseconds now) override;
  void deadline_served(Picoseconds due) override { window_[Stage::timer].record(instant_ - due); }
  void set_carrier(NodeId host, std::uint16_t port, bool up, Picoseconds at) override;
  void carriers_set() override { carriers_.flush(); }
  void publish_panel(NodeId node, std::span<const panel_entry> entries) override;

 private:
  static constexpr std::size_t kBatch = 64;
  static constexpr std::uint32_t kNoPort = ~0u;
  struct Port {
    XskSocket* socket = nullptr;
    PortKind kind = PortKind::xdp_switch;
    NodeId node = 0;
    std::uint16_t port = 0;
    MacAddress mac{};
    std::uint32_t reckoning = 0;  // index into reckonings_
    bool dirty = false;  // has frames to flush
    XdpProgram* program = nullptr;  // of an XDP switch
  };
  // Plain counters of the loop's thread, read after it ended or through call().
  struct Counters {
    std::uint64_t received = 0, sent = 0;  // frames from and to sockets
    std::uint64_t foreign = 0;  // frames without a uid of ours: dropped
    std::uint64_t no_metadata = 0;  // a known uid, but no switch program's metadata
    std::uint64_t metadata_mismatch = 0;  // the program's ports are not the record's
    std::uint64_t malformed = 0;  // shorter than its headers
    std::uint64_t swept = 0;  // given up after uid_timeout
    std::uint64_t reported = 0;  // by a switch: absorbed, passed or dropped
    std::uint64_t unknown_report = 0;  // of a uid that no switch holds
    std::uint64_t umem_dry = 0;  // own loss: no frame to send in
    std::uint64_t tx_ring_full = 0;  // own loss: the kernel did not take frames in time
    std::uint64_t too_long = 0;  // own loss: longer than a frame
    std::uint64_t no_port = 0;  // own loss: no such kernel port
    std::uint64_t host_frames = 0;  // frames of hosts' kernels
  };

  struct Arriving {
    PacketPtr packet;
    NodeId node;
    std::uint16_t port;
  };

  void darken_hosts();
  void run();
  bool pass();
  void stand_still(const std::string& fault);
  void offer_returned();
  void catch_up(Picoseconds now);
  bool receive_all(Picoseconds instant);
  bool receive(Port& port, std::span<const ReceivedFrame> frames, Picoseconds instant);
  void from_xdp_switch(Port& port, const ReceivedFrame& frame, Picoseconds now);
  void return_packet(Port& port, PacketPtr packet, const KernelVerdict& verdict);
  bool take_reports();
  void on_report(const ln_report& report);
  void from_kernel(Port& port, const ReceivedFrame& frame, Picoseconds now);
  void attach(Packet& packet, Port& port, const ReceivedFrame& frame, bool bytes);
  void from_xdp_panel(Port& port, const ReceivedFrame& frame, Picoseconds now);
  std::uint64_t drops_of(NodeId node) const;  // of a node in the kernel, by its own named reasons
  void drop_frame(Port& port, const ReceivedFrame& frame) { port.socket->umem().put(frame.handle); }
  bool send(std::uint32_t index, Packet& packet, bool with_uid);
  bool flush();
  void housekeeping(std::int64_t wall);
  void sleep(std::int64_t now, std::int64_t lasts);
  Picoseconds emulated(std::int64_t wall_ns) const;
  void take_priority();
  std::uint32_t find(NodeId node, std::uint16_t port) const {
    if (node >= by_node_.size() || port >= by_node_[node].size()) return kNoPort;
    return by_node_[node][port];
  }

  Network& network_;
  LiveFabric& fabric_;
  LiveLoopConfig config_;
  LiveClock clock_;
  CommandQueue commands_;
  Holders holders_;
  std::vector<LivePoller*> pollers_;
  std::vector<Port> ports_;
  std::vector<std::vector<std::uint32_t>> by_node_;  // [node][port] -> index into ports_
  std::vector<std::uint32_t> dirty_;
  std::array<ReceivedFrame, kBatch> batch_;
  std::vector<Arriving> returned_, from_hosts_;  // of one pass
  std::vector<std::pair<std::uint32_t, ReceivedFrame>> kept_;  // by index into ports_, while the loop stood
  UidTable in_kernel_;
  std::vector<SwitchReckoning> reckonings_;
  StageLateness window_, whole_;
  Counters counters_;
  std::int64_t pass_wall_ = 0;  // when this pass began …
  std::int64_t looked_ = 0;  // … and the one before it, which looked at the sockets first
  Picoseconds instant_{};  // of this pass
  std::int64_t awake_since_ = 0;
  bool fifo_ = false;
  std::int64_t longest_pass_ns_ = 0;
  std::int64_t next_housekeeping_ = 0;
  std::uint64_t passes_ = 0;
  std::string scheduling_ = "not started";
  bool still_ = false;  // a program has failed
  mutable std::mutex fault_guard_;
  std::string fault_;
  std::vector<LiveFabric::PortLosses> losses_before_;  // per port, at construction
  std::vector<std::uint64_t> switch_drops_before_;  // per reckoning …
  std::vector<std::uint64_t> unreported_before_;  // … and likewise
  bool stopping_ = false;
  std::atomic<pid_t> thread_id_{0};
  std::unique_ptr<Worker> tables_;  // of panels in the kernel; null: nothing was published yet
  HostCarriers carriers_;  // of hosts at panels
  std::thread thread_;
};

}  // namespace loomnet
