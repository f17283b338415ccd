// Training jobs without PyTorch for Python: a model's compute times, its buckets and how they are summed.
#include <pybind11/functional.h>

#include "bindings/spans.hpp"
#include "bindings/sum_shape.hpp"
#include "traffic/executor_sums.hpp"
#include "traffic/model_traffic.hpp"

namespace py = pybind11;

namespace loomnet {

void bind_model_traffic(py::module_& m) {
  m.def(
      "priority_of",
      [](const std::string& mode, double remaining_s, double communication_ratio, std::uint32_t layers,
         std::uint32_t layer) {
        return priority_of(priority_mode_named(mode), {remaining_s, communication_ratio, layers, layer});
      },
      py::arg("mode"), py::kw_only(), py::arg("remaining_s"), py::arg("communication_ratio"), py::arg("layers"),
      py::arg("layer"), "1 to 255: how urgent a bucket is by the formula of that name.");

  py::class_<BucketSums>(m, "BucketSums", "How the gradients of a model job's buckets are summed.");
  py::class_<ExecutorSums, BucketSums>(m, "ExecutorSums")
      .def(py::init([](Network& n, std::uint32_t job, std::vector<NodeId> hosts, std::uint64_t longest,
                       bool await_sends, std::uint32_t slots, std::uint32_t slot_payload,
                       const std::optional<SumNumbers>& sums, bool payload) {
             return new ExecutorSums(n, {JobId{job}, std::move(hosts), longest, await_sends, slots, slot_payload,
                                         sum_shape(sums), payload});
           }),
           py::keep_alive<1, 2>(), py::arg("network"), py::kw_only(), py::arg("job"), py::arg("hosts"),
           py::arg("longest"), py::arg("await_sends") = true, py::arg("slots") = 8, py::arg("slot_payload") = 65536,
           py::arg("sums") = py::none(), py::arg("payload") = false, kSumsDoc)
      .def("set_queue_pair", &ExecutorSums::set_queue_pair, py::arg("rank"), py::arg("peer"), py::arg("qp"))
      .def("set_sum_pair", &ExecutorSums::set_sum_pair, py::arg("rank"), py::arg("qp"))
      .def_property_readonly("wrong", &ExecutorSums::wrong);

  py::class_<BucketFacts>(m, "BucketFacts", "What a priority is told of a bucket that is about to be summed.")
      .def_readonly("rank", &BucketFacts::rank)
      .def_readonly("iteration", &BucketFacts::iteration)
      .def_readonly("progress", &BucketFacts::progress)
      .def_readonly("bytes", &BucketFacts::bytes)
      .def_property_readonly("remaining_s", [](const BucketFacts& f) { return f.urgency.remaining_s; })
      .def_property_readonly("communication_ratio", [](const BucketFacts& f) { return f.urgency.communication_ratio; })
      .def_property_readonly("layers", [](const BucketFacts& f) { return f.urgency.layers; })
      .def_property_readonly("layer", [](const BucketFacts& f) { return f.urgency.layer; });

  py::class_<ModelTraffic>(m, "ModelTraffic")
      .def(py::init([](Network& n, BucketSums& sums, std::uint32_t job, std::vector<NodeId> hosts,
                       std::vector<std::uint64_t> buckets, std::uint32_t iterations, std::int64_t start,
                       std::optional<std::int64_t> stop, std::int64_t compute, double forward, double jitter,
                       std::uint64_t link_bps, const std::string& priority,
                       std::optional<std::function<std::uint8_t(const BucketFacts&)>> ask) {
             ModelTrafficConfig c;
             c.job = JobId{job};
             c.hosts = std::move(hosts);
             c.buckets = std::move(buckets);
             c.iterations = iterations;
             c.start = ps(start);
             if (stop) c.stop = ps(*stop);
             c.compute = ps(compute);
             c.forward = forward;
             c.jitter = jitter;
             c.link = {link_bps};
             c.priority = priority_mode_named(priority);
             if (ask) c.ask = std::move(*ask);
             return new ModelTraffic(n, sums, c);
           }),
           py::keep_alive<1, 2>(), py::keep_alive<1, 3>(), py::arg("network"), py::arg("sums"), py::kw_only(),
           py::arg("job"), py::arg("hosts"), py::arg("buckets"), py::arg("iterations"), py::arg("start_ps") = 0,
           py::arg("stop_ps") = py::none(), py::arg("compute_ps") = 0, py::arg("forward") = 1.0 / 3,
           py::arg("jitter") = 0.0, py::arg("link_bps") = 1, py::arg("priority") = "esa", py::arg("ask") = py::none(),
           "`ask` is called with the BucketFacts of each bucket, in place of `priority`; it must not raise.")
      .def("start", &ModelTraffic::start)
      .def_property_readonly("done", &ModelTraffic::done)
      .def_property_readonly(
          "ended_ps", [](const ModelTraffic& t) { return t.ended().count; }, "When the last rank was through so far.")
      .def(
          "failures",
          [](const ModelTraffic& t) {
            Rows<py::int_, py::int_, py::str> out;
            for (const auto& f : t.failures()) out.append(py::make_tuple(f.rank, f.at.count, f.message));
            return out;
          },
          "[(rank, at_ps, message)] of the ranks that got no sum, in the order of time.")
      .def(
          "iterations",
          [](const ModelTraffic& t, std::size_t since) { return spans_array(spans_from(t.iterations(0), since)); },
          py::arg("since") = 0, kSpansDoc)
      .def(
          "computed",
          [](const ModelTraffic& t, JobRank rank) {
            std::vector<std::int64_t> out;
            for (const Picoseconds each : t.computed(rank)) out.push_back(each.count);
            return out;
          },
          py::arg("rank"), "Compute times, in picoseconds, of the rank's iterations that have begun.");
}

}  // namespace loomnet
