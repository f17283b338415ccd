// Switches for Python: programs by name with their options, tables as batches, reboot and snapshot.
#include <pybind11/numpy.h>

#include <algorithm>
#include <cstring>

#include "bindings/bindings.hpp"
#include "switch/aggregate/aggregate_batch.hpp"
#include "switch/forward/forward_batch.hpp"
#include "switch/symphony/symphony_batch.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

SwitchProgram& program_at(Network& network, NodeId node, const char* what) {
  SwitchProgram* program = network.program(node);
  if (!program) {
    throw std::invalid_argument(std::string(what) + ": node " + std::to_string(node) +
                                " runs no switch program in the engine");
  }
  return *program;
}

py::object value_of(const ProgramValue& value) {
  return std::visit([](const auto& v) -> py::object { return py::cast(v); }, value);
}

py::dict programs_dict() {
  py::dict out;
  for (const ProgramKind& kind : program_kinds()) {
    py::dict options, units;
    for (const ProgramOption& o : kind.options) {
      if (!o.unit.empty()) units[py::str(std::string(o.name))] = std::string(o.unit);
      options[py::str(std::string(o.name))] =
          py::make_tuple(value_of(o.fallback), std::string(o.help));
    }
    py::dict row;
    row["summary"] = std::string(kind.summary);
    row["options"] = options;
    row["units"] = units;
    out[py::str(std::string(kind.name))] = row;
  }
  return out;
}

Ipv6Address address_of(const py::bytes& given) {
  const std::string_view bytes = given;
  Ipv6Address address;
  if (bytes.size() != address.size()) throw std::invalid_argument("hosts: an address has 16 bytes");
  std::copy(bytes.begin(), bytes.end(), address.begin());
  return address;
}

ForwardBatch forward_batch(std::uint32_t generation, std::uint32_t block,
                           const std::vector<std::uint16_t>& own,
                           const std::vector<std::pair<std::uint16_t, SwitchPort>>& adjacencies,
                           const std::vector<std::pair<std::uint16_t, SwitchPort>>& fib,
                           const std::vector<std::pair<py::bytes, std::uint16_t>>& hosts,
                           std::vector<std::vector<SwitchPort>> groups) {
  ForwardBatch t;
  t.generation = generation;
  for (const auto usid : own) t.own_un.push_back({block, usid});
  for (const auto& [usid, port] : adjacencies) t.own_ua.push_back({{block, usid}, port});
  for (const auto& [usid, port] : fib) t.fib.push_back({{block, usid}, port});
  for (const auto& [address, group] : hosts) t.hosts.push_back({address_of(address), group});
  t.groups = std::move(groups);
  return t;
}

AggregateBatch::Job aggregate_job_of(const py::dict& row) {
  AggregateBatch::Job job;
  job.job = py::cast<std::uint16_t>(row["job"]);
  job.scheme = static_cast<aggregate_scheme>(py::cast<std::uint8_t>(row["scheme"]));
  job.root = static_cast<aggregate_root>(py::cast<std::uint8_t>(row["root"]));
  job.window = py::cast<std::uint32_t>(row["window"]);
  job.base = py::cast<std::uint32_t>(row["base"]);
  job.up = py::cast<SwitchPort>(row["up"]);
  job.server = address_of(py::cast<py::bytes>(row["server"]));
  for (const auto& [port, workers] :
       py::cast<std::vector<std::pair<SwitchPort, std::uint64_t>>>(row["children"])) {
    job.children.push_back({port, workers});
  }
  for (const auto& [hop, port] : py::cast<std::vector<std::pair<std::uint16_t, SwitchPort>>>(row["hops"])) {
    job.hops.push_back({hop, port});
  }
  return job;
}

using Named = std::pair<std::string_view, SymphonyBatch::Carrier>;
constexpr Named kCarriers[] = {{"udp", SymphonyBatch::Carrier::udp},
                               {"tcp", SymphonyBatch::Carrier::tcp},
                               {"roce", SymphonyBatch::Carrier::roce}};

