#include "ifrt/host_buffer.h"

#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace openpathways::ifrt {

// Calls of the consumer are made without the lock, by whichever thread finds work and nobody else at it.
struct HostBuffer::State {
  struct Piece {
    int64_t offset = 0;
    transport::Buffer data;
    absl::AnyInvocable<void()> consumed;
  };

  explicit State(int64_t size) : size(size) {}
  ~State() { Finish(absl::CancelledError("the transfer of a host buffer was abandoned")); }

  void Append(transport::Buffer data, absl::AnyInvocable<void()> consumed) {
    {
      std::lock_guard lock(mu);
      const int64_t offset = received;
      received += static_cast<int64_t>(data.size());
      if (!end.has_value() && (received <= size || size == kUnknownSize)) {
        pieces.push_back({offset, std::move(data), std::move(consumed)});
        consumed = nullptr;
      }
    }
    if (consumed) {
      consumed();
      Finish(absl::DataLossError(absl::StrCat("a host buffer of ", size, " bytes got more than that")));
    }
    Deliver();
  }

  void Finish(absl::Status status) {
    std::deque<Piece> dropped;
    {
      std::lock_guard lock(mu);
      if (end.has_value()) return;
      if (status.ok() && received != size && size != kUnknownSize) {
        status =
            absl::DataLossError(absl::StrCat("a host buffer of ", size, " bytes ended after ", received, " bytes"));
      }
      if (!status.ok()) dropped.swap(pieces);
      end = std::move(status);
    }
    for (Piece& piece : dropped) piece.consumed();
    Deliver();
  }

  void Attach(Consumer attached) {
    {
      std::lock_guard lock(mu);
      consumer = std::move(attached);
    }
    Deliver();
  }

  void Deliver() {
    while (true) {
      Piece piece;
      bool finished = false;
      {
        std::lock_guard lock(mu);
        if (!consumer.has_value() || delivering || finished_told) return;
        if (!pieces.empty()) {
          piece = std::move(pieces.front());
          pieces.pop_front();
        } else if (end.has_value()) {
          finished = finished_told = true;
        } else {
          return;
        }
        delivering = true;
      }
      // Stable while `delivering`: the consumer is set only once, the end too.
      if (finished) {
        Consumer last = TakeConsumer();
        last.finished(*end);
      } else {
        consumer->piece(piece.offset, std::move(piece.data), std::move(piece.consumed));
      }
      std::lock_guard lock(mu);
      delivering = false;
    }
  }

  // What the consumer holds is dropped as soon as it has been told the end.
  Consumer TakeConsumer() {
    std::lock_guard lock(mu);
    return *std::exchange(consumer, Consumer());
  }

  const int64_t size;
  std::mutex mu;  // guards what follows
  int64_t received = 0;
  std::deque<Piece> pieces;
  std::optional<absl::Status> end;   // set once, under mu
  std::optional<Consumer> consumer;  // set once, under mu
  bool delivering = false;
  bool finished_told = false;
};

HostBuffer::HostBuffer(int64_t size) : size_(size), state_(std::make_shared<State>(size)) {}

void HostBuffer::Append(transport::Buffer piece, absl::AnyInvocable<void()> consumed) {
  std::shared_ptr<State> state = state_;
  state->Append(std::move(piece), std::move(consumed));
}

void HostBuffer::Finish(const absl::Status& status) {
  std::shared_ptr<State> state = state_;
  state->Finish(status);
}

void HostBuffer::Attach(Consumer consumer) {
  std::shared_ptr<State> state = state_;
  state->Attach(std::move(consumer));
}

}  // namespace openpathways::ifrt
