// The engine's side of rank processes for Python: bridges, and ranks on the virtual clock.
#include <pybind11/functional.h>

#include "bindings/bindings.hpp"
#include "bindings/transports.hpp"
#include "collective/staging.hpp"
#include "engine/rank_bridge.hpp"
#include "engine/virtual_ranks.hpp"
#include "switch/loaded/guarded_call.hpp"

namespace py = pybind11;

namespace loomnet {

Marks mark_list(const std::vector<RankMark>& marks) {
  Marks out;
  for (const RankMark& m : marks) {
    out.append(py::make_tuple(static_cast<int>(m.kind), m.status, m.at.count, m.value, m.a, m.b));
  }
  return out;
}

void bind_rank_bridge(py::module_& m) {
  py::class_<RankBridge>(m, "RankBridge", "One rank process on one host of a network.")
      .def(py::init([](Network& n, NodeId host, std::uint32_t rank, std::uint32_t world, std::uint32_t slots,
                       std::uint32_t payload, std::uint32_t channels, std::uint32_t job, std::uint32_t sum_slots,
                       std::uint32_t sum_values, std::uint32_t sum_window, std::uint32_t sum_scale,
                       std::uint32_t sum_floats, std::uint32_t sum_servers, std::uint32_t sum_reach,
                       std::uint32_t queue_pairs) {
             rank::Geometry g;
             g.rank = rank;
             g.world = world;
             g.notices = rank::notices_for(world);
             g.slots = slots;
             g.slot_payload = payload;
             g.slot_channels = channels;
             g.channels = queue_pairs;
             g.sum_slots = sum_slots;
             g.sum_values = sum_values;
             g.sum_window = sum_window;
             g.sum_scale = sum_scale;
             g.sum_floats = sum_floats;
             g.sum_servers = sum_servers;
             g.sum_reach = sum_reach;
             g.staging_bytes = StagingLayout(rank::staging_of(g)).total_bytes();
             return new RankBridge(n, host, g, JobId{job});
           }),
           py::keep_alive<1, 2>(), py::arg("network"), py::arg("host"), py::kw_only(), py::arg("rank"),
           py::arg("world"), py::arg("slots") = 8, py::arg("slot_payload") = 32768, py::arg("channels") = 16,
           py::arg("job") = 0, py::arg("sum_slots") = 0, py::arg("sum_values") = 0, py::arg("sum_window") = 0,
           py::arg("sum_scale") = 0, py::arg("sum_floats") = 0, py::arg("sum_servers") = 1, py::arg("sum_reach") = 2,
           py::arg("queue_pairs") = 1, "queue_pairs: towards each other rank of the job.")
      .def(
          "fds", [](const RankBridge& b) { return py::make_tuple(b.memory_fd(), b.engine_event_fd()); },
          "(memory, engine's eventfd), to be inherited by the rank's process.")
      .def("bind", &RankBridge::bind, py::arg("peer"), py::arg("qp"), py::arg("key") = 1, py::arg("number") = 0,
           "Requests to `peer` go by this queue pair, the one of this number; `key` is the peer's RankBridge.key.")
      .def("bind_sum", &RankBridge::bind_sum, py::arg("qp"),
           "Parts of sums go by this queue pair, in turn with those of earlier calls, for a rank with `sum_slots`.")
      .def(
          "weigh_sums",
          [](RankBridge& b, std::uint32_t steps, std::uint64_t link_bps, const std::string& priority,
             std::optional<AskPriority> ask) {
            b.weigh_sums({.steps = steps,
                          .link = BitsPerSecond{link_bps},
                          .mode = priority_mode_named(priority),
                          .ask = std::move(ask).value_or(AskPriority{})});
          },
          py::kw_only(), py::arg("steps"), py::arg("link_bps"), py::arg("priority"), py::arg("ask") = py::none(),
          "Sums whose priority the script does not state get one, from the rank's second training step on. `ask` is "
          "called with the BucketFacts of each sum, in place of `priority`; it must not raise.")
      .def_property_readonly(
          "client", [](const RankBridge& b) { return static_cast<std::uint32_t>(b.client()); },
          "The rank's number among the clients of its host's NIC.")
      .def_property_readonly("key", &RankBridge::key, "Of the rank's staging memory, for its peers.")
      .def(
          "take_marks", [](RankBridge& b) { return mark_list(b.take_marks()); },
          "[(kind, status, at_ps, value, a, b)] since the last call; works are in the host's "
          "meter.")
      .def(
          "steps", [](const RankBridge& b) { return step_rows(b.steps()); },
          "int64[steps, 4]: rank, communicator, ring step and when the rank had received it (ps), where it marks "
          "ring steps; of live ranks once the run has stopped.")
      .def_property_readonly("steps_unlogged", [](const RankBridge& b) { return b.steps().unlogged(); })
      .def(
          "tell",
          [](RankBridge& b, const std::string& kind, std::uint32_t peer, const std::string& reason, std::int64_t now,
             std::uint32_t status) { b.tell(notice_named(kind), peer, reason_named(reason), {now}, status); },
          py::arg("kind"), py::arg("peer"), py::arg("reason"), py::arg("now_ps"), py::arg("status") = 0,
          "`status`: of a peer that has gone, its exit status or signal.")
      .def_property_readonly("fault",
                             [](const RankBridge& b) {
                               return b.fault() == RankFault::none ? std::string() : std::string(to_string(b.fault()));
                             })
      .def(
          "stop_at", [](RankBridge& b, std::uint32_t step, std::int64_t now) { b.stop_at(step, {now}); },
          py::arg("step"), py::arg("now_ps"), "The rank's script ends itself after this optimizer step.")
      .def_property_readonly("state",
                             [](RankBridge& b) {
                               static constexpr const char* kNames[] = {"starting", "computing", "waiting", "gone",
                                                                        "outside"};
                               return kNames[static_cast<std::size_t>(b.port().state())];
                             })
      .def_property_readonly("under_way", &RankBridge::under_way,
                             "The operation under way for longest, and how many more; or empty.")
      .def_property_readonly(
          "alarm_ps",
          [](RankBridge& b) {
            const Picoseconds at = b.port().alarms().asked;
            return at == kNever ? 0 : at.count;
          },
          "When the first time limit or pause ends that the waiting rank has asked for; 0: none.")
      .def_property_readonly(
          "polls", [](RankBridge& b) { return b.port().polls(); }, "Polls of the rank that found nothing.")
      .def_property_readonly(
          "strays", [](RankBridge& b) { return b.port().strays(); },
          "Threads that began to communicate while the rank counted as waiting.")
      .def_property_readonly(
          "sum_overflows", [](RankBridge& b) { return b.port().sum_overflows(); },
          "Blocks of the rank's sums with a value or a sum beyond the range of an int32.")
      .def_property_readonly(
          "sums_as_floats", [](RankBridge& b) { return b.port().sums_as_floats(); },
          "Of these, blocks that were summed as float32.")
      .def_property_readonly("quiescent", [](RankBridge& b) { return b.port().quiescent(); })
      .def_property_readonly("finished_works", &RankBridge::finished_works)
      .def_property_readonly("failed_works", &RankBridge::failed_works)
      .def(
          "unfinished_works",
          [](RankBridge& b, std::int64_t now) {
            while (b.poll({now}, 0, 1.0)) {
            }
            b.submit({now});
            return b.unfinished_works();
          },
          py::arg("now_ps"), "Virtual clock: operations that a rank which has ended began and never saw the end of.");

  py::class_<VirtualRanks>(m, "VirtualRanks", "Real rank processes on the virtual clock.")
      .def(py::init<Network&>(), py::keep_alive<1, 2>(), py::arg("network"))
      .def("add", &VirtualRanks::add, py::arg("bridge"), py::arg("job") = 0, py::keep_alive<1, 2>())
      .def("leave", &VirtualRanks::leave, py::arg("place"))
      .def("others_wait", &VirtualRanks::others_wait, py::arg("but"))
      .def("strand", &VirtualRanks::strand, "Tells all ranks that what still needs a rank that has left will not end.")
      .def("may_yet_communicate", &VirtualRanks::may_yet_communicate, py::arg("ranks"),
           "Ranks with threads of which the engine cannot tell whether they will communicate.")
      .def_property_readonly(
          "wall_paced_ps", [](const VirtualRanks& v) { return v.wall_paced().count; },
          "Emulated time that passed while a rank slept outside the network.")
      .def_property_readonly("waited_for", &VirtualRanks::waited_for, "The ranks that did when that time last began.")
      .def(
          "run",
          [](VirtualRanks& v, std::int64_t end, int wall_ms) {
            static constexpr const char* kNames[] = {"reached", "marked", "stopped", "waiting", "stuck"};
            VirtualRanks::Stop stop;
            {
              py::gil_scoped_release release;
              const SlowCalls slow_calls([](void* context) { static_cast<VirtualRanks*>(context)->look_soon(); }, &v);
              stop = v.run({end}, wall_ms);
            }
            raise_plugin_fault();
            return kNames[static_cast<std::size_t>(stop)];
          },
          py::arg("end_ps"), py::arg("wall_ms"),
          "Runs to `end_ps`; why it stopped: reached, marked, stopped (by a traffic model), waiting "
          "(for a computing rank), stuck.");
}

}  // namespace loomnet
