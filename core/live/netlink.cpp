// rtnetlink messages by hand: fixed header, then nested attributes, packed into batches.
#include "live/netlink.hpp"

#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace loomnet {
namespace {

constexpr std::size_t kBatch = 64;  // acknowledgements wait in the socket's buffer meanwhile
constexpr int kReceiveBuffer = 1 << 20;
constexpr unsigned kLowerUp = 1u << 16;  // IFF_LOWER_UP, which <net/if.h> leaves out

// One request under construction. Lengths of open nests are patched when they close.
class Message {
 public:
  template <typename Header>
  Message(std::uint16_t type, std::uint16_t flags, const Header& header) {
    nlmsghdr h{};
    h.nlmsg_type = type;
    h.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
    raw(&h, sizeof h);
    raw(&header, sizeof header);
  }
  void attribute(std::uint16_t type, const void* data, std::size_t size) {
    const rtattr a{static_cast<std::uint16_t>(sizeof(rtattr) + size), type};
    raw(&a, sizeof a);
    raw(data, size);
  }
  template <typename T>
  void value(std::uint16_t type, T v) {
    attribute(type, &v, sizeof v);
  }
  void text(std::uint16_t type, const std::string& s) { attribute(type, s.c_str(), s.size() + 1); }
  std::size_t open(std::uint16_t type) {
    const std::size_t at = bytes_.size();
    const rtattr a{0, type};
    raw(&a, sizeof a);
    return at;
  }
  void close(std::size_t at) {
    const auto length = static_cast<std::uint16_t>(bytes_.size() - at);
    std::memcpy(bytes_.data() + at, &length, sizeof length);
  }
  template <typename T>
  void plain(const T& v) {
    raw(&v, sizeof v);
  }
  std::vector<std::uint8_t> finish() {
    const auto length = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &length, sizeof length);
    return std::move(bytes_);
  }

 private:
  void raw(const void* data, std::size_t size) {
    const auto* p = static_cast<const std::uint8_t*>(data);
    bytes_.insert(bytes_.end(), p, p + size);
    bytes_.resize((bytes_.size() + 3) & ~std::size_t{3});
  }
  std::vector<std::uint8_t> bytes_;
};

void check_name(const std::string& name) {
  if (name.empty() || name.size() >= IFNAMSIZ) {
    throw std::invalid_argument("interface name '" + name + "' must have 1 to 15 bytes");
  }
}

void describe_end(Message& m, const VethEnd& end, std::uint32_t mtu) {
  m.text(IFLA_IFNAME, end.name);
  m.value<std::uint32_t>(IFLA_MTU, mtu);
  // One queue: an AF_XDP socket binds to queue 0, and nothing may arrive on another.
  m.value<std::uint32_t>(IFLA_NUM_TX_QUEUES, 1);
  m.value<std::uint32_t>(IFLA_NUM_RX_QUEUES, 1);
  if (end.mac != MacAddress{}) m.attribute(IFLA_ADDRESS, end.mac.data(), end.mac.size());
  if (end.netns) m.value<std::uint32_t>(IFLA_NET_NS_FD, static_cast<std::uint32_t>(end.netns->fd()));
  if (end.group) m.value<std::uint32_t>(IFLA_GROUP, end.group);
}

ifinfomsg link_header(unsigned flags = 0, unsigned change = 0, int index = 0) {
  ifinfomsg h{};
  h.ifi_family = AF_UNSPEC;
  h.ifi_index = index;
  h.ifi_flags = flags;
  h.ifi_change = change;
  return h;
}

std::size_t address_bytes(int family) { return family == AF_INET ? 4 : 16; }

std::string to_text(const IpAddress& a) {
  char buffer[INET6_ADDRSTRLEN] = "?";
  ::inet_ntop(a.family, a.bytes.data(), buffer, sizeof buffer);
  return std::string(buffer) + "/" + std::to_string(a.prefix);
}

rtmsg route_header(const IpAddress& destination) {
  rtmsg h{};
  h.rtm_family = static_cast<std::uint8_t>(destination.family);
  h.rtm_dst_len = destination.prefix;
  h.rtm_table = RT_TABLE_MAIN;
  h.rtm_protocol = RTPROT_STATIC;
  h.rtm_scope = RT_SCOPE_UNIVERSE;
  h.rtm_type = RTN_UNICAST;
  return h;
}

