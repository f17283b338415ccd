// Astraea's own functions for Python: what training and tests share with the engine, by the same code.
#include <pybind11/numpy.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.hpp"
#include "transport/congestion/astraea/action.hpp"
#include "transport/congestion/astraea/features.hpp"
#include "transport/congestion/astraea/policies.hpp"
#include "transport/congestion/astraea/policy.hpp"
#include "transport/congestion/astraea/reward.hpp"
#include "transport/congestion/astraea/teacher.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

using namespace astraea;
using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Doubles = py::array_t<double, py::array::c_style | py::array::forcecast>;

FeatureSet set_named(const std::string& name) {
  for (const FeatureSet set : kFeatureSets) {
    if (to_string(set) == name) return set;
  }
  throw py::value_error("features: no set " + name + "; there are " + names_of_sets());
}

Spacing spacing_named(const std::string& name) {
  if (name == "every") return Spacing::every;
  if (name == "doubled") return Spacing::doubled;
  throw py::value_error("spacing: no " + name + "; there are every, doubled");
}

// The value of an enumeration that has this name among the names of all.
template <typename E, typename Names>
E value_named(const char* field, const Names& names, const std::string& name) {
  std::string all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<E>(i);
    all.append(i > 0 ? ", " : "").append(names[i]);
  }
  throw py::value_error(std::string(field) + ": no " + name + "; there are " + all);
}

void check_alpha(double alpha) {
  if (!(alpha > 0 && alpha <= 0.5)) throw py::value_error("alpha must be above 0, at most 0.5");
}

py::array_t<float> array_of(std::span<const float> values) {
  return py::array_t<float>(static_cast<py::ssize_t>(values.size()), values.data());
}

// Rows of inputs, one for each flow; a single row counts as one.
std::pair<std::span<const float>, std::size_t> rows_of(const Policy& policy, const Floats& inputs) {
  const auto width = static_cast<py::ssize_t>(policy.inputs());
  if (inputs.ndim() != 2 || inputs.shape(1) != width) {
    throw py::value_error("policy: inputs must be an array of shape (flows, " + std::to_string(width) + ")");
  }
  return {{inputs.data(), static_cast<std::size_t>(inputs.size())}, static_cast<std::size_t>(inputs.shape(0))};
}

std::vector<Layer> layers_of(const std::vector<std::pair<Floats, Floats>>& given) {
  std::vector<Layer> layers;
  for (const auto& [weights, bias] : given) {
    if (weights.ndim() != 2 || bias.ndim() != 1 || weights.shape(0) != bias.shape(0) || weights.shape(0) > 0xffff ||
        weights.shape(1) > 0xffff) {
      throw py::value_error("policy: layers must be pairs of arrays of shapes (out, in) and (out,)");
    }
    Layer layer;
    layer.out = static_cast<std::uint16_t>(weights.shape(0));
    layer.in = static_cast<std::uint16_t>(weights.shape(1));
    layer.weights.assign(weights.data(), weights.data() + weights.size());
    layer.bias.assign(bias.data(), bias.data() + bias.size());
    layers.push_back(std::move(layer));
  }
  return layers;
}

