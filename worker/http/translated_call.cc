#include "worker/http/translated_call.h"

#include <boost/system/system_error.hpp>
#include <utility>

#include "worker/http/page_guard.h"

namespace troupe {

// A generation that its client ends by another request unwinds as one whose client is gone; this one is still
// there.
Task<void> answer_translated(Exchange& exchange, const DialectRoute& route, TranslatedCall call) {
  const PageRule rule = dialect_asks(route.path) ? PageRule::kOnlyAsks : PageRule::kGuarded;
  auto fault = page_refusal_of(exchange.request(), rule, call.origins);
  DialectExchange translated(exchange, route, call.generations);
  if (!fault) fault = translated.fault();
  try {
    co_await call.answer(translated, route.path, std::move(fault));
  } catch (const boost::system::system_error&) {
    if (!translated.aborted()) throw;
  }
  if (translated.aborted()) co_await translated.end_aborted();
}

}  // namespace troupe
