// A steady stream of writes between two NICs of the test bed, for tests and benchmarks of goodput.
#pragma once

#include "mrc_bed.hpp"

namespace loomnet::mrc {

// Keeps host 0 busy towards host 1: `depth` writes of `size` bytes outstanding on each queue pair.
struct Stream {
  static constexpr std::uint64_t kBase = 0x10000;
  static constexpr std::uint32_t kKey = 0xdeadbeef;

  Stream(Mrc& mrc, std::uint32_t size, std::size_t queue_pairs, int depth) : m(mrc), size(size) {
    m.bed.nic(1).add_region(kKey, kBase, size);
    for (std::size_t q = 0; q < queue_pairs; ++q) {
      m.bed.connect(0, qp(q), 1, static_cast<QpNumber>(200 + q));
      for (int i = 0; i < depth; ++i) post(qp(q));
    }
    m.bed.nic(0).on_complete = [this](const Completion& c) {
      ok += c.status == Status::ok;
      if (running && c.status == Status::ok) post(c.qp);
    };
  }
  static QpNumber qp(std::size_t q) { return static_cast<QpNumber>(100 + q); }
  void post(QpNumber q) {
    WorkRequest w;
    w.id = ++id;
    w.length = size;
    w.remote_address = kBase;
    w.remote_key = kKey;
    m.bed.at(m.bed.now(), [this, q, w] { m.bed.post(0, q, w); });
  }
  // Share of `planes` framed ports that payload takes over `span`.
  double goodput(Picoseconds span, std::size_t planes) {
    const auto before = m.bed.nic(1).placed_bytes;
    m.bed.run_until(m.bed.now() + span);
    const double line = 100e9 / 8 * span.seconds() * static_cast<double>(planes);
    return static_cast<double>(m.bed.nic(1).placed_bytes - before) / line;
  }
  Mrc& m;
  std::uint32_t size;
  std::uint64_t id = 0, ok = 0;
  bool running = true;
};

inline MrcOptions line_options() {
  MrcOptions o = MrcOptions::sim(microseconds(6), gigabits(100));
  return o;
}

}  // namespace loomnet::mrc
