// A tap that ignores everything, for taps that note a part.
#pragma once

#include "packet/tap.hpp"

namespace loomnet::testing {

class QuietTap : public Tap {
 public:
  void sent(std::uint32_t, const Packet&, Picoseconds, Picoseconds) override {}
  void delivered(std::uint32_t, const Packet&, Picoseconds) override {}
  void dropped(std::uint32_t, const Packet&, std::string_view, bool, Picoseconds) override {}
  void queued(std::uint32_t, std::uint64_t, Picoseconds) override {}
  void refused(std::uint32_t, const Packet&, std::string_view, Picoseconds) override {}
  void ended(std::uint32_t, const Packet&, std::string_view, Picoseconds) override {}
  void posted(std::uint32_t, std::uint32_t, const WorkRequest&, Picoseconds) override {}
  void completed(std::uint32_t, const Completion&, Picoseconds) override {}
  void work_begins(std::uint32_t, const WorkLabel&, Picoseconds) override {}
  void work_ends(std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t, bool, Picoseconds) override {}
  void rank_clock(std::uint32_t, std::int64_t, Picoseconds) override {}
};

}  // namespace loomnet::testing