SymphonyBatch::Rule symphony_rule_of(const py::dict& row) {
  SymphonyBatch::Rule rule;
  rule.source = address_of(py::cast<py::bytes>(row["source"]));
  rule.destination = address_of(py::cast<py::bytes>(row["destination"]));
  const auto carrier = py::cast<std::string>(row["carrier"]);
  const auto known = std::ranges::find(kCarriers, std::string_view(carrier), &Named::first);
  if (known == std::end(kCarriers)) {
    throw std::invalid_argument("rules: carrier: udp, tcp or roce, not \"" + carrier + "\"");
  }
  rule.carrier = known->second;
  rule.port = py::cast<std::optional<std::uint32_t>>(row["port"]).value_or(SYMPHONY_ANY_PORT);
  rule.job = py::cast<std::uint16_t>(row["job"]);
  rule.ring = py::cast<std::uint16_t>(row["ring"]);
  rule.rank = py::cast<std::uint16_t>(row["rank"]);
  rule.nranks = py::cast<std::uint16_t>(row["nranks"]);
  rule.gen = py::cast<std::uint8_t>(row["gen"]);
  rule.step_bytes = py::cast<std::uint32_t>(row["step_bytes"]);
  rule.mtu = py::cast<std::uint16_t>(row["mtu"]);
  const auto base = py::cast<std::optional<std::uint32_t>>(row["base"]);
  rule.known = base.has_value();
  rule.base = base.value_or(0);
  return rule;
}

}  // namespace

ProgramOptions program_options(const py::dict& options) {
  ProgramOptions out;
  for (const auto& [key, value] : options) {
    const auto name = py::cast<std::string>(key);
    if (py::isinstance<py::bool_>(value)) {
      out[name] = py::cast<bool>(value);
    } else if (py::isinstance<py::int_>(value)) {
      int beyond = 0;
      out[name] = std::int64_t{PyLong_AsLongLongAndOverflow(value.ptr(), &beyond)};
      if (beyond != 0) {
        throw std::invalid_argument("switch program option " + name + ": " +
                                    py::cast<std::string>(py::str(value)) +
                                    " is beyond 64 bits; give a smaller number");
      }
    } else if (py::isinstance<py::float_>(value)) {
      out[name] = py::cast<double>(value);
    } else if (py::isinstance<py::str>(value)) {
      out[name] = py::cast<std::string>(value);
    } else {
      throw std::invalid_argument("switch program option " + name +
                                  ": must be true or false, a number or a text, not " +
                                  py::cast<std::string>(py::repr(value)));
    }
  }
  return out;
}

namespace {

void add_snapshot(const StateSnapshot& snapshot, py::dict& out) {
  const StateLayout& layout = snapshot.layout;
  if (layout.name.empty()) return;
  py::list rows;
  for (std::uint32_t r = 0; r < layout.rows; ++r) {
    const std::uint8_t* at = snapshot.bytes.data() + std::size_t{r} * layout.row_bytes;
    if (std::all_of(at, at + layout.row_bytes, [](std::uint8_t b) { return b == 0; })) continue;
    py::dict row;
    row["row"] = r;
    for (const StateField& f : layout.fields) {
      const py::str name{std::string(f.name)};
      if (!f.number) {
        row[name] = py::bytes(reinterpret_cast<const char*>(at + f.offset), f.bytes);
        continue;
      }
      std::uint64_t value = 0;
      for (std::uint32_t i = f.bytes; i-- > 0;) value = value << 8 | at[f.offset + i];
      row[name] = value;
    }
    rows.append(row);
  }
  out[py::str(std::string(layout.name))] = rows;
}

}  // namespace

py::dict snapshots_dict(const std::vector<StateSnapshot>& snapshots) {
  py::dict out;
  for (const StateSnapshot& each : snapshots) add_snapshot(each, out);
  return out;
}

std::vector<StateSnapshot> egress_snapshot(Network& network, NodeId node) {
  SwitchProgram* const hooks = network.hooks(node);
  if (!hooks) return {};
  network.settle(node);
  return hooks->egress_snapshot();
}

void egress_counters(Network& network, NodeId node, std::vector<SwitchCounter>& out) {
  SwitchProgram* const hooks = network.hooks(node);
  if (!hooks) return;
  network.settle(node);
  hooks->egress_counters(out);
}

namespace {

template <class T>
py::array column_of(const StateView& state, const StateField& field) {
  py::array_t<T> column(state.layout->rows);
  auto out = column.template mutable_unchecked<1>();
  for (std::uint32_t row = 0; row < state.layout->rows; ++row) {
    std::memcpy(&out(row), &state.bytes[std::size_t{row} * state.layout->row_bytes + field.offset], sizeof(T));
  }
  return column;
}

}  // namespace

py::list state_columns(const StateView& state, const std::vector<std::string>& names) {
  py::list columns;
  for (const std::string& name : names) {
    const StateField* found = nullptr;
    if (state.layout) {
      for (const StateField& field : state.layout->fields) {
        if (field.name == name && field.number) found = &field;
      }
    }
    if (!found) throw std::invalid_argument("switch_columns: the state has no field of numbers \"" + name + "\"");
    columns.append(found->bytes == 1   ? column_of<std::uint8_t>(state, *found)
                   : found->bytes == 2 ? column_of<std::uint16_t>(state, *found)
                   : found->bytes == 4 ? column_of<std::uint32_t>(state, *found)
                                       : column_of<std::uint64_t>(state, *found));
  }
  return columns;
}