void bind_policy(py::module_& a) {
  py::class_<Policy>(
      a, "Policy",
      "A trained policy: dense layers with a leaky ReLU of slope 0.2 between them and tanh at the end; an action "
      "below LEAST_ACTION in size is 0.")
      .def(py::init([](const std::vector<std::pair<Floats, Floats>>& layers, const std::string& features,
                       std::uint16_t frames, const std::string& spacing, std::uint16_t interval_ms, float alpha,
                       std::uint32_t cwnd_min, std::uint32_t cwnd_max, bool batch_norm_folded,
                       const std::string& action, const std::string& inner, double interval_rtts) {
             PolicySpec spec;
             spec.features = set_named(features);
             spec.frames = frames;
             spec.spacing = spacing_named(spacing);
             spec.interval_ms = interval_ms;
             spec.alpha = alpha;
             spec.cwnd_min = cwnd_min;
             spec.cwnd_max = cwnd_max;
             spec.folded = batch_norm_folded;
             spec.action = value_named<ActionKind>("action", kActionKinds, action);
             spec.inner = value_named<InnerRule>("inner", kInnerRules, inner);
             spec.interval_rtts = interval_rtts;
             return Policy(spec, layers_of(layers));
           }),
           py::arg("layers"), py::kw_only(), py::arg("features") = "ours11", py::arg("frames") = 5,
           py::arg("spacing") = "every", py::arg("interval_ms") = 30, py::arg("alpha") = static_cast<float>(kAlpha),
           py::arg("cwnd_min") = kLeastWindow, py::arg("cwnd_max") = kMostWindow, py::arg("batch_norm_folded") = false,
           py::arg("action") = "window", py::arg("inner") = "cubic", py::arg("interval_rtts") = 0.0,
           "`layers`: pairs of weights float32[out, in] and biases float32[out]; the rest is what the policy was "
           "trained with, as options of cc=\"astraea\" have it (`alpha`: by action=\"factor\" the factor_exponent; "
           "`interval_rtts`: quarters, up to 63.75). Raises ValueError for layers that do not fit, or weights that are "
           "not finite.")
      .def_static(
          "from_bytes",
          [](const py::bytes& file) {
            const std::string_view bytes = file;
            return Policy::parse({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
          },
          py::arg("file"), "The policy of an .astp file. Raises ValueError naming the field that is wrong.")
      .def(
          "to_bytes",
          [](const Policy& policy) {
            const std::vector<std::uint8_t> bytes = policy.serialize();
            return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          },
          "The .astp file of this policy.")
      .def("quantise", &Policy::quantise,
           "Adds the form of whole numbers, which kernels compute with: weights beyond -8 to 8 are clipped.")
      .def_property_readonly("quantised", &Policy::quantised, "Whether it has the form of whole numbers.")
      .def_property_readonly("inputs", &Policy::inputs, "Features of all frames.")
      .def_property_readonly(
          "features", [](const Policy& p) { return std::string(to_string(p.spec().features)); },
          "Name of the feature set.")
      .def_property_readonly(
          "frames", [](const Policy& p) { return p.spec().frames; }, "Frames of an input.")
      .def_property_readonly(
          "spacing", [](const Policy& p) { return p.spec().spacing == Spacing::every ? "every" : "doubled"; },
          "How far back the frames lie: every interval, or 1, 2, 4, 8 … intervals.")
      .def_property_readonly(
          "interval_ms", [](const Policy& p) { return p.spec().interval_ms; }, "Milliseconds.")
      .def_property_readonly(
          "alpha", [](const Policy& p) { return p.spec().alpha; },
          "The largest change of the window or rate, as a share of it; by action=\"factor\" the exponent.")
      .def_property_readonly(
          "action", [](const Policy& p) { return std::string(to_string(p.spec().action)); },
          "What its actions are: \"window\", \"rate\" or \"factor\".")
      .def_property_readonly(
          "inner", [](const Policy& p) { return std::string(to_string(p.spec().inner)); },
          "By action=\"factor\", the control whose window actions multiply.")
      .def_property_readonly(
          "interval_rtts", [](const Policy& p) { return p.spec().interval_rtts; },
          "The interval in least round trips; 0: interval_ms.")
      .def_property_readonly(
          "layers",
          [](const Policy& p) {
            std::vector<std::pair<py::array_t<float>, py::array_t<float>>> out;
            for (const Layer& l : p.layers()) {
              out.emplace_back(py::array_t<float>({py::ssize_t{l.out}, py::ssize_t{l.in}}, l.weights.data()),
                               array_of(l.bias));
            }
            return out;
          },
          "Pairs of weights float32[out, in] and biases float32[out].")
      .def(
          "act",
          [](const Policy& policy, const Floats& inputs) {
            const auto [rows, flows] = rows_of(policy, inputs);
            py::array_t<float> out(static_cast<py::ssize_t>(flows));
            const std::span<float> actions(out.mutable_data(), flows);
            py::gil_scoped_release released;
            policy.act(rows, actions);
            return out;
          },
          py::arg("inputs"), "Actions float32[flows], -1 to 1, of inputs float32[flows, inputs].")
      .def(
          "act_int16",
          [](const Policy& policy, const Floats& inputs) {
            if (!policy.quantised()) throw py::value_error("policy: act_int16() needs quantise() before it");
            const auto [rows, flows] = rows_of(policy, inputs);
            py::array_t<std::int16_t> out(static_cast<py::ssize_t>(flows));
            const std::span<std::int16_t> actions(out.mutable_data(), flows);
            py::gil_scoped_release released;
            policy.act_int16(rows, actions);
            return out;
          },
          py::arg("inputs"),
          "The same by whole numbers: actions times 32767, int16[flows]. Raises ValueError before quantise().");
}

// One interval's measurements as Python hands them over.
Measured measured_of(double avg_thr, double avg_urtt, double srtt_x8, double loss, double packets_out,
                     double retrans_out, double cwnd, double pacing) {
  return {.avg_thr_Bps = avg_thr,
          .avg_urtt_us = avg_urtt,
          .srtt_x8_us = srtt_x8,
          .loss_Bps = loss,
          .packets_out = packets_out,
          .retrans_out = retrans_out,
          .cwnd = cwnd,
          .pacing_Bps = pacing};
}

void bind_functions(py::module_& a) {
  a.def(
      "frame",
      [](const std::string& features, double avg_thr, double max_tput, double avg_urtt, double min_rtt, double srtt_x8,
         double loss, double packets_out, double retrans_out, double cwnd, double pacing, double rtt_slope, double sent,
         double delivered) {
        const FeatureSet set = set_named(features);
        std::array<float, kMostFeatures> out{};
        Measured m = measured_of(avg_thr, avg_urtt, srtt_x8, loss, packets_out, retrans_out, cwnd, pacing);
        m.rtt_slope = rtt_slope;
        m.sent_bytes = sent;
        m.delivered_bytes = delivered;
        frame(set, m, {max_tput, min_rtt}, out);
        return array_of(std::span(out).first(features_of(set)));
      },
      py::arg("features") = "ours11", py::kw_only(), py::arg("avg_thr") = 0.0, py::arg("max_tput") = 0.0,
      py::arg("avg_urtt") = 0.0, py::arg("min_rtt") = 0.0, py::arg("srtt_x8") = 0.0, py::arg("loss") = 0.0,
      py::arg("packets_out") = 0.0, py::arg("retrans_out") = 0.0, py::arg("cwnd") = 0.0, py::arg("pacing") = 0.0,
      py::arg("rtt_slope") = 0.0, py::arg("sent") = 0.0, py::arg("delivered") = 0.0,
      "The features of one interval, float32[10, 11, 8 or 3]. Rates in bytes per second, times in microseconds "
      "(srtt_x8: eight times the smoothed RTT), windows in packets, `sent` and `delivered` in bytes; 0 is no sample.");
  a.def(
      "map_factor",
      [](double action, double exponent) {
        if (!(exponent > 0 && exponent <= kMostFactorExponent)) {
          throw py::value_error("exponent must be above 0, at most 8");
        }
        return map_factor(action, exponent);
      },
      py::arg("action"), py::arg("exponent") = kFactorExponent,
      "The factor of the inner control's window that an action of -1 to 1 is, 2^(exponent * action).");
  a.def(
      "map_action",
      [](std::uint32_t cwnd, double action, double alpha) {
        check_alpha(alpha);
        return map_action(cwnd, action, alpha);
      },
      py::arg("cwnd"), py::arg("action"), py::arg("alpha") = kAlpha,
      "The window in packets after an action of -1 to 1, not yet bounded.");
  a.def(
      "map_action_int",
      [](std::uint32_t cwnd, std::int32_t q, std::uint32_t alpha) { return map_action_int(cwnd, q, alpha); },
      py::arg("cwnd"), py::arg("q"), py::arg("alpha_millionths") = 25'000,
      "The same by whole numbers: `q` is 32767 times the action.");
  a.def(
      "teacher_action",
      [](double avg_thr, double avg_urtt, double min_rtt, double loss, double cwnd, double interval_us, double alpha) {
        check_alpha(alpha);
        for (const double each : {avg_thr, avg_urtt, min_rtt, loss, cwnd, interval_us}) {
          if (!(each >= 0 && each <= 1e18)) throw py::value_error("teacher_action: values must be 0 to 1e18");
        }
        return teacher_action(measured_of(avg_thr, avg_urtt, 0, loss, 0, 0, cwnd, 0), {avg_thr, min_rtt}, interval_us,
                              alpha);
      },
      py::kw_only(), py::arg("avg_thr"), py::arg("avg_urtt"), py::arg("min_rtt"), py::arg("loss"), py::arg("cwnd"),
      py::arg("interval_us") = 30'000.0, py::arg("alpha") = kAlpha,
      "The action of policy=\"teacher\", in the units of frame().");
}

// Arrays of one value for each flow.
std::vector<FlowStep> steps_of(const Doubles& throughput, const std::vector<std::pair<const char*, Doubles>>& columns) {
  if (throughput.ndim() != 2) throw py::value_error("throughput must be an array of shape (flows, intervals)");
  const auto flows = static_cast<std::size_t>(throughput.shape(0));
  const auto depth = static_cast<std::size_t>(throughput.shape(1));
  for (const auto& [name, column] : columns) {
    if (column.ndim() != 1 || static_cast<std::size_t>(column.shape(0)) != flows) {
      throw py::value_error(std::string(name) + " must have a value for each of the " + std::to_string(flows) +
                            " flows");
    }
  }
  std::vector<FlowStep> steps(flows);
  for (std::size_t i = 0; i < flows; ++i) {
    FlowStep& s = steps[i];
    s.thr_Bps = {throughput.data() + i * depth, depth};
    double* const fields[] = {&s.avg_urtt_us, &s.base_rtt_us, &s.pacing_Bps, &s.loss_Bps, &s.cwnd, &s.min_rtt_us};
    for (std::size_t c = 0; c < columns.size(); ++c) *fields[c] = columns[c].second.data()[i];
  }
  return steps;
}

void bind_reward(py::module_& a) {
  a.def(
      "reward",
      [](const Doubles& throughput, double capacity, const Doubles& avg_urtt, const Doubles& base_rtt,
         const Doubles& pacing, const Doubles& loss, double c0, double c1, double c2, double c3, double c4, double clip,
         double beta, std::optional<double> lat_cap, std::size_t window) {
        const auto steps =
            steps_of(throughput, {{"avg_urtt", avg_urtt}, {"base_rtt", base_rtt}, {"pacing", pacing}, {"loss", loss}});
        if (!(clip >= 0)) throw py::value_error("reward: clip must be 0 or more");
        RewardOptions o;
        o.c0 = c0, o.c1 = c1, o.c2 = c2, o.c3 = c3, o.c4 = c4, o.clip = clip, o.beta = beta, o.lat_cap = lat_cap;
        o.window = window;
        const Reward r = reward(steps, capacity, o);
        py::dict out;
        out["R_thr"] = r.thr;
        out["R_lat"] = r.lat;
        out["R_loss"] = r.loss;
        out["R_fair"] = r.fair;
        out["R_stab"] = r.stab;
        out["raw"] = r.raw;
        out["R"] = r.clipped;
        return out;
      },
      py::arg("throughput"), py::arg("capacity"), py::kw_only(), py::arg("avg_urtt"), py::arg("base_rtt"),
      py::arg("pacing"), py::arg("loss"), py::arg("c0") = 0.1, py::arg("c1") = 0.02, py::arg("c2") = 1.0,
      py::arg("c3") = 0.02, py::arg("c4") = 0.01, py::arg("clip") = 0.1, py::arg("beta") = 0.5,
      py::arg("lat_cap") = 5.0, py::arg("window") = 5,
      "The common reward of all flows and its terms, by name. `throughput`: [flows, intervals], this interval last; "
      "the other arrays [flows], in the units of frame(). `base_rtt`: d0; `loss`: dropped by queues; lat_cap=None: "
      "as published.");
  a.def(
      "global_state",
      [](const Doubles& throughput, double capacity, double buffer, const Doubles& avg_urtt, const Doubles& base_rtt,
         const Doubles& loss, const Doubles& cwnd, bool buffer_in_packets) {
        const auto steps =
            steps_of(throughput,
                     {{"avg_urtt", avg_urtt}, {"base_rtt", base_rtt}, {"loss", loss}, {"loss", loss}, {"cwnd", cwnd}});
        return array_of(global_state(steps, {capacity, buffer, buffer_in_packets}));
      },
      py::arg("throughput"), py::arg("capacity"), py::arg("buffer"), py::kw_only(), py::arg("avg_urtt"),
      py::arg("base_rtt"), py::arg("loss"), py::arg("cwnd"), py::arg("buffer_in_packets") = false,
      "What the critic sees, float32[12]. `buffer`: bytes of the bottleneck's queue.");
}

}  // namespace

void bind_astraea(py::module_& m) {
  auto a = m.def_submodule("astraea", "Astraea's features, actions, rewards and policies, as the engine has them.");
  a.attr("LEAST_ACTION") = kLeastAction;
  bind_policy(a);
  bind_functions(a);
  bind_reward(a);
  m.def(
      "astraea_policy",
      [](const py::bytes& file) {
        const std::string_view bytes = file;
        return add_policy({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
      },
      py::arg("file"),
      "Takes in the bytes of an .astp file and returns the name for tcp={\"cc\": \"astraea\", \"policy\": name} in "
      "this process; equal bytes have equal names. Raises ValueError naming the field that is wrong.");
  m.def("astraea_forget", &forget_policy, py::arg("name"),
        "Gives the memory of a policy back once no flow follows it; astraea_policy() takes it in again.");
}

}  // namespace loomnet
