// The register of congestion controls.
#include "transport/tcp/congestion.hpp"

#include <algorithm>
#include <stdexcept>

#include "transport/tcp/algorithms.hpp"

namespace loomnet::tcp {
namespace {

std::vector<CongestionFactory>& controls() {
  static std::vector<CongestionFactory> rows = built_in_controls();
  return rows;
}

}  // namespace

void register_congestion_control(CongestionFactory factory) {
  if (factory.name.empty() || !factory.make) {
    throw std::invalid_argument("congestion control: a name and a factory are needed");
  }
  auto& rows = controls();
  const auto same = [&](const CongestionFactory& f) { return f.name == factory.name; };
  if (const auto it = std::find_if(rows.begin(), rows.end(), same); it != rows.end()) {
    *it = std::move(factory);
  } else {
    rows.push_back(std::move(factory));
  }
}

std::unique_ptr<CongestionControl> make_congestion_control(std::string_view name, Window& window,
                                                           const TcpOptions& options,
                                                           std::uint64_t stream) {
  std::string all;
  for (const CongestionFactory& f : controls()) {
    if (f.name == name) return f.make(window, options, stream);
    all += (all.empty() ? "" : ", ") + f.name;
  }
  throw std::invalid_argument("TcpOptions.congestion_control: no control " + std::string(name) +
                              "; there are " + all);
}

std::vector<std::string> congestion_controls() {
  std::vector<std::string> names;
  for (const CongestionFactory& f : controls()) names.push_back(f.name);
  return names;
}

}  // namespace loomnet::tcp
