// Poisson arrivals are drawn at the highest rate and thinned while the rate rises and outside the burst.
// Gamma gaps cannot be thinned (the rest would be nearer to Poisson), so they are drawn in a time of constant
// rate, which runs slower where the rate is less.

#include "sim/workload/arrivals.h"

#include <algorithm>
#include <cmath>

namespace troupe::sim {

namespace {

double in_seconds(Duration d) {
  return static_cast<double>(d.count()) / 1e9;
}
Duration from_seconds(double s) {
  return Duration(std::llround(s * 1e9));
}

Duration next_of_poisson(const PersonaWorkload& w, double gap_s, Duration at, Draw& draw) {
  const double most = w.burst ? w.burst->times : 1;
  while (true) {
    at += from_seconds(draw.exponential(gap_s / most));
    const double t = in_seconds(at);
    if (w.burst && !(at >= w.burst->begin && at < w.burst->begin + w.burst->duration) &&
        draw.uniform() * most >= 1)
      continue;
    if (t >= w.ramp_s || draw.uniform() * w.ramp_s < t) return at;
  }
}

// The time at which the rate's integral from `t` on has become `left` seconds of the full rate.
double time_after(const PersonaWorkload& w, double t, double left) {
  const double begin = w.burst ? in_seconds(w.burst->begin) : 0;
  const double end = w.burst ? begin + in_seconds(w.burst->duration) : 0;
  while (true) {
    const double times = t >= begin && t < end ? w.burst->times : 1;
    const bool rising = t < w.ramp_s;
    const double until = rising ? std::sqrt(t * t + 2 * w.ramp_s * left / times) : t + left / times;
    double change = until;  // the rate's next edge, if that comes before
    for (const double edge : {begin, end, w.ramp_s})
      if (edge > t) change = std::min(change, edge);
    if (change >= until) return until;
    left -= times * (rising ? (change * change - t * t) / (2 * w.ramp_s) : change - t);
    t = change;
  }
}

}  // namespace

Duration next_start(const PersonaWorkload& w, double gap_s, Duration at, Draw& draw) {
  if (w.arrival_cv == 1) return next_of_poisson(w, gap_s, at, draw);
  const double shape = 1 / (w.arrival_cv * w.arrival_cv);
  return from_seconds(time_after(w, in_seconds(at), draw.gamma(shape) * gap_s / shape));
}

}  // namespace troupe::sim
