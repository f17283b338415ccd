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
void within(const char* field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) {
    refuse(field, std::to_string(least) + " to " + std::to_string(most) + ", not " + std::to_string(value));
  }
}

constexpr std::int64_t kHour = 3600ll * 1'000'000'000'000;

}  // namespace

void check(const InaOptions& o) {
  within("scheme", o.scheme, AGGREGATE_SWITCHML, AGGREGATE_ESA);
  if (o.values != 64 && o.values != 128 && o.values != 256) {
    refuse("values", "64, 128 or 256, not " + std::to_string(o.values));
  }
  within("window", o.window, 1, 32768);
  within("pool", o.pool, 0, 1'000'000);
  within("servers", o.servers, 1, 64);
  if (o.window % o.servers) refuse("servers", "window must be a multiple of it");
  within("first_sequence", o.first_sequence, 0, std::int64_t{1} << 62);
  if (o.result_path == ResultPath::root && o.index_policy == IndexPolicy::rehash) {
    refuse("result_path", "root needs index_policy fixed or sequence: the root assigns no new index");
  }
  if (o.result_path == ResultPath::root && o.scheme == AGGREGATE_ATP) {
    refuse("result_path", "root needs scheme ESA: ATP's slots wait for the server's RESULT");
  }
  within("rto_min", o.rto_min.count, 1, kHour);
  within("rto_first", o.rto_first.count, 1, kHour);
  within("rto_cap", o.rto_cap, 1, 1024);
  if (!(o.rto_jitter >= 0 && o.rto_jitter < 1)) {
    refuse("rto_jitter", "0 to below 1, not " + std::to_string(o.rto_jitter));
  }
  within("cwnd_cap", o.cwnd_cap, 0, 32768);
  within("cwnd_step_bytes", o.cwnd_step_bytes, 1, 1'000'000);
  within("switch_rtt", o.switch_rtt.count, 1, kHour);
  within("remind_rtts", o.remind_rtts, 1, 100'000);
  within("remind_min", o.remind_min.count, 0, kHour);
  within("remind_cap", o.remind_cap, 1, 1024);
  within("early_gap", o.early_gap, 0, 65536);
  within("nak_from", o.nak_from, 1, 1'000'000);
  within("switchml_timeout", o.switchml_timeout.count, 1, kHour);
  within("switchml_threshold", o.switchml_threshold, 1, 1'000'000'000);
}

void check(const InaJob& job, const InaOptions& options) {
  check(options);
  const auto wrong = [&](const char* field, const std::string& why) {
    throw std::invalid_argument("InaJob." + std::string(field) + ": job " + std::to_string(job.job) + ": " + why);
  };
  if (job.job == 0xffff) wrong("job", "at most 65,534");
  if (job.workers == 0) wrong("workers", "at least one");
  for (std::size_t i = 0; i < job.hops.size(); ++i) {
    if (std::find(job.hops.begin(), job.hops.begin() + static_cast<std::ptrdiff_t>(i), job.hops[i]) !=
        job.hops.begin() + static_cast<std::ptrdiff_t>(i)) {
      wrong("hops", "switch " + std::to_string(job.hops[i]) + " stands twice");
    }
  }
}

void check(const Contribution& contribution, const InaOptions& options) {
  const std::size_t bytes = contribution.values.size(), most = contribution.boot ? 0 : 4 * std::size_t{options.values};
  if (bytes % 4 == 0 && bytes <= most && (contribution.boot || bytes > 0)) return;
  throw std::invalid_argument("ina::Contribution.values: 1 to " + std::to_string(options.values) +
                              " int32, none with boot; not " + std::to_string(bytes) + " bytes");
}

}  // namespace loomnet::ina
