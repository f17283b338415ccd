// loomnet._core: the compiled module. Each part binds itself; this file only calls them.
#include "bindings/bindings.hpp"
#include "bindings/transports.hpp"

namespace loomnet {

PYBIND11_MODULE(_core, m) {
  m.doc() = "Loomnet's engine: fabrics, NICs, traffic and ranks, on the virtual and the live clock.";
  m.attr("VERSION") = LOOMNET_VERSION;
  bind_rank(m);
  bind_congestion(m);
  bind_astraea(m);
  bind_network(m);
  bind_traffic(m);
  bind_learning(m);
  bind_model_traffic(m);
  bind_fluid(m);
  bind_region_driver(m);
  bind_moe(m);
  bind_rank_bridge(m);
  bind_rank_region(m);
  bind_recorder(m);
#ifdef LOOMNET_HAVE_LIVE
  bind_live(m);
  bind_kernel_control(m);
#endif
}

}  // namespace loomnet
