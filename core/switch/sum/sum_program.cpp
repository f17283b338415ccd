// Sum's counters and the fields of its state around the logic in ebpf/sum.h.
#include "switch/sum/sum_program.hpp"

#include <cstddef>
#include <type_traits>

#include "ebpf/sum.h"
#include "switch/c_program.hpp"
#include "switch/forward/forward_kind.hpp"
#include "switch/forward/native_lookups.hpp"

namespace loomnet {
namespace {

struct SumLogic : FallsThroughToForward {
  static constexpr std::string_view kName = "sum";
  static constexpr std::string_view kSummary =
      "an example: absorbs three packets of UDP ports 48896 to 48911 and sends the fourth with their "
      "payload bytes added, forwards the rest";
  static constexpr ProgramNeeds kNeeds{
      .view = true, .header_bytes = SUM_PAYLOAD_AT, .payload_bytes = SUM_PAYLOAD_BYTES};
  using Config = sum_config;

  static std::vector<ProgramOption> options() { return forward_options(); }
  static Config config(const ProgramSettings& s) { return {forward_settings(s)}; }
  static std::vector<std::string_view> own_counters() {
    std::vector<std::string_view> names = forward_counters();
#define SUM_NAME(symbol, name) names.push_back(name);
    SUM_COUNTERS(SUM_NAME)
#undef SUM_NAME
    return names;
  }
  static StateLayout state() {
    StateLayout layout{"sums", SUM_ROWS, sizeof(sum_row), {}};
#define SUM_FIELD(row, field)                                       \
  layout.fields.push_back({#field, offsetof(row, field), sizeof(row::field), \
                           std::is_integral_v<decltype(row::field)>});
    SUM_FIELDS(SUM_FIELD)
#undef SUM_FIELD
    return layout;
  }
  static ln_verdict ingress(const Config& config, ln_host& host, ln_packet& packet, const ln_meta& meta) {
    return sum_ingress(&config, &host, &packet, &meta);
  }
};

}  // namespace

ProgramKind sum_kind() { return CProgram<SumLogic>::kind(); }

}  // namespace loomnet
