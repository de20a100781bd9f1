#include "worker/boxes.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace openpathways::worker {
namespace {

using ::testing::ElementsAre;
using Dims = std::vector<int64_t>;

int64_t Count(const Dims& dims) { return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()); }

// The value of element number `i` along each dimension, in row-major order.
int64_t At(const std::vector<int32_t>& values, const Dims& dims, const Dims& index) {
  int64_t offset = 0;
  for (size_t d = 0; d < dims.size(); ++d) offset = offset * dims[d] + index[d];
  return values[offset];
}

bool Next(Dims& index, const Dims& size) {
  for (size_t d = size.size(); d-- > 0;) {
    if (++index[d] < size[d]) return true;
    index[d] = 0;
  }
  return false;
}

void Copy(const Dims& size, const std::vector<int32_t>& from, const Dims& from_dims, const Dims& from_begin,
          std::vector<int32_t>& to, const Dims& to_dims, const Dims& to_begin) {
  CopyBox(4, size, {reinterpret_cast<const std::byte*>(from.data()), from_dims, from_begin},
          {reinterpret_cast<std::byte*>(to.data()), to_dims, to_begin});
}

TEST(BoxesTest, CopiesOneColumnIntoAnother) {
  std::vector<int32_t> from(12), to(6, -1);
  std::iota(from.begin(), from.end(), 0);
  Copy({3, 1}, from, {3, 4}, {0, 2}, to, {3, 2}, {0, 1});
  EXPECT_THAT(to, ElementsAre(-1, 2, -1, 6, -1, 10));
  Copy({}, {7}, {}, {}, to, {}, {});
  EXPECT_EQ(to[0], 7);
  Copy({0, 1}, from, {3, 4}, {0, 0}, to, {3, 2}, {0, 0});
  EXPECT_EQ(to[0], 7);
}

TEST(BoxesTest, RandomBoxesArriveElementByElement) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const size_t rank = random() % 5;
    Dims size, from_dims, from_begin, to_dims, to_begin;
    for (size_t d = 0; d < rank; ++d) {
      size.push_back(1 + random() % 3);
      from_begin.push_back(random() % 2);
      to_begin.push_back(random() % 2);
      from_dims.push_back(from_begin[d] + size[d] + random() % 2);
      to_dims.push_back(to_begin[d] + size[d] + random() % 2);
    }
    std::vector<int32_t> from(Count(from_dims)), to(Count(to_dims), -1);
    std::iota(from.begin(), from.end(), 0);
    ASSERT_TRUE(CheckBox(from_dims, from_begin, size).ok());
    Copy(size, from, from_dims, from_begin, to, to_dims, to_begin);
    const int64_t offset = ContiguousOffset(from_dims, from_begin, size);
    Dims index(rank, 0);
    int64_t number = 0;
    bool together = true;
    do {
      Dims source = index, target = index;
      for (size_t d = 0; d < rank; ++d) {
        source[d] += from_begin[d];
        target[d] += to_begin[d];
      }
      const int64_t value = At(from, from_dims, source);
      ASSERT_EQ(At(to, to_dims, target), value);
      if (number == 0 && offset >= 0) {
        ASSERT_EQ(value, offset);
      }
      together = together && value == At(from, from_dims, from_begin) + number;
      ++number;
    } while (Next(index, size));
    ASSERT_EQ(offset >= 0, together) << "trial " << trial;
    ASSERT_EQ(std::count(to.begin(), to.end(), -1), Count(to_dims) - Count(size));
  }
}

TEST(BoxesTest, BoxesAreChecked) {
  EXPECT_TRUE(CheckBox(Dims{4, 5}, Dims{1, 2}, Dims{3, 3}).ok());
  EXPECT_TRUE(CheckBox(Dims{4, 5}, {}, Dims{4, 5}).ok());
  EXPECT_TRUE(CheckBox({}, {}, {}).ok());
  for (const auto& [begin, size] :
       std::vector<std::pair<Dims, Dims>>{{{1, 2}, {4, 3}},
                                          {{-1, 0}, {1, 1}},
                                          {{0, 0}, {-1, 1}},
                                          {{0}, {1, 1}},
                                          {{0, 0}, {1}},
                                          {{5, 0}, {0, 0}},
                                          {{std::numeric_limits<int64_t>::max(), 0}, {1, 1}}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckBox(Dims{4, 5}, begin, size)));
  }
}

}  // namespace
}  // namespace openpathways::worker
