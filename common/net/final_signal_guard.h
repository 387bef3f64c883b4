// Keeps a SIGTERM or SIGINT that arrives after the drain from killing a process about to exit normally.
//
// Asio restores a signal's default action when its last signal_set goes: from then to the end of main() an
// impatient operator's second SIGTERM would turn exit code 0 into death by signal, and a supervisor would
// report a crash. This signal_set stays registered for its whole life and never waits, so a late signal is
// discarded; its destructor blocks the signals for the rest of the process.
//
// REQUIRES: made on the main thread, outlives every other signal_set and every other thread of the program.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>

namespace troupe {

class FinalSignalGuard {
 public:
  FinalSignalGuard() : set_(io_, SIGTERM, SIGINT) {}
  FinalSignalGuard(const FinalSignalGuard&) = delete;
  FinalSignalGuard& operator=(const FinalSignalGuard&) = delete;
  ~FinalSignalGuard() {
    sigset_t stops;
    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stops, nullptr);
  }

 private:
  boost::asio::io_context io_;  // never run
  boost::asio::signal_set set_;
};

}  // namespace troupe
