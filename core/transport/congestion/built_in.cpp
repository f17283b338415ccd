// The built-in congestion controls by name, with what each needs of its transport.
#include "transport/congestion/built_in.hpp"

#include "transport/congestion/astraea/astraea.hpp"
#include "transport/congestion/bbr.hpp"
#include "transport/congestion/bbr3.hpp"
#include "transport/congestion/copa.hpp"
#include "transport/congestion/cubic.hpp"
#include "transport/congestion/dcqcn.hpp"
#include "transport/congestion/dctcp.hpp"
#include "transport/congestion/dctcp_like.hpp"
#include "transport/congestion/fixed_window.hpp"
#include "transport/congestion/held.hpp"
#include "transport/congestion/nscc.hpp"
#include "transport/congestion/reno.hpp"
#include "transport/congestion/timely.hpp"
#include "transport/congestion/vegas.hpp"
#include "transport/congestion/vivace.hpp"

namespace loomnet {

std::vector<CongestionKind> built_in_congestion_controls() {
  using namespace congestion;
  using namespace signal;
  return {
      congestion_kind<Reno>("reno", recovery, RenoOptions::table()),
      congestion_kind<Cubic>("cubic", rtt | recovery, CubicOptions::table()),
      congestion_kind<Dctcp>("dctcp", marks | recovery, DctcpOptions::table()),
      congestion_kind<Bbr>("bbr", rtt | delivery_rate | recovery, BbrOptions::table()),
      congestion_kind<Bbr3>("bbr3", rtt | delivery_rate | recovery, Bbr3Options::table()),
      congestion_kind<Vegas>("vegas", rtt | recovery, VegasOptions::table()),
      congestion_kind<Copa>("copa", rtt | recovery, CopaOptions::table()),
      congestion_kind<Vivace>("vivace", rtt | recovery, VivaceOptions::table()),
      astraea::astraea_kind(),
      congestion_kind<Nscc>("nscc", rtt | marks | refusals | line_rate, NsccOptions::table()),
      congestion_kind<FixedWindow>("fixed_window", line_rate, FixedWindowOptions::table()),
      congestion_kind<Held>("held", 0, HeldOptions::table()),
      congestion_kind<Dcqcn>("dcqcn", notifications | line_rate, DcqcnOptions::table()),
      congestion_kind<DctcpLike>("dctcp_like", marks | line_rate, DctcpLikeOptions::table()),
      congestion_kind<Timely>("timely", rtt | line_rate, TimelyOptions::table()),
  };
}

}  // namespace loomnet
