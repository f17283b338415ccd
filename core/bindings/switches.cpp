// Switches for Python: programs by name with their options, tables as batches, reboot and snapshot.
#include <pybind11/numpy.h>

#include <algorithm>
#include <cstring>

#include "bindings/bindings.hpp"
#include "ebpf/aggregate_policies.h"
#include "switch/forward/forward_batch.hpp"
#include "switch/loaded/guarded_call.hpp"

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

py::dict program_row(const ProgramKind& kind) {
  py::dict options, units;
  for (const ProgramOption& o : kind.options) {
    if (!o.unit.empty()) units[py::str(std::string(o.name))] = std::string(o.unit);
    options[py::str(std::string(o.name))] = py::make_tuple(value_of(o.fallback), std::string(o.help));
  }
  py::dict row;
  row["summary"] = std::string(kind.summary);
  row["options"] = options;
  row["units"] = units;
  return row;
}

py::dict programs_dict() {
  py::dict out;
  for (const ProgramKind& kind : program_kinds()) out[py::str(std::string(kind.name))] = program_row(kind);
  return out;
}

template <typename T>
using Numbers = py::array_t<T, py::array::c_style | py::array::forcecast>;

// An array of rows of so many numbers; an empty list is one without rows.
template <typename T>
const T* rows_of(const Numbers<T>& values, py::ssize_t width, const char* what) {
  if (values.size() && (values.ndim() != 2 || values.shape(1) != width)) {
    throw py::value_error(std::string("table_batch: ") + what + ": rows of " + std::to_string(width) + " numbers");
  }
  return values.data();
}

