// Episodes for Python: many of them, stepped by one call without the interpreter's lock, their rows in arrays.
#include <pybind11/numpy.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "bindings/bindings.hpp"
#include "bindings/transports.hpp"
#include "learning/episode.hpp"

namespace py = pybind11;

namespace loomnet {
namespace {

template <typename T>
using Array = py::array_t<T, py::array::c_style>;
template <typename T>
using Given = py::array_t<T, py::array::c_style | py::array::forcecast>;

// Episodes side by side. Rows beyond an episode's own flows stay as they are.
class Episodes {
 public:
  Episodes(std::size_t flows, std::size_t inputs) : flows_(flows), inputs_(inputs) {}

  // `network` and `traffics` are kept for as long as the episode is here.
  void put(std::size_t index, const py::object& network, const std::vector<py::object>& traffics,
           EpisodeOptions options) {
    if (index > size()) throw py::index_error("episodes: there are " + std::to_string(size()));
    if (index == size() && !shown_.empty()) throw std::invalid_argument("episodes: a new one after arrays()");
    std::vector<const FlowTraffic*> flows;
    for (const py::object& traffic : traffics) flows.push_back(traffic.cast<const FlowTraffic*>());
    auto made = std::make_unique<Episode>(network.cast<Network&>(), std::move(flows), std::move(options));
    if (made->flows() > flows_) {
      throw std::invalid_argument("episodes: " + std::to_string(made->flows()) + " flows do not fit into " +
                                  std::to_string(flows_) + " rows");
    }
    if (index == size()) {
      episodes_.emplace_back();
      kept_.emplace_back();
    }
    episodes_[index] = std::move(made);
    kept_[index] = traffics;
    kept_[index].push_back(network);
  }
  std::size_t size() const { return episodes_.size(); }

  // NaN: no decision.
  void act(const Given<double>& actions) {
    check(actions, "actions");
    const auto each = [&](const auto& take) {
      for (std::size_t k = 0; k < size(); ++k) {
        for (std::size_t f = 0; f < episodes_[k]->flows(); ++f) {
          const double action = actions.data()[k * flows_ + f];
          if (episodes_[k]->waits(f) && !std::isnan(action)) take(k, f, action);
        }
      }
    };
    // All are looked at before the first one acts, so that a refused call has changed nothing.
    each([](std::size_t k, std::size_t f, double action) {
      if (action >= -1 && action <= 1) return;
      throw py::value_error("actions[" + std::to_string(k) + ", " + std::to_string(f) + "] is " +
                            std::to_string(action) + "; an action is -1 to 1, NaN for none");
    });
    each([this](std::size_t k, std::size_t f, double action) { episodes_[k]->act(f, action); });
  }

  Array<std::uint8_t> advance(const Given<std::int64_t>& until, const Given<std::uint8_t>& which) {
    for (const py::ssize_t given : {until.size(), which.size()}) {
      if (given != static_cast<py::ssize_t>(size())) throw py::value_error("advance: a value for each episode");
    }
    Array<std::uint8_t> stands(static_cast<py::ssize_t>(size()));
    std::uint8_t* const out = stands.mutable_data();
    {
      const py::gil_scoped_release release;
      for (std::size_t k = 0; k < size(); ++k) {
        out[k] = static_cast<std::uint8_t>(which.data()[k] ? episodes_[k]->advance(ps(until.data()[k]))
                                                           : Episode::Stand::bound);
      }
    }
    raise_plugin_fault();
    return stands;
  }

  py::dict arrays() {
    const auto k = static_cast<py::ssize_t>(size()), f = static_cast<py::ssize_t>(flows_);
    if (shown_.empty()) {
      for (const char* name : {"present", "due", "born", "left"}) shown_[name] = zeros<bool>({k, f});
      shown_["terms"] = zeros<double>({k, f, py::ssize_t{Episode::kTerms}});
      shown_["inputs"] = zeros<float>({k, f, static_cast<py::ssize_t>(inputs_)});
      shown_["reward"] = zeros<double>({k});
      shown_["reward_terms"] = zeros<double>({k, py::ssize_t{5}});
      shown_["global_state"] = zeros<float>({k, static_cast<py::ssize_t>(astraea::kGlobalValues)});
      shown_["now_ps"] = zeros<std::int64_t>({k});
    }
    return shown_;
  }

