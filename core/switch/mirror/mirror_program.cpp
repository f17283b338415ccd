// Mirror's options and counters around the logic in ebpf/mirror.h.
#include "switch/mirror/mirror_program.hpp"

#include <array>
#include <span>

#include "ebpf/mirror.h"
#include "switch/c_program.hpp"
#include "switch/forward/forward_kind.hpp"
#include "switch/forward/native_lookups.hpp"

namespace loomnet {
namespace {

struct MirrorLogic : FallsThroughToForward {
  static constexpr std::string_view kName = "mirror";
  static constexpr std::string_view kSummary =
      "an example: answers UDP echo requests, sends multicast packets to a group, forwards the rest";
  static constexpr ProgramNeeds kNeeds{.view = true, .header_bytes = MIRROR_HEADER};
  using Config = mirror_config;

  static std::vector<ProgramOption> options() {
    std::vector<ProgramOption> all = forward_options();
    all.push_back({"sample", std::int64_t{1}, "one of so many echo requests is answered", 1, 1e9});
    all.push_back(
        {"snap", std::int64_t{0}, "bytes of its frame that an answer keeps at most, 62 or more; 0: all", 0, 65535});
    all.push_back({"mark_above", std::int64_t{0},
                   "bytes waiting above which half of the leaving packets are marked; 0: none", 0, 1e15});
    return all;
  }
  static Config config(const ProgramSettings& s) {
    return {forward_settings(s), static_cast<ln_u32>(integer(s, "sample")), static_cast<ln_u32>(integer(s, "snap")),
            static_cast<ln_u64>(integer(s, "mark_above"))};
  }
  static std::vector<std::string_view> own_counters() {
    std::vector<std::string_view> names = forward_counters();
#define MIRROR_NAME(symbol, name) names.push_back(name);
    MIRROR_COUNTERS(MIRROR_NAME)
#undef MIRROR_NAME
    return names;
  }
  static StateLayout state() { return {}; }
  static ln_verdict ingress(const Config& config, ln_host& host, ln_packet& packet, const ln_meta& meta) {
    return mirror_ingress(&config, &host, &packet, &meta);
  }
  static std::vector<EgressCounter> egress_counters() { return {{"above"}}; }
  static std::vector<StateLayout> egress_state(const ProgramSettings&) { return {}; }
  static std::span<const std::string_view> egress_notes() {
    static constexpr std::array<std::string_view, 1> kNames = {"waiting_bytes"};
    return kNames;
  }
  static bool watches(const Config&, const EgressPlace&) { return true; }
  static ln_u32 egress(const Config& config, ln_egress_host& host, ln_packet& packet, const ln_egress_meta& meta) {
    return mirror_egress(&config, &host, &packet, &meta);
  }
};

}  // namespace

ProgramKind mirror_kind() { return CProgram<MirrorLogic>::kind(); }

}  // namespace loomnet
