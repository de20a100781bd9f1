#include "worker/boxes.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace openpathways::worker {
namespace {

int64_t Begin(Extents begin, size_t d) { return begin.empty() ? 0 : begin[d]; }

// Elements from one index along each dimension to the next.
std::vector<int64_t> Steps(Extents dims) {
  std::vector<int64_t> steps(dims.size());
  int64_t step = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    steps[d] = step;
    step *= std::max<int64_t>(dims[d], 1);
  }
  return steps;
}

int64_t Offset(Extents dims, Extents begin) {
  const std::vector<int64_t> steps = Steps(dims);
  int64_t offset = 0;
  for (size_t d = 0; d < dims.size(); ++d) offset += Begin(begin, d) * steps[d];
  return offset;
}

}  // namespace

absl::Status CheckBox(Extents dims, Extents begin, Extents size) {
  bool fits = size.size() == dims.size() && (begin.empty() || begin.size() == dims.size());
  for (size_t d = 0; fits && d < dims.size(); ++d) {
    fits = Begin(begin, d) >= 0 && size[d] >= 0 && size[d] <= dims[d] && Begin(begin, d) <= dims[d] - size[d];
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("there is no box of [", absl::StrJoin(size, ","), "] at [",
                                                 absl::StrJoin(begin, ","), "] in an array of [",
                                                 absl::StrJoin(dims, ","), "]"));
}

bool IsWhole(Extents dims, Extents size) { return dims == size; }

int64_t ContiguousOffset(Extents dims, Extents begin, Extents size) {
  // From the innermost dimension outwards: full ones, then one that is cut, then none that has more than one index.
  size_t d = dims.size();
  while (d > 0 && size[d - 1] == dims[d - 1]) --d;
  if (d > 0) --d;
  while (d > 0 && size[d - 1] == 1) --d;
  return d == 0 ? Offset(dims, begin) : -1;
}

void CopyBox(size_t element_size, Extents size, const BoxPlace<const std::byte>& from, const BoxPlace<std::byte>& to) {
  for (int64_t extent : size) {
    if (extent == 0) return;
  }
  const std::byte* source = from.data + Offset(from.dims, from.begin) * element_size;
  std::byte* target = to.data + Offset(to.dims, to.begin) * element_size;
  // The dimensions that are whole at both ends, and the one outside of them, are one run of memory; an odometer steps
  // over the others.
  size_t outer = size.size();
  size_t run = element_size;
  bool is_run = true;
  while (outer > 0 && is_run) {
    --outer;
    run *= size[outer];
    is_run = size[outer] == from.dims[outer] && size[outer] == to.dims[outer];
  }
  std::vector<int64_t> from_steps = Steps(from.dims), to_steps = Steps(to.dims);
  std::vector<int64_t> index(outer, 0);
  while (true) {
    std::memcpy(target, source, run);
    size_t d = outer;
    while (true) {
      if (d == 0) return;
      --d;
      source += from_steps[d] * element_size;
      target += to_steps[d] * element_size;
      if (++index[d] < size[d]) break;
      source -= size[d] * from_steps[d] * element_size;
      target -= size[d] * to_steps[d] * element_size;
      index[d] = 0;
    }
  }
}

}  // namespace openpathways::worker
