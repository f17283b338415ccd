// Ranges of the options.
#include "transport/ina/options.hpp"
#include "transport/ina/fragment.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace loomnet::ina {
namespace {

[[noreturn]] void refuse(const char* field, const std::string& range) {
  throw std::invalid_argument(std::string("InaOptions.") + field + ": " + range);
}

constexpr double kHour = 3600e12;

}  // namespace

const OptionTable<InaOptions>& InaOptions::table() {
  static const OptionTable<InaOptions> rows = [] {
    using O = InaOptions;
    OptionTable<O> t("InaOptions");
    t.choice("scheme", &O::scheme, aggregate_policy_names<std::string>(), {.doc = "whose rules hosts follow"})
        .add("values", &O::values, {.doc = "int32 in a fragment", .least = 64, .most = 256, .range = "64, 128 or 256"})
        .add("window", &O::window,
             {.doc = "fragments of a worker under way at once (SwitchML: 256)", .least = 1, .most = 32768})
        .add("pool", &O::pool, {.doc = "slots that indices spread over", .least = 0, .most = 1'000'000})
        .choice("index_policy", &O::index_policy, {"rehash", "static", "seq"},
                {.doc = "a new index for what collided (ATP), the first one for ever, or a hash of each number"})
        .choice("result_path", &O::result_path, {"ps", "switch"},
                {.doc = "who multicasts a sum that is whole at the tree's root"})
        .add("saturate", &O::saturate, {.doc = "additions stop at the int32 range"})
        .add("first_sequence", &O::first_sequence,
             {.doc = "number of the job's first fragment", .least = 0, .most = 0x1p62})
        .add("rto_first", &O::rto_first,
             {.unit = "ps", .doc = "timeout before a tensor's first result (ATP: 50 ms)", .least = 1e6, .most = kHour})
        .add("rto_min", &O::rto_min,
             {.unit = "ps", .doc = "least timeout (ATP: 0.2 ms; SwitchML: 10 ms)", .least = 1e6, .most = kHour})
        .add("rto_cap", &O::rto_cap,
             {.doc = "most of the first timeout that doubling reaches, as a multiple", .least = 1, .most = 1024})
        .add("rto_jitter", &O::rto_jitter,
             {.doc = "share by which a restarted timeout varies either way",
              .least = 0,
              .most = 0.999,
              .range = "0 to 0.999"})
        .add("congestion_control", &O::congestion_control, {.doc = "ATP's window by ECN marks; off: cwnd_cap"})
        .add("cwnd_cap", &O::cwnd_cap,
             {.unit = "packets",
              .doc = "most of the congestion window; 0: window (ATP: 100)",
              .least = 0,
              .most = 32768})
        .add("cwnd_step_bytes", &O::cwnd_step_bytes,
             {.unit = "bytes", .doc = "added for a window without a mark (ATP: 1500)", .least = 1, .most = 1e6})
        .add("gap_repair", &O::gap_repair,
             {.doc = "what a later result of its tree has overtaken is sent again, once (ATP)"})
        .add("switch_rtt", &O::switch_rtt,
             {.unit = "ps",
              .doc = "idle round trip of server and switch, until one is measured",
              .least = 1,
              .most = kHour})
        .add("remind_rtts", &O::remind_rtts,
             {.doc = "round trips until the first reminder", .least = 1, .most = 100'000})
        .add("remind_min", &O::remind_min,
             {.unit = "ps", .doc = "least delay of a reminder", .least = 0, .most = kHour})
        .add("remind_cap", &O::remind_cap,
             {.doc = "most of a reminder's first delay, as a multiple", .least = 1, .most = 1024})
        .add("early_gap", &O::early_gap,
             {.doc = "finished fragments ahead that bring an early reminder; 0: max(3, window / 2)",
              .least = 0,
              .most = 65536})
        .add("nak_from", &O::nak_from, {.doc = "the reminder that a NAK goes with", .least = 1, .most = 1'000'000})
        .add("components", &O::components, {.doc = "the server keeps parts that overlap; off: one sum"})
        .add("switchml_timeout", &O::switchml_timeout,
             {.unit = "ps", .doc = "SwitchML's timeout", .least = 1e6, .most = kHour})
        .add("switchml_threshold", &O::switchml_threshold,
             {.doc = "timeouts until SwitchML doubles its timeout", .least = 1, .most = 1e9})
        .add("switchml_threads", &O::switchml_threads,
             {.doc = "threads of a SwitchML worker, each of which counts its own timeouts", .least = 1, .most = 64})
        .add("switchml_slices", &O::switchml_slices,
             {.doc = "SwitchML's timeout begins anew with each tensor, as the DPDK client's does"});
    return t;
  }();
  return rows;
}

void check(const InaOptions& o) {
  InaOptions::table().check(o);
  if (o.scheme >= AGGREGATE_SCHEMES) refuse("scheme", "no such policy");
  if (o.values != 64 && o.values != 128 && o.values != 256) {
    refuse("values", "64, 128 or 256, not " + std::to_string(o.values));
  }
  if (o.result_path == ResultPath::root && o.index_policy == IndexPolicy::rehash) {
    refuse("result_path", "switch needs index_policy static or seq: the root assigns no new index");
  }
  if (o.result_path == ResultPath::root && o.policy().answering == AGGREGATE_SERVER_ANSWERS) {
    refuse("result_path", std::string("switch: under ") + o.policy().name + " slots wait for the server's RESULT");
  }
}

void check(const InaJob& job, const InaOptions& options) {
  check(options);
  const auto wrong = [&](const char* field, const std::string& why) {
    throw std::invalid_argument("InaJob." + std::string(field) + ": job " + std::to_string(job.job) + ": " + why);
  };
  if (job.job == 0xffff) wrong("job", "at most 65,534");
  if (job.workers == 0) wrong("workers", "at least one");
  for (const std::vector<std::uint16_t>& hops : job.trees) {
    for (auto hop = hops.begin(); hop != hops.end(); ++hop) {
      if (std::find(hops.begin(), hop, *hop) != hop) {
        wrong("trees", "switch " + std::to_string(*hop) + " stands twice in one");
      }
    }
  }
}

void check(const Contribution& contribution, const InaOptions& options) {
  if (contribution.floats && (contribution.boot || !options.policy().has_servers())) {
    throw std::invalid_argument("ina::Contribution.floats: of a fragment with values, and not without a server");
  }
  const std::size_t bytes = contribution.values.size(), most = contribution.boot ? 0 : 4 * std::size_t{options.values};
  if (bytes % 4 == 0 && bytes <= most && (contribution.boot || bytes > 0)) return;
  throw std::invalid_argument("ina::Contribution.values: 1 to " + std::to_string(options.values) +
                              " int32, none with boot; not " + std::to_string(bytes) + " bytes");
}

}  // namespace loomnet::ina
