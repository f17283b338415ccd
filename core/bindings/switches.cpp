// Switches for Python: programs by name with their options, tables as batches, reboot and snapshot.
#include <pybind11/numpy.h>

#include <algorithm>
#include <cstring>

#include "bindings/bindings.hpp"
#include "ebpf/aggregate_policies.h"
#include "switch/forward/forward_batch.hpp"

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
  for (const auto& [address, group] : hosts) t.hosts.push_back({address_of(std::string_view(address)), group});
  t.groups = std::move(groups);
  return t;
}

RowValue row_value(const py::handle& value) {
  if (value.is_none()) return std::monostate{};
  if (py::isinstance<py::int_>(value) || py::isinstance<py::bool_>(value)) return py::cast<std::uint64_t>(value);
  if (py::isinstance<py::str>(value) || py::isinstance<py::bytes>(value)) return py::cast<std::string>(value);
  return py::cast<RowPairs>(value);
}

ProgramRows program_rows(const py::dict& tables) {
  ProgramRows found;
  for (const auto& [name, rows] : tables) {
    std::vector<ProgramRow>& table = found[py::cast<std::string>(name)];
    for (const py::handle row : rows) {
      ProgramRow& made = table.emplace_back();
      for (const auto& [field, value] : py::cast<py::dict>(row)) {
        made.values.emplace(py::cast<std::string>(field), row_value(value));
      }
    }
  }
  return found;
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
      "table_batch",
      [](const std::string& program, std::uint32_t generation, std::uint32_t block,
         const std::vector<std::uint16_t>& own, const std::vector<std::pair<std::uint16_t, SwitchPort>>& adjacencies,
         const std::vector<std::pair<std::uint16_t, SwitchPort>>& fib,
         const std::vector<std::pair<py::bytes, std::uint16_t>>& hosts, std::vector<std::vector<SwitchPort>> groups,
         std::vector<std::vector<SwitchPort>> replicate, const py::dict& rows) {
        const ForwardBatch forward = forward_batch(generation, block, own, adjacencies, fib, hosts, std::move(groups));
        const ProgramKind& kind = program_kind(program);
        const ProgramRows tables = program_rows(rows);
        if (!kind.pack) check_tables(tables, {});
        // The batch was made here and has one owner.
        auto batch = std::const_pointer_cast<TableBatch>(kind.pack ? kind.pack(forward, tables) : forward.pack());
        if (!replicate.empty()) batch->groups = std::move(replicate);
        return batch;
      },
      py::arg("program"), py::kw_only(), py::arg("generation"), py::arg("block"), py::arg("own"),
      py::arg("adjacencies"), py::arg("fib"), py::arg("hosts"), py::arg("groups"),
      py::arg("replicate") = std::vector<std::vector<SwitchPort>>{}, py::arg("rows") = py::dict(),
      "Tables of a switch program. Those of forward, of which each program's are: uSIDs of one block, host routes by "
      "ECMP group, and the ports of each group that a replicate verdict may name. `rows`: the program's own tables by "
      "name, each a list of rows {field: None, number, bytes, text or pairs of numbers}, as its *_batch.hpp has them.");

  m.def("switch_programs", programs_dict,
        "{name: {'summary': text, 'options': {name: (default, help)}, 'units': {name: 'bytes', or 'run' of "
        "what a run sets}}} of every switch program.");
  m.def(
      "aggregate_policies",
      [] {
        py::list rows;
        for (const aggregate_policy& each : aggregate_policies) {
          rows.append(py::dict(py::arg("name") = each.name, py::arg("preempts") = each.preempts,
                               py::arg("dealloc") = static_cast<int>(each.dealloc), py::arg("reminds") = each.reminds,
                               py::arg("repairs") = static_cast<int>(each.repairs),
                               py::arg("resends") = static_cast<int>(each.resends),
                               py::arg("answering") = static_cast<int>(each.answering)));
        }
        return rows;
      },
      "The rows of ebpf/aggregate_policies.h, by their numbers on the wire.");
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
