// Workers, parameter servers and the engine's build of the switch program on an event queue of the test's
// own, with loss, duplication, overtaking and stragglers. Checks every sum on its way: a slot's sum (I1) and one in
// flight (I2) is that of its workers, parts are disjoint (I3), none is lost (I4) or outlives two windows (I5).
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <queue>

#include "packet/packet.hpp"
#include "switch/aggregate/aggregate_program.hpp"
#include "switch/packet_view.hpp"
#include "switch_aggregate/fragments.hpp"
#include "transport/ina/parameter_server.hpp"
#include "transport/ina/switchml_worker.hpp"
#include "transport/ina/worker.hpp"
#include "transport_ina/ina_case.hpp"

namespace loomnet::ina::test {

inline constexpr std::size_t kValues = 64, kFrame = AGGREGATE_PAYLOAD_AT + 4 * kValues;

struct Frame {
  std::array<std::uint8_t, kFrame> bytes;
  std::size_t size = kFrame;
  aggregate_header header() const {
    aggregate_header h;
    std::memcpy(&h, &bytes[AGGREGATE_AT], sizeof h);
    return h;
  }
  void set(const aggregate_header& h) { std::memcpy(&bytes[AGGREGATE_AT], &h, sizeof h); }
  Bytes payload() const { return Bytes(bytes).subspan(AGGREGATE_PAYLOAD_AT, size - AGGREGATE_PAYLOAD_AT); }
};

inline Frame frame_of(const Outgoing& out, std::uint8_t server) {
  static const auto blank =
      loomnet::test::udp_frame("fd00::1", AGGREGATE_UDP_PORT, AGGREGATE_HEADER + 4 * kValues, 1, 0);
  Frame frame;
  std::copy(blank.begin(), blank.end(), frame.bytes.begin());
  frame.size = AGGREGATE_PAYLOAD_AT + 4 * std::size_t{out.wire_values};
  frame.bytes[14 + 39] = server;  // the last byte of its address
  frame.set(out.header);
  std::copy(out.values.begin(), out.values.end(), &frame.bytes[AGGREGATE_PAYLOAD_AT]);
  return frame;
}

struct Memory {
  PacketPool pool;
  ViewScratch scratch;
};

// Shows the frame to the program as the engine does; the frame is what leaves, where it leaves.
inline Verdict show(SwitchProgram& program, Memory& memory, Frame& frame, SwitchPort port, Picoseconds now) {
  PacketPtr packet = memory.pool.allocate();
  packet->header_length = AGGREGATE_PAYLOAD_AT;
  std::copy_n(frame.bytes.begin(), AGGREGATE_PAYLOAD_AT, packet->header.begin());
  packet->wire_length = static_cast<std::uint32_t>(frame.size);
  std::uint8_t* const behind = frame.bytes.data() + AGGREGATE_PAYLOAD_AT;
  if (frame.size > AGGREGATE_PAYLOAD_AT) {
    packet->payload = {behind, static_cast<std::uint32_t>(frame.size - AGGREGATE_PAYLOAD_AT), 0, PayloadKind::region};
  }
  PacketView view(*packet, memory.pool, program.needs(), memory.scratch);
  const Verdict verdict = program.ingress_view(view, {now, port});
  if (!verdict.leaves()) return verdict;
  if (view.apply()) throw std::logic_error("the program broke its contract");
  std::copy_n(packet->header.begin(), AGGREGATE_PAYLOAD_AT, frame.bytes.begin());
  if (packet->payload.data && packet->payload.data != behind) {
    std::copy_n(packet->payload.data, packet->payload.length, behind);
  }
  return verdict;
}

// All workers' parts of all fragments of one job, and the sums over any of them.
class Reference {
 public:
  Reference(const Case& c, std::size_t job, std::size_t workers) : workers_(workers) {
    RandomStream random(c.seed, job, 0xda7a);
    for (std::uint32_t n = 0; n < c.fragments; ++n) {
      const bool boot = random.uniform() < c.boot;
      const bool floats = !boot && c.floats > 0 && random.uniform() < c.floats;
      floats_.push_back(floats);
      const std::size_t real = boot ? 0 : random.below(4) ? kValues : 1 + random.below(kValues);
      for (std::size_t w = 0; w < workers; ++w) {
        auto& v = values_.emplace_back();
        v.fill(0);
        for (std::size_t i = 0; i < real; ++i) {
          v[i] = static_cast<std::int32_t>(random());
          // Whole numbers whose sums a float32 holds exactly.
          if (floats) v[i] = std::bit_cast<std::int32_t>(static_cast<float>(v[i] % (1 << 20)));
        }
        Contribution part;
        part.values = {reinterpret_cast<const std::uint8_t*>(v.data()), 4 * real};
        part.exponent = static_cast<std::int8_t>(random.below(256));
        part.boot = boot;
        part.floats = floats;
        part.nonfinite = random.below(20) == 0;
        part.priority = static_cast<std::uint8_t>(c.priorities == 0   ? 100
                                                  : c.priorities == 1 ? 50 + 50 * job
                                                                      : 1 + random.below(255));
        part.first_of_tensor = n % 10 == 0;
        parts_.push_back(part);
      }
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {  // values_ no longer moves
      parts_[i].values = {reinterpret_cast<const std::uint8_t*>(values_[i].data()), parts_[i].values.size()};
    }
  }
  const Contribution& part(std::size_t n, std::size_t w) const { return parts_[n * workers_ + w]; }
  bool equals(std::size_t n, std::uint64_t workers, Bytes sum) const {
    for (std::size_t i = 0; i < sum.size() / 4; ++i) {
      std::uint32_t want = 0, got;
      float total = 0;
      for (std::size_t w = 0; w < workers_; ++w) {
        if (!(workers >> w & 1)) continue;
        const std::int32_t value = values_[n * workers_ + w][i];
        want += static_cast<std::uint32_t>(value);
        total += std::bit_cast<float>(value);
      }
      std::memcpy(&got, &sum[4 * i], 4);
      if (floats_[n] ? total != std::bit_cast<float>(got) : want != got) return false;
    }
    return true;
  }
  int exponent(std::size_t n) const {
    int most = -128;
    for (std::size_t w = 0; w < workers_; ++w) most = std::max<int>(most, part(n, w).exponent);
    return most;
  }
  bool nonfinite(std::size_t n) const {
    bool any = false;
    for (std::size_t w = 0; w < workers_; ++w) any |= part(n, w).nonfinite;
    return any;
  }

 private:
  std::size_t workers_;
  std::vector<bool> floats_;  // by fragment
  std::vector<std::array<std::int32_t, kValues>> values_;
  std::vector<Contribution> parts_;
};

class Network {
 public:
  explicit Network(const Case& c);
  // "" where every worker has every sum, exactly; else what is wrong.
  std::string run(std::uint64_t most_events);