void bind_switches(py::module_& m, py::class_<Network>& network) {
  py::class_<TableBatch, std::shared_ptr<TableBatch>>(
      m, "TableBatch", "One generation of a switch's tables, as bytes that its program reads.")
      .def(py::init([](std::uint32_t generation, const py::bytes& bytes,
                       std::vector<std::vector<SwitchPort>> groups) {
             const std::string_view data = bytes;
             auto batch = std::make_shared<TableBatch>();
             batch->generation = generation;
             batch->bytes.assign(data.begin(), data.end());
             batch->groups = std::move(groups);
             return batch;
           }),
           py::kw_only(), py::arg("generation"), py::arg("bytes"),
           py::arg("groups") = std::vector<std::vector<SwitchPort>>{},
           "groups: the ports that each get a copy, by a replicate verdict's group number.")
      .def_readonly("generation", &TableBatch::generation)
      .def_property_readonly("bytes",
                             [](const TableBatch& b) {
                               return py::bytes(reinterpret_cast<const char*>(b.bytes.data()),
                                                b.bytes.size());
                             })
      .def_readonly("groups", &TableBatch::groups);
  m.def(
      "forward_tables",
      [](std::uint32_t generation, std::uint32_t block, const std::vector<std::uint16_t>& own,
         const std::vector<std::pair<std::uint16_t, SwitchPort>>& adjacencies,
         const std::vector<std::pair<std::uint16_t, SwitchPort>>& fib,
         const std::vector<std::pair<py::bytes, std::uint16_t>>& hosts,
         std::vector<std::vector<SwitchPort>> groups,
         std::vector<std::vector<SwitchPort>> replicate) {
        const ForwardBatch t = forward_batch(generation, block, own, adjacencies, fib, hosts, std::move(groups));
        // The batch was made here and has one owner.
        auto batch = std::const_pointer_cast<TableBatch>(t.pack());
        batch->groups = std::move(replicate);
        return batch;
      },
      py::kw_only(), py::arg("generation"), py::arg("block"), py::arg("own"),
      py::arg("adjacencies"), py::arg("fib"), py::arg("hosts"), py::arg("groups"),
      py::arg("replicate") = std::vector<std::vector<SwitchPort>>{},
      "Tables of the forward program and those that fall through to it: uSIDs of one block, host "
      "routes by ECMP group, and the ports of each group that a replicate verdict may name.");
  m.def(
      "aggregate_tables",
      [](std::uint32_t generation, std::uint32_t block, const std::vector<std::uint16_t>& own,
         const std::vector<std::pair<std::uint16_t, SwitchPort>>& adjacencies,
         const std::vector<std::pair<std::uint16_t, SwitchPort>>& fib,
         const std::vector<std::pair<py::bytes, std::uint16_t>>& hosts,
         std::vector<std::vector<SwitchPort>> groups, const std::vector<py::dict>& jobs) {
        AggregateBatch batch;
        batch.forward = forward_batch(generation, block, own, adjacencies, fib, hosts, std::move(groups));
        for (const py::dict& job : jobs) batch.jobs.push_back(aggregate_job_of(job));
        return std::const_pointer_cast<TableBatch>(batch.pack());
      },
      py::kw_only(), py::arg("generation"), py::arg("block"), py::arg("own"),
      py::arg("adjacencies"), py::arg("fib"), py::arg("hosts"), py::arg("groups"), py::arg("jobs"),
      "Tables of the aggregation program: forward's, and of each job {'job', 'scheme' (0 SwitchML, 1 ATP, "
      "2 ESA), 'root' (0, 1, or 2 for one that answers), 'window' (fragments), 'base' (SwitchML: its first slot), 'up' (port), 'server' "
      "(address), 'children': [(port, bitmap of workers)], 'hops': [(switch number, port)]}.");

  m.def(
      "symphony_tables",
      [](std::uint32_t generation, std::uint32_t block, const std::vector<std::uint16_t>& own,
         const std::vector<std::pair<std::uint16_t, SwitchPort>>& adjacencies,
         const std::vector<std::pair<std::uint16_t, SwitchPort>>& fib,
         const std::vector<std::pair<py::bytes, std::uint16_t>>& hosts,
         std::vector<std::vector<SwitchPort>> groups, const std::vector<py::dict>& jobs,
         const std::vector<py::dict>& rules) {
        SymphonyBatch batch;
        batch.forward = forward_batch(generation, block, own, adjacencies, fib, hosts, std::move(groups));
        for (const py::dict& row : jobs) {
          batch.jobs.push_back({py::cast<std::uint16_t>(row["job"]), py::cast<bool>(row["enable"]),
                                py::cast<bool>(row["prob"]) ? SYMPHONY_PROB : SYMPHONY_SPACED,
                                py::cast<std::uint32_t>(row["g"])});
        }
        for (const py::dict& row : rules) batch.rules.push_back(symphony_rule_of(row));
        return std::const_pointer_cast<TableBatch>(batch.pack());
      },
      py::kw_only(), py::arg("generation"), py::arg("block"), py::arg("own"),
      py::arg("adjacencies"), py::arg("fib"), py::arg("hosts"), py::arg("groups"), py::arg("jobs"),
      py::arg("rules"),
      "Tables of the symphony program: forward's; the jobs that are tracked where they are listed, {'job', "
      "'enable', 'prob', 'g' (steps; 0: as the options say)}; and whose flows are that carry no step header, "
      "{'source', 'destination' (addresses), 'carrier' ('udp', 'tcp' or 'roce'), 'port' (None: any), 'job', "
      "'ring', 'rank', 'nranks', 'gen', 'step_bytes', 'mtu', 'base' (None: learnt from TCP's SYN)}.");

  m.def("switch_programs", programs_dict,
        "{name: {'summary': text, 'options': {name: (default, help)}, 'units': {name: 'bytes', or 'run' of "
        "what a run sets}}} of every switch program.");
  m.def(
      "check_switch_program",
      [](const std::string& name, std::size_t ports, const py::dict& options) {
        make_program(name, ports, 0, program_options(options));
      },
      py::arg("name"), py::arg("ports"), py::arg("options"),
      "Refuses a program, a number of ports or options that cannot be, by a ValueError of one line.");

  network
      .def(
          "add_switch",
          [](Network& n, std::size_t ports, bool kernel, std::uint64_t hash_seed,
             std::uint64_t buffer_bytes, double alpha, bool pfc, const std::string& program,
             const py::dict& options) {
            // Checked also where the kernel runs it: LiveRun takes the same name and options.
            auto made = make_program(program, ports, hash_seed, program_options(options));
            std::unique_ptr<SwitchProgram> hooks;
            if (kernel && !program_kind(program).egress_counters.empty()) hooks = std::move(made);
            if (kernel) made.reset();
            return n.add_switch(ports, std::move(made), {buffer_bytes, alpha, pfc}, std::move(hooks));
          },
          py::arg("ports"), py::kw_only(), py::arg("kernel") = false, py::arg("hash_seed") = 0,
          py::arg("buffer_bytes") = 0, py::arg("buffer_alpha") = 1.0, py::arg("pfc") = false,
          py::arg("program") = "forward", py::arg("options") = py::dict())
      .def(
          "set_tables",
          [](Network& n, NodeId node, std::shared_ptr<TableBatch> tables) {
            (void)program_at(n, node, "set_tables");  // refuses a switch that runs elsewhere
            n.set_tables(node, std::move(tables));
          },
          py::arg("node"), py::arg("tables"))
      .def(
          "reset_switch",
          [](Network& n, NodeId node) {
            (void)program_at(n, node, "reset_switch");  // refuses a switch that runs elsewhere
            n.reset_switch(node);
          },
          py::arg("node"),
          "The switch reboots: its program's state is zeros and its tables are gone, counters stay.")
      .def(
          "switch_snapshot",
          [](Network& n, NodeId node) {
            std::vector<StateSnapshot> all{program_at(n, node, "switch_snapshot").snapshot()};
            for (StateSnapshot& each : egress_snapshot(n, node)) all.push_back(std::move(each));
            return snapshots_dict(all);
          },
          py::arg("node"),
          "{name of the rows: [{'row': number, field: value, …}]}: the program's state, without "
          "rows of zeros, and the rows that its egress hooks keep; {} of a program without state.")
      .def(
          "switch_columns",
          [](Network& n, NodeId node, const std::vector<std::string>& names) {
            return state_columns(program_at(n, node, "switch_columns").state(), names);
          },
          py::arg("node"), py::arg("names"),
          "[array]: of each named field its values in all rows of the program's state, in the order of "
          "the names. ValueError for a field that the state does not have.")
      .def(
          "schedule_tables",
          [](Network& n, std::int64_t at, NodeId node, std::shared_ptr<TableBatch> tables) {
            n.schedule(ps(at), node, std::move(tables));
          },
          py::arg("at_ps"), py::arg("node"), py::arg("tables"));
}

}  // namespace loomnet
