// What a rank process sees of its NIC: a session, the works it starts, marks; and, for tests, the
// loopback NIC. Calls that may take long release the GIL.
#include "rank/rank_session.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rank/rank_loopback.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

using rank::RankSession;
using rank::Work;
using rank::WorkPtr;

// Data pointers travel as integers (torch.Tensor.data_ptr()); [] moves no bytes, one is a
// contiguous buffer, several are one per rank of the group.
Buffers buffers(const std::vector<std::uintptr_t>& pointers) {
  if (pointers.size() == 1) return Buffers(reinterpret_cast<void*>(pointers[0]));
  std::vector<std::uint8_t*> parts;
  parts.reserve(pointers.size());
  for (const auto p : pointers) parts.push_back(reinterpret_cast<std::uint8_t*>(p));
  return Buffers(std::move(parts));
}

using OperationTuple = std::tuple<int, int, int, std::uint64_t, std::vector<std::uintptr_t>,
                                  std::vector<std::uintptr_t>, std::vector<std::uint64_t>, std::vector<std::uint64_t>,
                                  std::uint32_t, std::uint32_t, std::uint32_t, double>;

template <class E>
E checked(int value, std::size_t limit, const char* what) {
  if (value < 0 || static_cast<std::size_t>(value) >= limit) {
    throw std::invalid_argument(std::string("unknown ") + what);
  }
  return static_cast<E>(value);
}

Operation operation(const OperationTuple& t) {
  const auto& [collective, type, reduce, count, in, out, in_counts, out_counts, root, peer, tag, factor] = t;
  Operation o;
  o.collective = checked<Collective>(collective, kCollectives, "collective");
  o.type = checked<DataType>(type, kDataTypes, "data type");
  o.reduce = checked<ReduceOp>(reduce, kReduceOps, "reduction");
  o.count = count;
  o.input = buffers(in);
  o.output = buffers(out);
  o.input_counts = in_counts;
  o.output_counts = out_counts;
  o.root = root;
  o.peer = peer;
  o.tag = tag;
  o.factor = factor;
  return o;
}

template <class E>
py::dict names(std::size_t count) {
  py::dict out;
  for (std::size_t i = 0; i < count; ++i) {
    out[py::str(std::string(to_string(static_cast<E>(i))))] = i;
  }
  return out;
}

void bind_testing(py::module_& m) {
  using rank::LoopbackNic;
  auto t = m.def_submodule("testing", "What only tests use.");
  py::class_<LoopbackNic>(t, "LoopbackNic", "A NIC for tests: moves writes between local ranks by memcpy, at once.")
      .def(py::init<std::uint32_t, std::uint32_t, bool>(), py::arg("world"), py::arg("channels") = 1,
           py::arg("sums") = false)
      .def("start", &LoopbackNic::start)
      .def("stop", &LoopbackNic::stop, py::call_guard<py::gil_scoped_release>())
      .def(
          "fds",
          [](const LoopbackNic& nic, std::uint32_t r) {
            return py::make_tuple(nic.memory_fd(r), nic.engine_event_fd(r));
          },
          py::arg("rank"), "(memory, engine's eventfd) of one rank; the NIC owns them.")
      .def(
          "gone",
          [](LoopbackNic& nic, std::uint32_t r, bool killed) {
            nic.gone(r, killed ? rank::GoneReason::killed : rank::GoneReason::exited);
          },
          py::arg("rank"), py::arg("killed"), py::call_guard<py::gil_scoped_release>())
      .def(
          "last_step", [](LoopbackNic& nic, std::uint32_t step) { nic.last_step(step); }, py::arg("step"),
          "Asks all ranks to end after a training step.")
      .def("lose", &LoopbackNic::lose, py::arg("packet"), py::arg("every"),
           "Each `every`-th packet of `packet` bytes that may be lost is; 0: none.")
      .def("set_stalled", &LoopbackNic::set_stalled, py::arg("stalled"), py::call_guard<py::gil_scoped_release>())
      .def(
          "fault", [](const LoopbackNic& nic, std::uint32_t r) { return std::string(to_string(nic.fault(r))); },
          py::arg("rank"))
      .def(
          "take_marks",
          [](LoopbackNic& nic, std::uint32_t r) {
            py::typing::List<py::typing::Tuple<py::int_, py::int_, py::int_, py::int_, py::int_, py::int_>> out;
            for (const auto& e : nic.take_marks(r)) {
              out.append(py::make_tuple(e.kind, e.status, e.at_ns, e.value, e.a, e.b));
            }
            return out;
          },
          py::arg("rank"), "[(kind, status, at_ns, value, a, b)] since the last call.")
      .def(
          "take_sum_attributes",
          [](LoopbackNic& nic, std::uint32_t r) {
            py::typing::List<py::typing::Tuple<py::int_, py::int_, py::int_>> out;
            for (const auto& a : nic.take_sum_attributes(r))
              out.append(py::make_tuple(a.sequence, a.layer, a.priority));
            return out;
          },
          py::arg("rank"), "[(sequence, layer, priority)] of the rank's parts of sums since the last call.")
      .def_property_readonly("sums", &LoopbackNic::sums, "Parts of sums that were added.")
      .def_property_readonly("all_waiting", &LoopbackNic::all_waiting)
      .def_property_readonly("bytes", &LoopbackNic::bytes);
}

}  // namespace