ForwardBatch forward_batch(std::uint32_t generation, std::uint32_t block, const std::vector<std::uint16_t>& own,
                           const Numbers<std::uint16_t>& adjacencies, const Numbers<std::uint16_t>& fib,
                           const Numbers<std::uint8_t>& hosts, const Numbers<std::uint16_t>& host_groups,
                           std::vector<std::vector<SwitchPort>> groups) {
  ForwardBatch t;
  t.generation = generation;
  for (const auto usid : own) t.own_un.push_back({block, usid});
  const auto add = [&](const Numbers<std::uint16_t>& rows, std::vector<ForwardBatch::UsidRoute>& to, const char* what) {
    const std::uint16_t* row = rows_of(rows, 2, what);
    to.reserve(static_cast<std::size_t>(rows.size() / 2));
    for (py::ssize_t i = 0; i < rows.size(); i += 2) to.push_back({{block, row[i]}, row[i + 1]});
  };
  add(adjacencies, t.own_ua, "adjacencies");
  add(fib, t.fib, "fib");
  const std::uint8_t* address = rows_of(hosts, 16, "hosts");
  if (host_groups.size() != hosts.size() / 16) throw py::value_error("table_batch: a group for each of the hosts");
  t.hosts.resize(static_cast<std::size_t>(host_groups.size()));
  for (std::size_t i = 0; i < t.hosts.size(); ++i) {
    std::memcpy(t.hosts[i].address.data(), address + 16 * i, 16);
    t.hosts[i].group = host_groups.data()[i];
  }
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
        throw std::invalid_argument("switch program option " + name + ": " + py::cast<std::string>(py::str(value)) +
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

namespace {

using OptionRow = std::tuple<std::string, std::string, std::int64_t, std::int64_t, std::int64_t>;
using FieldRow = std::tuple<std::string, std::uint32_t, std::uint32_t, bool>;

void load_switch_program(const std::string& name, const std::string& file, const std::string& summary,
                         const std::vector<std::string>& counters, const std::vector<OptionRow>& options,
                         const std::vector<FieldRow>& fields, std::uint32_t rows, std::uint32_t row_bytes,
                         std::uint32_t payload_at, std::uint32_t payload_bytes,
                         const std::optional<std::string>& object, const std::string& refusal) {
  auto program = std::make_unique<LoadedProgram>();
  program->name = name;
  program->file = file;
  program->summary = summary;
  program->counters = counters;
  for (const auto& [option, unit, fallback, least, most] : options) {
    program->options.push_back({option, unit, fallback, least, most});
  }
  for (const auto& [field, offset, bytes, number] : fields) program->fields.push_back({field, offset, bytes, number});
  program->rows = rows;
  program->row_bytes = row_bytes;
  program->payload_at = payload_at;
  program->payload_bytes = payload_bytes;
  program->refusal = refusal;
  if (object) program->load(*object);
  add_program(std::move(program));
}

void bind_loaded(py::module_& m) {
  py::register_exception<ProgramFault>(m, "ProgramFault", PyExc_RuntimeError);
  m.def("load_switch_program", load_switch_program, py::arg("name"), py::kw_only(), py::arg("file"), py::arg("summary"),
        py::arg("counters"), py::arg("options"), py::arg("fields"), py::arg("rows"), py::arg("row_bytes"),
        py::arg("payload_at"), py::arg("payload_bytes"), py::arg("object"), py::arg("refusal"),
        "Makes a switch program known that was compiled from one C file. options: (name, unit, default, least, "
        "greatest); fields of a state row: (name, offset, bytes, whether a number). `object`: the compiled object, "
        "which is loaded into this process; None: `refusal` says why it is not.");
  m.def(
      "set_switch_object",
      [](const std::string& name, const py::bytes& object) {
        const std::string_view data = object;
        set_kernel_object(name, {data.begin(), data.end()});
      },
      py::arg("name"), py::arg("object"), "Gives a loaded switch program its build for the kernel.");
}

}  // namespace

void bind_switches(py::module_& m, py::class_<Network>& network) {
  bind_loaded(m);
  py::class_<TableBatch, std::shared_ptr<TableBatch>>(
      m, "TableBatch", "One generation of a switch's tables, as bytes that its program reads.")
      .def(py::init([](std::uint32_t generation, const py::bytes& bytes, std::vector<std::vector<SwitchPort>> groups) {
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
      .def_property_readonly(
          "bytes",
          [](const TableBatch& b) { return py::bytes(reinterpret_cast<const char*>(b.bytes.data()), b.bytes.size()); })
      .def_readonly("groups", &TableBatch::groups);
  m.def(
      "table_batch",
      [](const std::string& program, std::uint32_t generation, std::uint32_t block,
         const std::vector<std::uint16_t>& own, const Numbers<std::uint16_t>& adjacencies,
         const Numbers<std::uint16_t>& fib, const Numbers<std::uint8_t>& hosts,
         const Numbers<std::uint16_t>& host_groups, std::vector<std::vector<SwitchPort>> groups,
         std::vector<std::vector<SwitchPort>> replicate, const py::dict& rows) {
        const ForwardBatch forward =
            forward_batch(generation, block, own, adjacencies, fib, hosts, host_groups, std::move(groups));
        const ProgramKind& kind = program_kind(program);
        const ProgramRows tables = program_rows(rows);
        if (!kind.pack) check_tables(tables, {});
        // The batch was made here and has one owner.
        auto batch = std::const_pointer_cast<TableBatch>(kind.pack ? kind.pack(forward, tables) : forward.pack());
        if (!replicate.empty()) batch->groups = std::move(replicate);
        return batch;
      },
      py::arg("program"), py::kw_only(), py::arg("generation"), py::arg("block"), py::arg("own"),
      py::arg("adjacencies"), py::arg("fib"), py::arg("hosts"), py::arg("host_groups"), py::arg("groups"),
      py::arg("replicate") = std::vector<std::vector<SwitchPort>>{}, py::arg("rows") = py::dict(),
      "Tables of a switch program. Those of forward, of which each program's are: uSIDs of one block (`adjacencies` "
      "and `fib`: uint16[n, 2] of a uSID and its port), host routes (`hosts`: uint8[n, 16] of addresses, "
      "`host_groups`: the ECMP group of each), and the ports of each group that a replicate verdict may name. `rows`: the program's own tables by "
      "name, each a list of rows {field: None, number, bytes, text or pairs of numbers}, as its *_batch.hpp has them.");

  m.def("switch_programs", programs_dict,
        "{name: {'summary': text, 'options': {name: (default, help)}, 'units': {name: 'bytes', or 'run' of "
        "what a run sets}}} of every switch program of Loomnet's own.");
  m.def(
      "switch_program", [](const std::string& name) { return program_row(program_kind(name)); }, py::arg("name"),
      "The same of one program, which may be a loaded one. ValueError where there is none of this name.");
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
        const ProgramKind& kind = program_kind(name);
        const ProgramSettings settings = checked_settings(kind, ports, 0, program_options(options));
        if (!kind.loaded) kind.make(settings);  // which a loaded one may refuse to this process
      },
      py::arg("name"), py::arg("ports"), py::arg("options"),
      "Refuses a program, a number of ports or options that cannot be, by a ValueError of one line.");

  network
      .def(
          "add_switch",
          [](Network& n, std::size_t ports, bool kernel, std::uint64_t hash_seed, std::uint64_t buffer_bytes,
             double alpha, bool pfc, const std::string& program, const py::dict& options) {
            // Checked also where the kernel runs it: LiveRun takes the same name and options.
            const ProgramKind& kind = program_kind(program);
            const ProgramSettings settings = checked_settings(kind, ports, hash_seed, program_options(options));
            std::unique_ptr<SwitchProgram> made, hooks;
            if (!kernel || !kind.loaded) made = kind.make(settings);
            if (kernel && !kind.egress_counters.empty()) hooks = std::move(made);
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
          py::arg("node"), "The switch reboots: its program's state is zeros and its tables are gone, counters stay.")
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