  bool wrong() const { return !wrong_.empty(); }  // as against a run that does not end
  // Timeouts in a row of the fragment that some worker waits for longest.
  std::uint32_t timeouts() const;
  std::uint64_t events() const { return events_; }
  std::uint64_t counter(std::string_view name) const;  // of all switches
  ServerCounters servers() const;
  WorkerCounters workers() const;

 private:
  static constexpr std::uint32_t kServer = 64;  // as a worker's number: the job's server
  struct Peer {
    enum class Kind : std::uint8_t { none, host, box } kind = Kind::none;
    std::uint32_t first = 0, second = 0;  // host: job, worker; box: number, port
  };
  struct Event {
    std::int64_t time;
    std::uint64_t order;
    std::uint32_t frame;  // kTick: a host looks at its deadlines; kReboot, kTables
    Peer at;
    bool operator<(const Event& o) const { return time != o.time ? time > o.time : order > o.order; }
  };
  static constexpr std::uint32_t kTick = ~0u, kReboot = ~0u - 1, kTables = ~0u - 2;
  struct Box {
    std::unique_ptr<SwitchProgram> program;
    std::vector<Peer> peers;
    std::vector<AggregateBatch::Job> jobs;
    std::uint32_t generation = 0;
  };
  struct Host {
    std::optional<Worker> worker;
    std::optional<SwitchMlWorker> switchml;
    Peer self, up;  // up: the switch and its port
    std::int64_t ticks = kNever.count;   // its earliest tick on the queue
    std::int64_t asleep = 0;             // until then it sends nothing
    std::size_t offset = 0;              // fragments of tensors before, where numbers start anew
    std::vector<bool> held;
    template <typename F>
    decltype(auto) with(F f) {
      return worker ? f(*worker) : f(*switchml);
    }
    template <typename F>
    decltype(auto) with(F f) const {
      return worker ? f(*worker) : f(*switchml);
    }
  };
  struct Job {
    InaJob known;
    InaOptions options;
    std::unique_ptr<Reference> reference;
    std::optional<ParameterServer> server;
    Peer self, up;
    std::int64_t ticks = kNever.count;
    std::size_t offset = 0;
    std::vector<std::uint64_t> had;  // I4: union of parts, by fragment
    std::vector<Host> hosts;
  };

  void build(std::size_t box, std::uint32_t slots);
  void new_worker(Job& job, std::size_t w);
  void send(const Peer& to, const Frame& frame);
  void push(std::int64_t time, std::uint32_t frame, const Peer& at) { queue_.push({time, order_++, frame, at}); }
  void arrive(const Peer& at, Frame& frame);
  void through(std::uint32_t number, std::uint32_t port, Frame& frame);
  void to_worker(Job& job, Host& host, const Frame& frame);
  void to_server(Job& job, const Frame& frame);
  void pump(Job& job, Host& host);
  void pump(Job& job);
  void tick_at(std::int64_t& ticks, Picoseconds deadline, const Peer& self);
  void check_slots(std::size_t box);
  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what + " at " + std::to_string(now_ / kHop.count) + " hops";
  }
  std::uint32_t tensor() const { return case_.removed.lifelong_numbers ? 8 : case_.fragments; }
  std::size_t place(const Job& job, std::uint32_t wire, std::size_t offset) const {
    return static_cast<std::size_t>(wire - on_wire(job.options.first_sequence)) + offset;
  }
  bool chance(double p) { return p > 0 && random_.uniform() < p; }

  const Case case_;
  RandomStream random_;
  std::vector<Job> jobs_;
  std::vector<Box> boxes_;
  std::priority_queue<Event> queue_;
  std::vector<Frame> frames_;
  std::vector<std::uint32_t> free_;
  Memory memory_;
  std::int64_t now_ = 0;
  std::uint64_t order_ = 0, events_ = 0;
  std::size_t unfinished_ = 0;
  std::string wrong_;
};

}  // namespace loomnet::ina::test
