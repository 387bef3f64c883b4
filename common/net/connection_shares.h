#pragma once

// Chooses which connection makes room for a new one where there are too many (limits.connections, or the
// process's open files): an idle one first, then a request that is still on its way, if its client's address
// has more connections than the newcomer's. Of the oldest few the one of the address with most connections
// is chosen, so a client that keeps many loses them first. What is being answered stays.
//
// Pure. Each connection holds its Seat.

#include <boost/asio/ip/address.hpp>
#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>

namespace troupe {

class HttpConnection;

// The client whose share a peer's use counts in, here and in body_shares.h: an IPv4 address, mapped into IPv6
// or not; of IPv6 a /64, which any host has to itself: "2001:db8:0:1::/64".
std::string share_of(const boost::asio::ip::address& address);

class ConnectionShares {
 public:
  enum class Use { kIdle, kReceiving, kAnswering };
  struct Seat {
    HttpConnection* connection = nullptr;
    std::string address;  // the client's: share_of()
    Use use = Use::kIdle;
    bool taken = false;
    std::list<Seat*>::iterator place;
  };

  void take(Seat& seat, std::string address);
  void use(Seat& seat, Use use);
  void leave(Seat& seat);  // may be called again
  size_t size() const { return idle_.size() + receiving_.size() + answering_.size(); }
  // The one to close for a connection from `newcomer`; null: there is none.
  Seat* to_close(std::string_view newcomer) const;

 private:
  static constexpr int kLookedAtMax = 64;
  std::list<Seat*>& list_of(Use use);
  Seat* busiest(const std::list<Seat*>& seats, size_t more_than) const;
  size_t count_of(std::string_view address) const;

  std::list<Seat*> idle_, receiving_, answering_;  // each the oldest first
  std::unordered_map<std::string, size_t> by_address_;
};

}  // namespace troupe
