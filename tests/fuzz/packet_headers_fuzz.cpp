// Every header parser on arbitrary bytes: what parses must survive serialize and parse unchanged;
// and trimming any bytes keeps lengths consistent.
#include <algorithm>
#include <cstdlib>

#include "packet/ethernet.hpp"
#include "packet/ipv6.hpp"
#include "packet/mrc_headers.hpp"
#include "packet/rdma.hpp"
#include "packet/tcp.hpp"
#include "packet/trim.hpp"
#include "packet/udp.hpp"
#include "transport/tcp/framing.hpp"

namespace {

using namespace loomnet;

template <typename Header>
void round_trip(std::span<const std::uint8_t> input) {
  ByteReader in(input);
  const Header first = Header::parse(in);
  if (!in.ok()) return;
  std::array<std::uint8_t, Header::kSize> room;
  ByteWriter out(room);
  first.serialize(out);
  ByteReader again(room);
  if (!out.ok() || !(Header::parse(again) == first)) std::abort();
}

// Options of any length that says it is.
void round_trip_tcp_options(std::span<const std::uint8_t> input) {
  ByteReader in(input);
  const std::size_t length = std::min(input.size(), TcpOptionFields::kMaxBytes);
  const TcpOptionFields first = TcpOptionFields::parse(in, length);
  if (!in.ok()) return;
  if (in.position() != length) std::abort();
  std::array<std::uint8_t, TcpOptionFields::kTimestampBytes + TcpOptionFields::kMaxBytes> room;
  ByteWriter out(room);
  first.serialize(out);
  if (!out.ok() || out.position() != first.size()) std::abort();
  ByteReader again(std::span<const std::uint8_t>(room).first(first.size()));
  if (!(TcpOptionFields::parse(again, first.size()) == first) || !again.ok()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> input(data, size);
  round_trip<EthernetHeader>(input);
  round_trip<Ipv6Header>(input);
  round_trip<UdpHeader>(input);
  round_trip<TcpHeader>(input);
  round_trip<tcp::FrameHeader>(input);
  round_trip_tcp_options(input);
  round_trip<Bth>(input);
  round_trip<Reth>(input);
  round_trip<ImmDt>(input);
  round_trip<Aeth>(input);
  round_trip<mrc::Meth>(input);
  round_trip<mrc::Tseth>(input);
  round_trip<mrc::Seth>(input);
  round_trip<mrc::CcState>(input);
  round_trip<mrc::Neth>(input);
  round_trip<mrc::Peth>(input);
  round_trip<mrc::Erth>(input);
  round_trip<mrc::Eeth>(input);

  static PacketPool pool;
  PacketPtr p = pool.allocate();
  p->header_length = static_cast<std::uint16_t>(std::min(size, kMaxHeaderBytes));
  std::copy_n(data, p->header_length, p->header.data());
  p->wire_length = static_cast<std::uint32_t>(size);
  p->payload.length = p->wire_length - p->header_length;
  if (trim(*p, {.dscp = 12}) && p->header_length + p->payload.length != p->wire_length) std::abort();
  return 0;
}
