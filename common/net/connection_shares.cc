#include "common/net/connection_shares.h"

#include <algorithm>
#include <utility>

namespace troupe {

namespace ip = boost::asio::ip;

std::string share_of(const ip::address& address) {
  if (address.is_v4()) return address.to_string();
  const ip::address_v6 whole = address.to_v6();
  if (whole.is_v4_mapped()) return ip::make_address_v4(ip::v4_mapped, whole).to_string();
  if (whole.is_loopback()) return whole.to_string();
  ip::address_v6::bytes_type net = whole.to_bytes();
  std::fill(net.begin() + 8, net.end(), static_cast<unsigned char>(0));
  return ip::address_v6(net).to_string() + "/64";
}

std::list<ConnectionShares::Seat*>& ConnectionShares::list_of(Use use) {
  if (use == Use::kIdle) return idle_;
  return use == Use::kReceiving ? receiving_ : answering_;
}

void ConnectionShares::take(Seat& seat, std::string address) {
  seat.address = std::move(address);
  seat.taken = true;
  by_address_[seat.address] += 1;
  std::list<Seat*>& list = list_of(seat.use);
  seat.place = list.insert(list.end(), &seat);
}

void ConnectionShares::use(Seat& seat, Use use) {
  if (!seat.taken || seat.use == use) return;
  std::list<Seat*>& to = list_of(use);
  to.splice(to.end(), list_of(seat.use), seat.place);
  seat.use = use;
}

void ConnectionShares::leave(Seat& seat) {
  if (!std::exchange(seat.taken, false)) return;
  list_of(seat.use).erase(seat.place);
  const auto count = by_address_.find(seat.address);
  if (--count->second == 0) by_address_.erase(count);
}

size_t ConnectionShares::count_of(std::string_view address) const {
  const auto count = by_address_.find(std::string(address));
  return count == by_address_.end() ? 0 : count->second;
}

ConnectionShares::Seat* ConnectionShares::to_close(std::string_view newcomer) const {
  if (Seat* const idle = busiest(idle_, 0)) return idle;
  return busiest(receiving_, count_of(newcomer) + 1);
}

ConnectionShares::Seat* ConnectionShares::busiest(const std::list<Seat*>& seats, size_t more_than) const {
  Seat* found = nullptr;
  int looked_at = 0;
  for (Seat* seat : seats) {
    if (++looked_at > kLookedAtMax) break;
    const size_t count = count_of(seat->address);
    if (count <= more_than) continue;
    found = seat;
    more_than = count;
  }
  return found;
}

}  // namespace troupe
