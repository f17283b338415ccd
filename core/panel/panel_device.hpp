// The state of an optical circuit switch: cross-connects of simplex ports, overrides and faults of ports, optical
// power, and the events of all these. The device handles no packets and reads no clock: callers pass the time. It
// behaves as SONiC's OCS design and SAI's experimental OCS objects say.
#pragma once

#include <cstdint>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "clock/random.hpp"
#include "clock/time.hpp"
#include "ebpf/panel_abi.h"
#include "panel/profile.hpp"

namespace loomnet::panel {

using Port = std::uint16_t;

// Port n of a panel consists of two simplex ports: light from a host comes in by nA, and light to that host leaves
// by nB. Ports are numbered from 0 here and from 1 in all control interfaces.
struct Simplex {
  Port port = 0;
  bool out = false;  // the B side
  friend bool operator==(const Simplex&, const Simplex&) = default;
};

struct CrossConnect {
  Port a = 0, b = 0;  // ingress, egress; a == b is a loopback
  friend auto operator<=>(const CrossConnect&, const CrossConnect&) = default;
};

enum class Status : std::uint8_t {
  blocked = PANEL_BLOCKED,
  tuning = PANEL_TUNING,
  tuned = PANEL_TUNED,
  failed = PANEL_FAILED,
};
enum class Override : std::uint8_t { powered_off, normal, force_blocked };  // SAI's values

enum class Mode : std::uint8_t {
  update,     // removes the cross-connects that use the named ports now
  safe,       // refuses the request if one of them is in another cross-connect
  overwrite,  // removes every other cross-connect
};

// The directions in which a host's port must have light to have carrier.
enum class Carrier : std::uint8_t {
  both,  // in both directions, as Ethernet's fault signalling has it
  rx,    // in its receive direction
  none,  // none: carrier never goes
};

struct DeviceOptions {
  Profile profile = panel::profile("sim25");
  Carrier carrier = Carrier::both;
  std::uint64_t seed = 1;
  bool dark_by_port = false;  // a dark time is drawn for each port, not one for each request
};

struct DeviceEvent {
  enum class Kind : std::uint8_t { status, carrier } kind = Kind::status;
  Picoseconds at;
  Simplex port;  // of carrier: the port whose host it is
  std::uint8_t value = 0;  // Status, or whether there is carrier
  std::uint64_t generation = 0;
  friend bool operator==(const DeviceEvent&, const DeviceEvent&) = default;
};

// An ingress port's cross-connect, from a request on; `peer`: the egress port, -1 for none. A status does not say it:
// a panel without a dark time changes circuits and stays tuned.
struct Patch {
  Picoseconds at;
  Port ingress = 0;
  std::int32_t peer = -1;
  friend bool operator==(const Patch&, const Patch&) = default;
};

class PanelDevice {
 public:
  static constexpr std::size_t kMostPatches = 100'000;
  static constexpr std::size_t kMaxPorts = 1024;  // as SONiC's design has it

  // Throws std::invalid_argument.
  explicit PanelDevice(std::size_t ports, const DeviceOptions& options = {});

  // --- requests: each is applied completely; one that throws std::invalid_argument changes nothing -----
  // Removes and adds cross-connects as one generation and returns its number. A request that changes nothing makes
  // no new generation. `all_dark`: every cross-connect of these ports goes dark, changed or not.
  std::uint64_t change(std::span<const CrossConnect> remove, std::span<const CrossConnect> add, Mode mode,
                       Picoseconds now, std::span<const Port> all_dark = {});
  std::uint64_t connect(std::span<const CrossConnect> add, Mode mode, Picoseconds now) {
    return change({}, add, mode, now);
  }
  // Adds these cross-connects and removes those that use one of their ports. All others stay.
  std::uint64_t reconcile(std::span<const CrossConnect> wanted, Picoseconds now) {
    return change({}, wanted, Mode::update, now);
  }
  void set_override(Simplex port, Override value, Picoseconds now);
  void set_shutter(Simplex port, bool closed, Picoseconds now);
  void set_failed(Simplex port, bool failed, Picoseconds now);
  void set_attenuation(Port egress, double db, Picoseconds now);  // 0 and more
  void set_transmit_power(Port ingress, double dbm, Picoseconds now);

  // --- time ---------------------------------------------------------------------------------------------
  // The next time at which a status or a carrier changes without a request; kNever where none will.
  Picoseconds next_time() const { return due_.empty() ? kNever : due_.top().first; }
  // Records the changes that have happened until now as events.
  void advance(Picoseconds now);
  std::vector<DeviceEvent> take_events() { return std::exchange(events_, {}); }
  // All changes of cross-connects since the device was made, oldest first; of more than kMostPatches the first.
  const std::vector<Patch>& patches() const { return patches_; }

  // --- state --------------------------------------------------------------------------------------------
  std::size_t ports() const { return in_.size(); }
  std::uint64_t generation() const { return generation_; }
  std::vector<CrossConnect> cross_connects() const;  // in the order of their ingress ports
  std::int32_t target(Simplex port) const { return end(port).peer; }  // -1: none
  Status status(Simplex port, Picoseconds now) const;
  Override override_of(Simplex port) const { return end(port).override_state; }
  bool carrier(Port port, Picoseconds now) const;
  // Whether a cross-connect begins at this port and neither of its ends is blocked or failed. It may still be tuning.
  bool passes(Port ingress) const;
  Picoseconds dark_until(Port ingress) const { return in_.at(ingress).dark_until; }
  // Power in dBm of the light that leaves by this port; -infinity where no light leaves.
  double power_dbm(Port egress, Picoseconds now) const;
  bool shutter_closed(Simplex port) const { return end(port).shutter_closed; }
  double transmit_power(Port ingress) const { return in_.at(ingress).level_db; }
  double attenuation(Port egress) const { return out_.at(egress).level_db; }
  int insertion_loss(Port a, Port b) const;  // in hundredths of a dB
  panel_entry entry(Port ingress, Picoseconds now) const;
  const DeviceOptions& options() const { return options_; }

 private:
  struct End {
    std::int32_t peer = -1;
    Override override_state = Override::normal;
    bool shutter_closed = false, failed = false;
    double level_db = 0;  // of an ingress port the transmitter's power, of an egress port the attenuation
    Picoseconds dark_until;  // of an ingress port: end of the dark time of its cross-connect
    Picoseconds lit_from;  // of an ingress port: the time from which its light leaves by the cross-connect
    bool passed = false;  // of an ingress port: passes() at the last look()
    std::uint64_t generation = 0;
    Status told = Status::blocked;
  };
  struct Host {
    Picoseconds nic_up;  // time the transceiver takes from light to carrier, drawn anew whenever its light changes
    bool told = false;
  };
  End& end(Simplex port) { return (port.out ? out_ : in_).at(port.port); }
  const End& end(Simplex port) const { return (port.out ? out_ : in_).at(port.port); }
  void check(std::span<const CrossConnect> named) const;
  void look(Port ingress, Picoseconds now);  // updates the light of this port after a change
  void look_at(Simplex port, Picoseconds now);
  void tell(Simplex port, Picoseconds now);
  Picoseconds carrier_from(Port port) const;  // kNever: it has no carrier until something else changes
  double level(Port a, Port b) const;

  DeviceOptions options_;
  std::vector<End> in_, out_;
  std::vector<Host> hosts_;
  std::uint64_t generation_ = 0;
  RandomStream dark_random_, nic_random_;
  using Due = std::pair<Picoseconds, Port>;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::vector<DeviceEvent> events_;
  std::vector<Patch> patches_;
};

}  // namespace loomnet::panel
