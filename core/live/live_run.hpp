// A network on the live clock: its kernel ports, XDP switches and ranks, and the loop that serves them.
// While the loop runs, all that touches the network goes through call(), onto the loop's thread.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/network.hpp"
#include "engine/rank_bridge.hpp"
#include "live/live_fabric.hpp"
#include "live/live_loop.hpp"
#include "live/priority.hpp"
#include "live/rank_poller.hpp"
#include "live/sched_watch.hpp"

namespace loomnet {

class LiveRun {
 public:
  // A port in the kernel. `netns`: descriptor of its namespace, which is copied; a port of an XDP
  // switch is in the switch's.
  struct Port {
    NodeId node = 0;
    std::uint16_t port = 0;
    PortKind kind = PortKind::other_switch;
    int netns = -1;
    std::string interface;
    MacAddress mac{};  // of `interface`; all zero: the kernel's choice
  };
  struct Switch {
    NodeId node = 0;
    int netns = -1;
    std::string name;
    std::string program = "forward";
    std::uint64_t seed = 0;
    ProgramOptions options;
    std::shared_ptr<const TableBatch> tables;  // null: none yet
  };
  // A host's interface that a panel by tc has the other end of.
  struct Fibre {
    NodeId host = 0;
    std::uint16_t port = 0;  // of the host
    int netns = -1;
    std::string interface;
    MacAddress mac{};
  };
  struct Panel {
    NodeId node = 0;
    int netns = -1;
    std::string name;
    PanelHook hook = PanelHook::xdp;
    std::vector<Fibre> fibres;  // with PanelHook::tc, by port of the panel
  };
  // What a rank has done since the last look, and whether it is well.
  struct RankSeen {
    std::vector<RankMark> marks;
    std::uint64_t finished, failed, unfinished;  // works
    std::string under_way;                       // the first unfinished work's name
    RankFault fault;
  };

  // Throws LiveError or std::invalid_argument; nothing is left in the kernel then.
  LiveRun(Network& network, const std::vector<Port>& ports, const std::vector<Switch>& switches, double dilation,
          Picoseconds lateness_bound, const std::vector<Panel>& panels = {});
  ~LiveRun();  // close()
  LiveRun(const LiveRun&) = delete;

  void add_rank(RankBridge& bridge, std::uint32_t job = 0) { poller_.add(bridge, job); }
  void start();
  // A process of a rank, for what held up the loop.
  void name_rank(pid_t process) { watch_.name_rank(process); }
  void stop();
  void close();
  // Holds the loop between two passes until resume(): the network may be touched by this thread. A pause within a
  // pause ends with its own resume(), and the loop goes on after the last.
  void pause() { pause(std::chrono::hours(1)); }
  // The same, if the loop stands within this time; false: not yet, and pause() is to be called again.
  bool pause(std::chrono::nanoseconds most);
  void resume();
  // Runs `work` on the loop's thread, or here where the loop does not run or stands for this thread.
  template <typename Work>
  auto call(Work work) -> decltype(work()) {
    if (loop_ && loop_->running()) return loop_->call(std::move(work));
    return work();
  }
  // One visit to the loop's thread for all ranks: each visit costs the loop a wake-up call.
  std::vector<RankSeen> look(const std::vector<RankBridge*>& bridges);

  Picoseconds now() const { return loop_ && loop_->running() ? loop_->clock().now() : network_.now(); }
  // How far a capture lags, so that its packets are in order of time: lateness is far below 200 ms
  // of wall time.
  Picoseconds slack() const { return milliseconds(200).scaled(1 / dilation_); }
  Network& network() { return network_; }
  LiveLoop& loop() { return *loop_; }
  LiveFabric& fabric() { return *fabric_; }
  // Throws std::invalid_argument.
  std::size_t port_index(NodeId node, std::uint16_t port) const;
  // Of the run until now; after close(), of the whole run.
  Fidelity fidelity() { return loop_ ? loop_->fidelity() : fidelity_; }

 private:
  void go_on();  // ends the loop's standing

  Network& network_;
  RankPoller poller_;
  SchedWatch watch_;
  double dilation_;
  std::vector<Netns> namespaces_;
  std::unique_ptr<LiveFabric> fabric_;
  std::unique_ptr<LiveLoop> loop_;
  Fidelity fidelity_;
  std::mutex pausing_;  // guards the rest
  std::promise<void> resumed_;
  std::shared_future<void> stands_;  // valid: a pause() has been asked for, and the last resume() has not
  int awaiting_ = 0;                 // threads in pause(), which do not hold the loop yet
  BorrowedPriority priority_;        // of the thread that asked for it
};

}  // namespace loomnet