  // Writes what the flows show now into these arrays.
  void show() {
    arrays();
    bool* const present = data<bool>("present");
    bool* const due = data<bool>("due");
    bool* const born = data<bool>("born");
    bool* const left = data<bool>("left");
    auto* const terms = data<double>("terms");
    auto* const inputs = data<float>("inputs");
    auto* const reward = data<double>("reward");
    auto* const reward_terms = data<double>("reward_terms");
    auto* const global_state = data<float>("global_state");
    auto* const now_ps = data<std::int64_t>("now_ps");
    const py::gil_scoped_release release;
    for (std::size_t k = 0; k < size(); ++k) {
      const Episode& episode = *episodes_[k];
      now_ps[k] = episode.now().count;
      const astraea::Reward found = episode.reward();
      reward[k] = found.clipped;
      const std::array all{found.thr, found.lat, found.loss, found.fair, found.stab};
      std::copy(all.begin(), all.end(), reward_terms + 5 * k);
      const auto state = episode.global_state();
      std::copy(state.begin(), state.end(), global_state + state.size() * k);
      for (std::size_t f = 0; f < episode.flows(); ++f) {
        const std::size_t row = k * flows_ + f;
        present[row] = episode.present(f);
        due[row] = episode.waits(f);
        born[row] = episode.born(f);
        left[row] = episode.left(f);
        const auto values = episode.terms(f);
        std::copy(values.begin(), values.end(), terms + row * values.size());
        if (!due[row]) continue;
        const std::span<const float> seen = episode.input(f);
        if (seen.size() != inputs_)
          throw std::invalid_argument("episodes: a flow has other inputs than were asked for");
        std::copy(seen.begin(), seen.end(), inputs + row * inputs_);
      }
    }
  }

 private:
  template <typename T>
  static Array<T> zeros(const std::vector<py::ssize_t>& shape) {
    Array<T> made(shape);
    std::fill_n(made.mutable_data(), made.size(), T{});
    return made;
  }
  template <typename T>
  T* data(const char* name) {
    return py::cast<Array<T>>(shown_[name]).mutable_data();
  }
  void check(const Given<double>& values, const char* what) const {
    if (values.ndim() != 2 || values.shape(0) != static_cast<py::ssize_t>(size()) ||
        values.shape(1) != static_cast<py::ssize_t>(flows_)) {
      throw py::value_error(std::string(what) + ": shape (" + std::to_string(size()) + ", " + std::to_string(flows_) +
                            ")");
    }
  }

  std::size_t flows_, inputs_;
  std::vector<std::vector<py::object>> kept_;  // of each episode, which leaves before them
  std::vector<std::unique_ptr<Episode>> episodes_;
  py::dict shown_;
};

}  // namespace

void bind_learning(py::module_& m) {
  py::class_<Episodes>(m, "Episodes",
                       "Networks whose flows a learner decides for (congestion control \"astraea\" with "
                       "policy=\"outside\"), stepped together. Rows of its arrays are [episode, flow].")
      .def(py::init<std::size_t, std::size_t>(), py::arg("flows"), py::arg("inputs"),
           "flows: rows of each episode. inputs: numbers that a policy sees.")
      .def(
          "put",
          [](Episodes& e, std::size_t index, const py::object& network, const std::vector<py::object>& traffics,
             double capacity_Bps, double buffer_bytes, std::vector<double> base_rtt_us, double c0, double c1, double c2,
             double c3, double c4, double beta, std::optional<double> lat_cap,
             const std::vector<std::pair<std::int64_t, double>>& changes) {
            const astraea::RewardOptions reward{
                .c0 = c0, .c1 = c1, .c2 = c2, .c3 = c3, .c4 = c4, .beta = beta, .lat_cap = lat_cap};
            EpisodeOptions options{capacity_Bps, buffer_bytes, std::move(base_rtt_us), reward};
            for (const auto& [at_ps, changed_Bps] : changes) options.changes.push_back({ps(at_ps), changed_Bps});
            e.put(index, network, traffics, std::move(options));
          },
          py::arg("index"), py::arg("network"), py::arg("traffics"), py::kw_only(), py::arg("capacity_Bps"),
          py::arg("buffer_bytes"), py::arg("base_rtt_us"), py::arg("c0"), py::arg("c1"), py::arg("c2"), py::arg("c3"),
          py::arg("c4"), py::arg("beta"), py::arg("lat_cap"), py::arg("changes"),
          "One more, before arrays(), or one in place of that at `index`. base_rtt_us: of each flow. c0 … lat_cap: of "
          "the reward. changes: picoseconds and capacity from then on.")
      .def("__len__", &Episodes::size)
      .def("act", &Episodes::act, py::arg("actions"),
           "Decides: float64[episodes, flows], -1 to 1 for flows that are due, NaN for none.")
      .def("advance", &Episodes::advance, py::arg("until_ps"), py::arg("which"),
           "Passes time in those episodes, int64[episodes] at most up to then, to the next moment at which a flow is "
           "due. uint8[episodes]: 0 a flow is due, 1 the time is reached, 2 the run must be looked at.")
      .def("show", &Episodes::show, "Writes what the flows show now into arrays().")
      .def("arrays", &Episodes::arrays,
           "The arrays by name, always the same: present, due, born, left (bool[episodes, flows]), terms "
           "(float64[episodes, flows, terms]), inputs (float32[episodes, flows, inputs]: of flows that are due), "
           "reward, reward_terms, global_state, now_ps.")
      .def_property_readonly_static("TERMS", [](const py::object&) {
        return std::vector<std::string>{"seconds",      "throughput_Bps", "rtt_us",
                                        "least_rtt_us", "loss_Bps",       "queue_loss_Bps",
                                        "pacing_Bps",   "window_packets", "most_throughput_Bps"};
      });
}

}  // namespace loomnet
