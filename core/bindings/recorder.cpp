// Recorders and the Perfetto writer for Python. While a live loop runs, LiveRun's own calls are
// used.
#include <pybind11/functional.h>

#include "bindings/bindings.hpp"
#include "engine/network_recorder.hpp"
#include "trace/perfetto.hpp"
#include "trace/timeline.hpp"

namespace py = pybind11;

namespace loomnet {

void bind_recorder(py::module_& m) {
  py::class_<PerfettoWriter>(m, "PerfettoWriter", "Pieces of a Perfetto trace; times in picoseconds of the engine.")
      .def(py::init([](std::int64_t zero) { return PerfettoWriter(Picoseconds{zero}); }), py::arg("zero_ps") = 0,
           "The file counts from `zero_ps`. What lies before is moved there; an instant is left out.")
      .def("attribute", py::overload_cast<std::string_view, std::string_view>(&PerfettoWriter::attribute),
           py::arg("name"), py::arg("value"))
      .def("attribute", py::overload_cast<std::string_view, std::int64_t>(&PerfettoWriter::attribute), py::arg("name"),
           py::arg("value"))
      .def("process", &PerfettoWriter::process, py::arg("pid"), py::arg("name"))
      .def("thread", &PerfettoWriter::thread, py::arg("pid"), py::arg("tid"), py::arg("name"))
      .def("track", &PerfettoWriter::track, py::arg("parent"), py::arg("name"), py::arg("rank") = 0,
           "Tracks of one parent are shown in order of their ranks.")
      .def(
          "counter",
          [](PerfettoWriter& w, TrackId parent, const std::string& name) {
            return w.counter(parent, name, CounterUnit::none);
          },
          py::arg("parent"), py::arg("name"), "A track of numbers, for measure().")
      .def(
          "measure",
          [](PerfettoWriter& w, TrackId track, std::int64_t at, double value) { w.measure(track, {at}, value); },
          py::arg("track"), py::arg("at_ps"), py::arg("value"))
      .def(
          "begin",
          [](PerfettoWriter& w, TrackId track, std::int64_t at, const std::string& name, const std::string& category) {
            w.begin(track, {at}, name, category);
          },
          py::arg("track"), py::arg("at_ps"), py::arg("name"), py::arg("category"))
      .def(
          "end", [](PerfettoWriter& w, TrackId track, std::int64_t at) { w.end(track, {at}); }, py::arg("track"),
          py::arg("at_ps"))
      .def(
          "instant",
          [](PerfettoWriter& w, TrackId track, std::int64_t at, const std::string& name, const std::string& category,
             const std::vector<std::pair<std::string, std::int64_t>>& values) {
            std::vector<TraceArgument> arguments;
            for (const auto& [key, value] : values) arguments.push_back({key, value});
            w.instant(track, {at}, name, category, arguments);
          },
          py::arg("track"), py::arg("at_ps"), py::arg("name"), py::arg("category"),
          py::arg("values") = std::vector<std::pair<std::string, std::int64_t>>{})
      .def("take", [](PerfettoWriter& w) { return py::bytes(w.take()); });

  py::class_<NetworkRecorder>(m, "Recorder", "Records what a network does; one per network.")
      .def(py::init([](Network& network, std::uint64_t seed, bool timeline, std::size_t most_hops) {
             RecorderConfig c;
             c.seed = seed;
             c.timeline = timeline;
             if (most_hops) {
               const RecorderConfig standard;
               c.most_hops = most_hops;
               // The other bounds keep their proportion.
               const auto scaled = [&](std::size_t n) {
                 return std::max<std::size_t>(n * most_hops / standard.most_hops, 16);
               };
               c.most_messages = scaled(standard.most_messages);
               c.most_operations = scaled(standard.most_operations);
               c.most_queue_points = scaled(standard.most_queue_points);
             }
             return new NetworkRecorder(network, c);
           }),
           py::keep_alive<1, 2>(), py::arg("network"), py::kw_only(), py::arg("seed"), py::arg("timeline"),
           py::arg("most_hops") = 0)
      .def(
          "stop_when_full", [](NetworkRecorder& r) { r.recorder().stop_when_full(&r.network().events()); },
          "run_until returns early while captures hold more than 8 MiB.")
      .def(
          "set_zero",
          [](NetworkRecorder& r, std::optional<std::int64_t> at) {
            r.recorder().set_zero(at ? Picoseconds{*at} : kNever);
          },
          py::arg("at_ps"),
          "Captures and the timeline count time from here: the first job's start. Unless set, that is the "
          "engine's. None: it is not known yet, and captures keep up to 64 MiB until it is.")
      .def("capture", &NetworkRecorder::capture, py::arg("half"), py::arg("interface"), py::arg("description"))
      .def(
          "take", [](NetworkRecorder& r, std::size_t c) { return py::bytes(r.take(c, {})); }, py::arg("capture"),
          "pcapng bytes since the last call, in order of time.")
      .def(
          "finish", [](NetworkRecorder& r, std::size_t c) { return py::bytes(r.finish(c)); }, py::arg("capture"),
          "The last bytes of a capture, which ends.")
      .def("packets", &NetworkRecorder::packets, py::arg("capture"))
      .def(
          "kept_of_packets", [](NetworkRecorder& r) { return r.recorder().packet_sampler().halvings(); },
          "n, where the timeline keeps 1/2^n of all packets.")
      .def(
          "marks",
          [](NetworkRecorder& r) {
            py::list all;
            for (const Recorder::Mark& mark : r.recorder().marks()) {
              py::dict row;
              row["half"] = mark.half;
              row["at_ps"] = mark.at.count;
              row["uid"] = mark.uid;
              row["by"] = std::string(mark.by);
              for (std::size_t i = 0; i < mark.names.size(); ++i) {
                row[py::str(std::string(mark.names[i]))] = mark.values[i];
              }
              all.append(row);
            }
            return all;
          },
          "[{'half', 'at_ps', 'uid', 'by', and what the program notes by its names}]: every mark that a switch "
          "program's egress hook has made, in the order in which links were looked at.")
      .def(
          "clock_points",
          [](NetworkRecorder& r, std::uint32_t host) {
            std::vector<std::pair<std::int64_t, std::int64_t>> found;
            for (const auto& p : r.recorder().clock_points()) {
              if (p.host == host) found.emplace_back(p.wall_ns, p.at.count);
            }
            return found;
          },
          py::arg("host"), "[(a rank's monotonic clock in ns, emulated ps)] as its marks said, in order.")
      .def(
          "write",
          [](NetworkRecorder& r, PerfettoWriter& w, std::function<std::string(std::uint32_t)> host,
             std::function<std::string(std::uint32_t)> half) {
            write_timeline(r.recorder(), {std::move(host), std::move(half)}, r.network().now(), w);
          },
          py::arg("writer"), py::arg("host"), py::arg("half"),
          "Writes the timeline; `host` and `half` name a node and a direction of a link.");
}

}  // namespace loomnet
