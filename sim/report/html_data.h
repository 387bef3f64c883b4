#pragma once

// The numbers of html_page()'s plots, cut to a page's size. Private to html*.cc.

#include <span>
#include <string>

#include "sim/report/html.h"

namespace troupe::sim {

// JSON without a "<": safe inside <script>. html_data.cc describes its form.
std::string html_data(std::span<const Result> results, const PageFacts& facts);

// "affinity (exact)", "round-robin"
std::string run_name(const Result& result);
// "slow: node 5, 2 times as slow, for 30 s"
std::string fault_text(const Fault& fault);

}  // namespace troupe::sim
