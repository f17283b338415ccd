#include "bindings/region_options.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

template <class T>
T named(const char* what, const std::string& name, std::initializer_list<std::pair<const char*, T>> known) {
  std::string names;
  for (const auto& [each, value] : known) {
    if (name == each) return value;
    names += names.empty() ? each : std::string(", ") + each;
  }
  throw py::value_error(std::string(what) + " \"" + name + "\" is none of " + names);
}

}  // namespace

moe::FirstDispatch first_dispatch_named(const std::string& name) {
  using enum moe::FirstDispatch;
  return named<moe::FirstDispatch>("moe: fp_dispatch", name,
                                   {{"block", block}, {"reuse", reuse}, {"random", random}, {"copilot", copilot}});
}

moe::Repatch repatch_named(const std::string& name) {
  using enum moe::Repatch;
  return named<moe::Repatch>(
      "moe: repatch", name,
      {{"layer", layer}, {"worthwhile", worthwhile}, {"iteration", iteration}, {"once", once}, {"never", never}});
}

circuits::Split split_named(const std::string& name) {
  using enum circuits::Split;
  return named<circuits::Split>("moe: split", name, {{"all_or_nothing", all_or_nothing}, {"weighted", weighted}});
}

circuits::Duplex duplex_named(const std::string& name) {
  return named<circuits::Duplex>("moe: demand", name, {{"sum", circuits::Duplex::sum}, {"max", circuits::Duplex::max}});
}

circuits::RegionOptions region_options(const RegionSettings& settings, std::optional<AssignerFunction> assigner) {
  circuits::RegionOptions o;
  o.servers = settings.servers;
  o.nics = settings.nics_of_server;
  o.alpha = settings.alpha;
  o.rule = assigner ? circuits::Rule::skip : circuits::rule_named(settings.rule);
  o.ties = circuits::ties_named(settings.ties);
  o.seed = settings.seed;
  o.all_dark = settings.all_dark;
  o.drain_limit = ps(settings.drain_limit_ps);
  o.first_port = settings.first_port;
  if (assigner) {
    o.assigner = [ask = std::move(*assigner)](std::span<const std::uint64_t> demand,
                                              std::span<const std::uint32_t> free) {
      circuits::Assignment found;
      found.servers = free.size();
      found.circuits = ask({demand.begin(), demand.end()}, {free.begin(), free.end()});
      return found;
    };
  }
  return o;
}

std::vector<moe::NicPort> nic_ports(const std::vector<std::pair<NodeId, PlanePort>>& nics) {
  std::vector<moe::NicPort> ports;
  for (const auto& [host, port] : nics) ports.push_back({host, port});
  return ports;
}

py::array region_events(const moe::RegionDriver& driver) {
  py::array_t<RegionEventRow> out(static_cast<py::ssize_t>(driver.events().size()));
  RegionEventRow* at = out.mutable_data();
  for (const auto& e : driver.events()) {
    const auto& k = e.event.key;
    *at++ = {e.event.at.count, static_cast<std::int64_t>(e.generation),
             k.iteration,      k.layer,
             k.micro_batch,    k.backward,
             k.guessed,        static_cast<std::uint8_t>(e.event.kind),
             e.event.changed,  e.event.dark.count};
  }
  return out;
}

KeptMaps region_kept_maps(const moe::RegionDriver& driver) {
  KeptMaps out;
  for (const auto& map : driver.kept_maps()) {
    out.append(py::make_tuple(map.at.count, map.lit.count, map.peer));
  }
  return out;
}

}  // namespace loomnet
