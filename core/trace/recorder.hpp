// Records a run in memory, bounded: operations, messages, packet hops and queue depths for a
// timeline, and what passes single ports for captures. Files are written by others, outside the
// run.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "clock/event_queue.hpp"
#include "packet/tap.hpp"
#include "trace/packet_label.hpp"
#include "trace/pcapng.hpp"
#include "trace/queue_series.hpp"
#include "trace/sampler.hpp"

namespace loomnet {

struct RecorderConfig {
  std::uint64_t seed = 0;
  bool timeline = false;  // else captures only
  // Records kept at most: 250,000 hops make a file of about 50 MB.
  std::size_t most_hops = 250'000;
  std::size_t most_messages = 100'000;
  std::size_t most_operations = 50'000;
  std::size_t most_queue_points = 250'000;
  std::size_t most_clock_points = 200'000;
  std::size_t most_marks = 1'000'000;
};

class Recorder final : public Tap {
 public:
  struct Operation {
    std::uint32_t host;
    WorkLabel label;
    Picoseconds begin, end;  // end: kNever while open
    std::uint64_t bytes = 0;
    bool ok = false;
  };
  struct Message {
    std::uint32_t host, qp, number, length;
    Attributes attributes;
    std::uint64_t id;
    Picoseconds posted, completed;  // kNever while open
    std::uint8_t status = 0;
    std::uint32_t missing_bytes = 0;
  };
  // One packet on one link: from offer to the end of its serialisation, or dropped there.
  struct Hop {
    std::uint64_t uid;
    Picoseconds offered, start, done;
    std::uint32_t half, message, length;
    PacketLabel label;
    std::string_view drop;  // reason; empty: it went out
    Attributes attributes;
  };
  // A mark by a switch program's egress hook. All are kept, of packets outside the sample too.
  struct Mark {
    std::uint32_t half;
    Picoseconds at;  // the packet's first bit leaves
    std::uint64_t uid;
    std::string_view by;  // name of the program, which gives its reasons as names and values
    std::span<const std::string_view> names;
    std::array<std::uint32_t, 8> values;
  };
  struct ClockPoint {
    std::uint32_t host;
    std::int64_t wall_ns;
    Picoseconds at;
  };
  // What was seen, of which the records are a sample.
  struct Seen {
    std::uint64_t operations = 0, messages = 0, hops = 0, drops = 0, clock_points = 0, marks = 0;
  };

  explicit Recorder(const RecorderConfig& config);

  // `events` is stopped whenever a capture is full: run_until returns, and it can be taken.
  void stop_when_full(EventQueue* events) { events_ = events; }
  // The capture lives as long as the recorder, or until remove(). `ingress` is the half-link that
  // ends at the port.
  PortCapture& capture(std::uint32_t egress, std::uint32_t ingress, std::unique_ptr<PortCapture> made);
  void remove(const PortCapture& capture);
  // What captures and the timeline count time from: the first job's start. Unless set, it is the
  // engine's; kNever: it will be set later, see PortCapture.
  void set_zero(Picoseconds zero);
  Picoseconds zero() const { return zero_; }

  const RecorderConfig& config() const { return config_; }
  const Seen& seen() const { return seen_; }
  const Sampler& packet_sampler() const { return packets_; }
  const Sampler& operation_sampler() const { return work_; }
  const std::vector<Hop>& hops() const { return hops_; }
  const QueueSeries& queues() const { return queues_; }
  const std::vector<ClockPoint>& clock_points() const { return clock_; }
  const std::vector<Mark>& marks() const { return marks_; }
  // Open ones included, in order of begin.
  std::vector<Operation> operations() const;
  std::vector<Message> messages() const;

  // Tap
  void sent(std::uint32_t half, const Packet& packet, Picoseconds start, Picoseconds done) override;
  void marked(std::uint32_t half, const Packet& packet, const EgressNote& note, Picoseconds now) override;
  void delivered(std::uint32_t half, const Packet& packet, Picoseconds now) override;
  void dropped(std::uint32_t half, const Packet& packet, std::string_view reason, bool was_sent,
               Picoseconds now) override;
  void queued(std::uint32_t half, std::uint64_t bytes, Picoseconds now) override;
  void refused(std::uint32_t node, const Packet& packet, std::string_view reason, Picoseconds now) override;
  void ended(std::uint32_t node, const Packet& packet, std::string_view how, Picoseconds now) override;
  void posted(std::uint32_t host, std::uint32_t qp, const WorkRequest& request, Picoseconds now) override;
  void completed(std::uint32_t host, const Completion& completion, Picoseconds now) override;
  void work_begins(std::uint32_t host, const WorkLabel& label, Picoseconds now) override;
  void work_ends(std::uint32_t host, std::uint32_t job, std::uint64_t number, std::uint64_t bytes, bool ok,
                 Picoseconds now) override;
  void rank_clock(std::uint32_t host, std::int64_t wall_ns, Picoseconds now) override;

 private:
  struct Watcher {
    PortCapture* capture;
    Direction direction;
  };
  bool keeps(const Packet& packet) const;
  void add(const Hop& hop);
  void tighten();
  std::uint64_t operation_id(const WorkLabel& label) const;
  template <typename Call>
  void each_watcher(std::uint32_t half, Call&& call);

  RecorderConfig config_;
  EventQueue* events_ = nullptr;
  Picoseconds zero_{};
  Seen seen_;
  Sampler packets_, work_;
  std::vector<Operation> operations_;                                             // ended
  // (host, job, number)
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>, Operation> open_operations_;
  std::vector<Message> messages_;                                                 // completed
  std::map<std::uint64_t, std::vector<Message>> open_messages_;                   // host << 32 | qp
  std::size_t open_message_count_ = 0;
  std::vector<Hop> hops_;
  QueueSeries queues_;
  std::vector<ClockPoint> clock_;
  std::vector<Mark> marks_;
  std::string mark_;  // in words, of the packet that `sent` shows next; else empty
  std::vector<std::unique_ptr<PortCapture>> captures_;
  std::unordered_map<std::uint32_t, std::vector<Watcher>> watchers_;  // by half
};

}  // namespace loomnet
