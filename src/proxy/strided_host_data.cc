#include "proxy/strided_host_data.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proxy/wire_types.h"

namespace openpathways::proxy {
namespace {

constexpr int64_t kReadSize = 4 << 20;
constexpr int64_t kMaxBlowUp = 16;
constexpr int64_t kSmall = 1 << 20;

// Bytes in memory, handed out in pieces that share them.
class MemoryHostData : public ifrt::HostData {
 public:
  explicit MemoryHostData(std::shared_ptr<std::vector<std::byte>> bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_->size()); }
  Future<transport::Buffer> Next(int64_t max_size) override {
    const size_t size = std::min<size_t>(max_size, bytes_->size() - offset_);
    transport::Buffer piece(bytes_, bytes_->data() + offset_, size);
    offset_ += size;
    return Future<transport::Buffer>(std::move(piece));
  }

 private:
  const std::shared_ptr<std::vector<std::byte>> bytes_;
  size_t offset_ = 0;
};

struct Spread {
  ifrt::HostDataRef data;
  ifrt::DType dtype;
  ifrt::Shape shape;
  std::vector<int64_t> strides;
  std::vector<std::byte> dense;
  Promise<ifrt::HostDataRef> promise;
};

std::shared_ptr<std::vector<std::byte>> Scatter(const Spread& spread, int64_t size) {
  auto result = std::make_shared<std::vector<std::byte>>(size);
  const int64_t element = ifrt::HostElementSize(spread.dtype);
  const int rank = static_cast<int>(spread.shape.size());
  std::vector<int64_t> index(rank, 0);
  for (size_t from = 0; from < spread.dense.size(); from += element) {
    int64_t to = 0;
    for (int d = 0; d < rank; ++d) {
      if (spread.shape[d] > 1) to += index[d] * spread.strides[d];
    }
    std::memcpy(result->data() + to, spread.dense.data() + from, element);
    for (int d = rank - 1; d >= 0 && ++index[d] == spread.shape[d]; --d) index[d] = 0;
  }
  return result;
}

void Finish(Spread& spread) {
  const int64_t dense = ifrt::NumElements(spread.shape) * ifrt::HostElementSize(spread.dtype);
  const absl::StatusOr<int64_t> size = HostBufferSize(spread.dtype, spread.shape, spread.strides);
  if (!size.ok()) return spread.promise.Set(size.status());
  if (static_cast<int64_t>(spread.dense.size()) != dense) {
    return spread.promise.Set(absl::DataLossError(
        absl::StrCat("An array of ", dense, " bytes was read back as ", spread.dense.size(), " bytes")));
  }
  spread.promise.Set(ifrt::HostDataRef(std::make_shared<MemoryHostData>(Scatter(spread, *size))));
}

void ReadOn(std::shared_ptr<Spread> spread) {
  Spread& s = *spread;
  s.data->Next(kReadSize).OnReady([spread = std::move(spread)](const absl::StatusOr<transport::Buffer>& piece) {
    if (!piece.ok()) return spread->promise.Set(piece.status());
    if (piece->empty()) return Finish(*spread);
    spread->dense.insert(spread->dense.end(), piece->data(), piece->data() + piece->size());
    ReadOn(spread);
  });
}

}  // namespace

Future<ifrt::HostDataRef> ToStrided(Future<ifrt::HostDataRef> data, ifrt::DType dtype, ifrt::Shape shape,
                                    std::vector<int64_t> byte_strides) {
  const absl::StatusOr<int64_t> size = HostBufferSize(dtype, shape, byte_strides);
  if (!size.ok()) return Future<ifrt::HostDataRef>(size.status());
  const int64_t dense = ifrt::NumElements(shape) * ifrt::HostElementSize(dtype);
  if (*size > kSmall && *size / kMaxBlowUp > dense) {
    return Future<ifrt::HostDataRef>(absl::ResourceExhaustedError(
        absl::StrCat("The byte strides would spread ", dense, " bytes over a host buffer of ", *size, " bytes")));
  }
  auto spread = std::make_shared<Spread>();
  spread->dtype = dtype;
  spread->shape = std::move(shape);
  spread->strides = std::move(byte_strides);
  Future<ifrt::HostDataRef> result = spread->promise.future();
  data.OnReady([spread](const absl::StatusOr<ifrt::HostDataRef>& data) {
    if (!data.ok()) return spread->promise.Set(data.status());
    spread->data = *data;
    ReadOn(spread);
  });
  return result;
}

}  // namespace openpathways::proxy