// The kernel's own explanation, if it sent one (NETLINK_EXT_ACK).
std::string extended_reason(const nlmsghdr* h) {
  if (!(h->nlmsg_flags & NLM_F_ACK_TLVS)) return {};
  std::size_t skip = sizeof(nlmsghdr) + sizeof(nlmsgerr);
  const auto* e = static_cast<const nlmsgerr*>(NLMSG_DATA(h));
  if (!(h->nlmsg_flags & NLM_F_CAPPED)) skip += e->msg.nlmsg_len - sizeof(nlmsghdr);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(h);
  for (std::size_t at = NLMSG_ALIGN(skip); at + sizeof(nlattr) <= h->nlmsg_len;) {
    nlattr a;
    std::memcpy(&a, bytes + at, sizeof a);
    if (a.nla_len < sizeof a || at + a.nla_len > h->nlmsg_len) break;
    if ((a.nla_type & NLA_TYPE_MASK) == NLMSGERR_ATTR_MSG) {
      return std::string(reinterpret_cast<const char*>(bytes + at + sizeof a));
    }
    at += NLA_ALIGN(a.nla_len);
  }
  return {};
}

LinkInfo parse_link(const nlmsghdr* h) {
  LinkInfo info;
  const auto* m = static_cast<const ifinfomsg*>(NLMSG_DATA(h));
  info.index = m->ifi_index;
  info.up = m->ifi_flags & IFF_UP;
  info.carrier = m->ifi_flags & kLowerUp;
  int left = static_cast<int>(h->nlmsg_len - NLMSG_LENGTH(sizeof *m));
  for (const rtattr* a = IFLA_RTA(m); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
    const auto* data = static_cast<const std::uint8_t*>(RTA_DATA(a));
    if (a->rta_type == IFLA_IFNAME) info.name = reinterpret_cast<const char*>(data);
    if (a->rta_type == IFLA_MTU) std::memcpy(&info.mtu, data, sizeof info.mtu);
    if (a->rta_type == IFLA_ADDRESS && RTA_PAYLOAD(a) == 6) std::memcpy(info.mac.data(), data, 6);
    if (a->rta_type == IFLA_STATS64) {
      rtnl_link_stats64 s{};
      std::memcpy(&s, data, std::min<std::size_t>(sizeof s, RTA_PAYLOAD(a)));
      info.rx_packets = s.rx_packets;
      info.tx_packets = s.tx_packets;
      info.rx_dropped = s.rx_dropped;
      info.tx_dropped = s.tx_dropped;
    }
  }
  return info;
}

}  // namespace

IpAddress IpAddress::parse(const std::string& text) {
  IpAddress a;
  const auto slash = text.find('/');
  const std::string host = text.substr(0, slash);
  a.family = host.find(':') == std::string::npos ? AF_INET : AF_INET6;
  if (::inet_pton(a.family, host.c_str(), a.bytes.data()) != 1) {
    throw std::invalid_argument("'" + text + "' is not an IPv4 or IPv6 address");
  }
  const int most = a.family == AF_INET ? 32 : 128;
  int prefix = most;
  if (slash != std::string::npos) {
    std::size_t used = 0;
    try {
      prefix = std::stoi(text.substr(slash + 1), &used);
    } catch (const std::logic_error&) {
      prefix = -1;
    }
    if (prefix < 0 || prefix > most || used != text.size() - slash - 1) {
      throw std::invalid_argument("'" + text + "' has no prefix length of 0 to " + std::to_string(most));
    }
  }
  a.prefix = static_cast<std::uint8_t>(prefix);
  return a;
}

Rtnetlink::Rtnetlink(const Netns& netns) : label_(netns.label()) {
  netns.run([&] {
    socket_ = checked_fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), "open rtnetlink in " + label_);
  });
  const int on = 1;
  ::setsockopt(socket_.get(), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on);
  ::setsockopt(socket_.get(), SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on);
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBuffer, sizeof kReceiveBuffer);
}

void Rtnetlink::add(Request request) { requests_.push_back(std::move(request)); }

