#pragma once

// How a worker registers in etcd (registration.h).

#include <chrono>
#include <string>

#include "common/etcd/etcd.h"
#include "common/etcd/keys.h"

namespace troupe {

struct RegistrationOptions {
  EtcdOptions etcd;
  std::string prefix{kStatePrefix};
  std::chrono::seconds ttl{5};
};

}  // namespace troupe
