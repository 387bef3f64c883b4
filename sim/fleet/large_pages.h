#pragma once

// A simulated fleet is a few megabytes a node that are read all over, and half of its time may go to finding
// out where its pages are, above all in a virtual machine.

namespace troupe::sim {

// From now on malloc() takes memory from one stretch for which the kernel was asked for pages of 2 MB; false:
// there are none to be had. Call it once, before there are threads.
bool prefer_large_pages();

}  // namespace troupe::sim