void Rtnetlink::create_veth(const VethPair& pair) {
  check_name(pair.a.name);
  check_name(pair.b.name);
  Message m(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, link_header(pair.a.up ? IFF_UP : 0, IFF_UP, pair.a.index));
  describe_end(m, pair.a, pair.mtu);
  const auto info = m.open(IFLA_LINKINFO);
  m.text(IFLA_INFO_KIND, "veth");
  const auto data = m.open(IFLA_INFO_DATA);
  const auto peer = m.open(VETH_INFO_PEER);
  // The peer cannot be born up: veth refuses to open until both ends know each other.
  m.plain(link_header());
  describe_end(m, pair.b, pair.mtu);
  m.close(peer);
  m.close(data);
  m.close(info);
  auto place = [&](const VethEnd& e) { return e.name + " (in " + (e.netns ? e.netns->label() : label_) + ")"; };
  add({m.finish(), "create veth " + place(pair.a) + " -- " + place(pair.b)});
  if (!pair.b.up) return;
  if (!pair.b.netns) return set_up(pair.b.name, true);
  peers_up_[pair.b.netns].push_back(pair.b.name);
}

void Rtnetlink::delete_link(const std::string& name) {
  check_name(name);
  Message m(RTM_DELLINK, 0, link_header());
  m.text(IFLA_IFNAME, name);
  add({m.finish(), "delete link " + name + " in " + label_});
}

void Rtnetlink::delete_group(std::uint32_t group) {
  Message m(RTM_DELLINK, 0, link_header());
  m.value<std::uint32_t>(IFLA_GROUP, group);
  add({m.finish(), "delete link group " + std::to_string(group) + " in " + label_});
}

void Rtnetlink::set_up(const std::string& name, bool up) {
  check_name(name);
  Message m(RTM_NEWLINK, 0, link_header(up ? IFF_UP : 0, IFF_UP));
  m.text(IFLA_IFNAME, name);
  add({m.finish(), std::string("set link ") + name + (up ? " up" : " down") + " in " + label_});
}

void Rtnetlink::add_address(int index, const IpAddress& address) {
  ifaddrmsg h{};
  h.ifa_family = static_cast<std::uint8_t>(address.family);
  h.ifa_prefixlen = address.prefix;
  h.ifa_flags = IFA_F_NODAD | IFA_F_PERMANENT;
  h.ifa_index = static_cast<std::uint32_t>(index);
  Message m(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, h);
  m.attribute(IFA_LOCAL, address.bytes.data(), address_bytes(address.family));
  m.attribute(IFA_ADDRESS, address.bytes.data(), address_bytes(address.family));
  add({m.finish(), "add address " + to_text(address) + " to link " + std::to_string(index) + " in " + label_});
}

void Rtnetlink::add_route(const IpAddress& destination, int index, const IpAddress* gateway) {
  rtmsg h = route_header(destination);
  if (!gateway) h.rtm_scope = RT_SCOPE_LINK;
  Message m(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, h);
  const std::size_t size = address_bytes(destination.family);
  if (destination.prefix) m.attribute(RTA_DST, destination.bytes.data(), size);
  if (gateway) m.attribute(RTA_GATEWAY, gateway->bytes.data(), size);
  m.value<std::uint32_t>(RTA_OIF, static_cast<std::uint32_t>(index));
  add({m.finish(), "add route " + to_text(destination) + " by link " + std::to_string(index) + " in " + label_});
}

void Rtnetlink::set_routes(const IpAddress& destination, const std::vector<int>& indices, const IpAddress& gateway,
                           const IpAddress& source, std::uint32_t mtu) {
  const std::size_t size = address_bytes(destination.family);
  Message m(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, route_header(destination));
  m.attribute(RTA_DST, destination.bytes.data(), size);
  m.attribute(RTA_PREFSRC, source.bytes.data(), size);
  if (mtu) {
    const auto metrics = m.open(RTA_METRICS);
    m.value<std::uint32_t>(RTAX_MTU, mtu);
    m.close(metrics);
  }
  const auto hops = m.open(RTA_MULTIPATH);
  for (const int index : indices) {
    rtnexthop hop{};
    hop.rtnh_len = static_cast<unsigned short>(sizeof hop + RTA_SPACE(size));
    hop.rtnh_ifindex = index;
    m.plain(hop);
    m.attribute(RTA_GATEWAY, gateway.bytes.data(), size);
  }
  m.close(hops);
  add({m.finish(), "set route " + to_text(destination) + " in " + label_});
}

void Rtnetlink::delete_route(const IpAddress& destination) {
  Message m(RTM_DELROUTE, 0, route_header(destination));
  m.attribute(RTA_DST, destination.bytes.data(), address_bytes(destination.family));
  add({m.finish(), "delete route " + to_text(destination) + " in " + label_});
}