void bind_rank(py::module_& m) {
  using Release = py::call_guard<py::gil_scoped_release>;
  m.attr("COLLECTIVES") = names<Collective>(kCollectives);
  m.attr("DATA_TYPES") = names<DataType>(kDataTypes);
  m.attr("REDUCE_OPS") = names<ReduceOp>(kReduceOps);
  m.attr("MAX_COMMUNICATOR_ID") = kMaxCommunicatorId;
  py::dict marks;
  marks["step"] = static_cast<int>(rank::MarkKind::step);
  marks["hash"] = static_cast<int>(rank::MarkKind::hash);
  marks["optimizer"] = static_cast<int>(rank::MarkKind::optimizer);
  marks["work_begin"] = static_cast<int>(rank::MarkKind::work_begin);
  marks["work_end"] = static_cast<int>(rank::MarkKind::work_end);
  marks["failure"] = static_cast<int>(rank::MarkKind::failure);
  marks["ring_step"] = static_cast<int>(rank::MarkKind::ring_step);
  m.attr("MARK_KINDS") = marks;
  m.def("monotonic_ns", &rank::monotonic_ns, "The clock of all marks, in nanoseconds.");

  py::class_<Work, WorkPtr>(m, "RankWork", "One started call. Its result counts once done.")
      .def_readonly("id", &Work::id)
      .def_readonly("name", &Work::name)
      .def_readonly("bytes", &Work::bytes)
      .def_readonly("message", &Work::message)
      .def_readonly("source", &Work::source)
      .def_property_readonly(
          "expected", [](const Work& w) { return w.received.expected; }, "Payload bytes that peers have sent for it.")
      .def_property_readonly(
          "delivered", [](const Work& w) { return w.received.delivered; },
          "Of the bytes expected, those that have arrived.")
      .def_property_readonly(
          "missing",
          [](const Work& w) {
            std::vector<std::pair<std::uintptr_t, std::uint64_t>> out;
            for (const MissingBytes& m : w.received.missing) {
              out.emplace_back(reinterpret_cast<std::uintptr_t>(m.at), m.length);
            }
            return out;
          },
          "[(address, bytes)] in the operations' memory for which a peer's bytes were lost.")
      .def_readonly("started_ns", &Work::started_ns)
      .def_readonly("ended_ns", &Work::ended_ns)
      .def_property_readonly("done", [](const Work& w) { return w.done.load(); })
      .def_property_readonly("ok", [](const Work& w) { return w.status == OperationStatus::ok; })
      .def_property_readonly("status", [](const Work& w) { return std::string(to_string(w.status)); });

  py::class_<RankSession>(m, "RankSession", "This process's use of its emulated NIC, by inherited descriptors.")
      .def(py::init<int, int, bool>(), py::arg("memory_fd"), py::arg("engine_event_fd"), py::arg("await_sends") = true)
      .def_property_readonly("rank", &RankSession::rank)
      .def_property_readonly("world", &RankSession::world)
      .def("create", &RankSession::create, py::arg("id"), py::arg("members"), Release())
      .def("close", &RankSession::close, py::arg("id"), Release())
      .def("abort", &RankSession::abort, py::arg("id"), py::arg("reason"), Release())
      .def(
          "start",
          [](RankSession& s, CommunicatorId id, const std::vector<OperationTuple>& operations, std::int64_t timeout_ns,
             bool asked, std::optional<std::uint16_t> layer, std::optional<std::uint8_t> priority, float loss_tolerance,
             std::uint32_t tag) {
            std::vector<Operation> list;
            list.reserve(operations.size());
            for (const auto& t : operations) {
              list.push_back(operation(t));
              list.back().attributes = {.tag = tag,
                                        .loss_tolerance = loss_tolerance,
                                        .layer = layer.value_or(kNoLayer),
                                        .priority = priority ? std::int16_t{*priority} : kNoPriority};
            }
            const py::gil_scoped_release release;
            return s.start(id, std::move(list), timeout_ns, asked);
          },
          py::arg("id"), py::arg("operations"), py::arg("timeout_ns"), py::arg("asked") = true,
          py::arg("layer") = py::none(), py::arg("priority") = py::none(), py::arg("loss_tolerance") = 0.0f,
          py::arg("tag") = 0,
          "operations: [(collective, data type, reduction, count, inputs, outputs, input counts, "
          "output counts, root, peer, tag, factor)]. Memory must live until the work is done. "
          "The arguments from layer on are attributes of all of them.")
      .def("wait", &RankSession::wait, py::arg("work"), py::arg("timeout_ns"), Release())
      .def("want", &RankSession::want, py::arg("work"), Release())
      .def("next_finished", &RankSession::next_finished, Release())
      .def(
          "mark",
          [](RankSession& s, int kind, std::uint64_t value, std::uint64_t a, std::uint64_t b, std::uint32_t status) {
            if (kind <= 0 || kind > static_cast<int>(rank::kLastMark)) {
              throw std::invalid_argument("unknown mark");
            }
            return s.mark(static_cast<rank::MarkKind>(kind), value, a, b, status);
          },
          py::arg("kind"), py::arg("value"), py::arg("a") = 0, py::arg("b") = 0, py::arg("status") = 0, Release())
      .def("mark_ring_steps", &RankSession::mark_ring_steps,
           "From now on the run learns of each ring step that the rank receives; before create().")
      .def_property_readonly("last_step", &RankSession::last_step,
                             "Step after which the run wants the job to end; -1: none.")
      .def("foreign_begin", &RankSession::foreign_begin, Release())
      .def("foreign_end", &RankSession::foreign_end, py::arg("number"), py::arg("began_ns"), py::arg("bytes"),
           py::arg("ok"), Release())
      .def("compute", &RankSession::compute, py::arg("picoseconds"), py::arg("poll") = false, Release(),
           "Virtual clock: blocks while so much emulated time passes.")
      .def_property_readonly("now_ps", &RankSession::now_ps, "Emulated time.")
      .def("use_dilation", &RankSession::use_dilation, py::arg("dilation"))
      .def("future_call", &RankSession::future_call, py::arg("enters"),
           "The thread enters or leaves a call that may block on a future of the session.")
      .def("local_call", &RankSession::local_call, py::arg("enters"),
           "The thread enters or leaves a call that this machine ends: emulated time stands.")
      .def("thread_begins", &RankSession::thread_begins, py::arg("name"), Release(),
           "Virtual clock: the thread that calls has been started by the script, under this name.")
      .def("thread_ends", &RankSession::thread_ends, Release(), "... and is about to end.")
      .def_property_readonly("strays", &RankSession::strays,
                             "Names of threads that began to communicate while the rank counted as waiting.")
      .def(
          "meet",
          [](RankSession& s, std::uint64_t high, std::uint64_t low, std::uint32_t position, std::uint32_t size,
             std::int64_t timeout_ns, bool asked, bool whole) {
            rank::RankClient::Meeting found;
            {
              const py::gil_scoped_release release;
              found = s.meet(high, low, position, size, timeout_ns, asked, whole);
            }
            return py::make_tuple(found.number, found.came, found.doubles);
          },
          py::arg("name_high"), py::arg("name_low"), py::arg("position"), py::arg("size"), py::arg("timeout_ns"),
          py::arg("asked"), py::arg("whole") = false,
          "(number of the new group or None, [(rank in it, rank in the job)] that came, [job ranks that claim this "
          "rank's place in it]); `whole`: it is the rank's default group.")
      .def(
          "report",
          [](RankSession& s, const py::bytes& bytes) {
            const std::string_view view = bytes;
            const py::gil_scoped_release release;
            return s.report({reinterpret_cast<const std::uint8_t*>(view.data()), view.size()});
          },
          py::arg("report"),
          "Sends bytes to the controller of the rank's region; the report's number, None where it has no room.")
      .def(
          "answer",
          [](RankSession& s, std::uint32_t number, std::int64_t timeout_ns) -> std::optional<py::bytes> {
            std::optional<std::vector<std::uint8_t>> found;
            {
              const py::gil_scoped_release release;
              found = s.answer(number, timeout_ns);
            }
            if (!found) return {};
            return py::bytes(reinterpret_cast<const char*>(found->data()), found->size());
          },
          py::arg("report"), py::arg("timeout_ns") = 0,
          "Waits for the answer to a report, once; None where the time passed first.")
      .def("leave", &RankSession::leave, py::arg("linger_ns") = 0, Release())
      .def("counters", &RankSession::counters, Release());
  bind_testing(m);
}

}  // namespace loomnet
