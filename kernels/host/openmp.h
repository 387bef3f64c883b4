#pragma once

// Debian's oneDNN parallelises with OpenMP, inside every call. Our threads are the pool's, so each of them
// must see an OpenMP of one thread: pool threads × OpenMP threads on the same cores are many times slower.
// The setting is per thread; this puts back what the calling thread had.

extern "C" {
void omp_set_num_threads(int count);
int omp_get_max_threads();
}

namespace troupe {

class SingleThreadedOpenMp {
 public:
  SingleThreadedOpenMp() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~SingleThreadedOpenMp() { omp_set_num_threads(before_); }
  SingleThreadedOpenMp(const SingleThreadedOpenMp&) = delete;
  SingleThreadedOpenMp& operator=(const SingleThreadedOpenMp&) = delete;

 private:
  int before_;
};

}  // namespace troupe