void Rtnetlink::add_neighbour(int index, const IpAddress& address, const MacAddress& mac) {
  ndmsg h{};
  h.ndm_family = static_cast<std::uint8_t>(address.family);
  h.ndm_ifindex = index;
  h.ndm_state = NUD_PERMANENT;
  Message m(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, h);
  m.attribute(NDA_DST, address.bytes.data(), address_bytes(address.family));
  m.attribute(NDA_LLADDR, mac.data(), mac.size());
  add({m.finish(), "add neighbour " + to_text(address) + " on link " + std::to_string(index) + " in " + label_});
}

void Rtnetlink::commit() {
  const auto peers = std::move(peers_up_);
  peers_up_.clear();
  exchange();
  for (const auto& [netns, names] : peers) {
    Rtnetlink far(*netns);
    for (const std::string& name : names) far.set_up(name, true);
    far.commit();
  }
}

void Rtnetlink::exchange() {
  const std::vector<Request> requests = std::move(requests_);
  requests_.clear();
  std::string first;
  int first_error = 0;
  std::string first_detail;
  std::size_t failed = 0;
  reply_.resize(1 << 16);
  for (std::size_t begin = 0; begin < requests.size(); begin += kBatch) {
    const std::size_t count = std::min(kBatch, requests.size() - begin);
    const std::uint32_t base = sequence_ + 1;
    std::vector<std::uint8_t> batch;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = batch.size();
      batch.insert(batch.end(), requests[begin + i].bytes.begin(), requests[begin + i].bytes.end());
      ++sequence_;
      std::memcpy(batch.data() + at + offsetof(nlmsghdr, nlmsg_seq), &sequence_, sizeof sequence_);
    }
    if (::send(socket_.get(), batch.data(), batch.size(), 0) < 0) {
      throw LiveError("send " + std::to_string(count) + " rtnetlink requests in " + label_ +
                          ", the first: " + requests[begin].tried,
                      errno);
    }
    for (std::size_t acks = 0; acks < count;) {
      const ssize_t size = ::recv(socket_.get(), reply_.data(), reply_.size(), 0);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) throw LiveError("receive rtnetlink acknowledgements in " + label_, errno);
      auto left = static_cast<unsigned>(size);
      for (auto* h = reinterpret_cast<nlmsghdr*>(reply_.data()); NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
        if (h->nlmsg_type != NLMSG_ERROR || h->nlmsg_seq - base >= count) continue;
        ++acks;
        const auto* e = static_cast<const nlmsgerr*>(NLMSG_DATA(h));
        if (e->error == 0) continue;
        if (failed++ == 0) {
          first = requests[begin + (h->nlmsg_seq - base)].tried;
          first_error = -e->error;
          first_detail = extended_reason(h);
        }
      }
    }
  }
  if (failed == 0) return;
  if (failed > 1) first += " (the first of " + std::to_string(failed) + " failed requests)";
  if (first_detail.empty()) throw LiveError(first, first_error);
  throw LiveError(first, first_error, first_detail);
}

std::vector<LinkInfo> Rtnetlink::links() {
  const std::string tried = "list links in " + label_;
  Message m(RTM_GETLINK, NLM_F_DUMP, link_header());
  std::vector<std::uint8_t> bytes = m.finish();
  ++sequence_;
  std::memcpy(bytes.data() + offsetof(nlmsghdr, nlmsg_seq), &sequence_, sizeof sequence_);
  if (::send(socket_.get(), bytes.data(), bytes.size(), 0) < 0) throw LiveError(tried, errno);
  std::vector<LinkInfo> found;
  std::vector<std::uint8_t> reply(1 << 18);
  for (;;) {
    const ssize_t size = ::recv(socket_.get(), reply.data(), reply.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw LiveError(tried, errno);
    auto left = static_cast<unsigned>(size);
    for (auto* h = reinterpret_cast<nlmsghdr*>(reply.data()); NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
      if (h->nlmsg_seq != sequence_) continue;
      if (h->nlmsg_type == NLMSG_DONE) return found;
      if (h->nlmsg_type == NLMSG_ERROR) {
        const auto* e = static_cast<const nlmsgerr*>(NLMSG_DATA(h));
        if (e->error) throw LiveError(tried, -e->error);
      }
      if (h->nlmsg_type == RTM_NEWLINK) found.push_back(parse_link(h));
    }
  }
}

LinkInfo Rtnetlink::link(const std::string& name) {
  for (const LinkInfo& l : links()) {
    if (l.name == name) return l;
  }
  throw LiveError("find link " + name + " in " + label_, ENODEV);
}

}  // namespace loomnet
