// What the transport's tests share: an endpoint that records what arrives, and waits for it.
#ifndef OPENPATHWAYS_TRANSPORT_TRANSPORT_TESTING_H_
#define OPENPATHWAYS_TRANSPORT_TRANSPORT_TESTING_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transport/transport.h"

namespace openpathways::transport {

// Long enough for a loaded machine and a sanitizer; only a failing test waits so long.
inline constexpr std::chrono::seconds kPatience(60);

// Records the messages and the end of one connection. Thread-safe. Held by shared_ptr, which the callbacks share.
class Inbox {
 public:
  static ConnectionCallbacks CallbacksOf(std::shared_ptr<Inbox> inbox) {
    ConnectionCallbacks callbacks;
    callbacks.on_message = [inbox](Message message) {
      std::unique_lock<std::mutex> lock(inbox->mu_);
      EXPECT_FALSE(inbox->closed_.has_value()) << "a message after on_closed";
      inbox->messages_.push_back(std::move(message));
      inbox->changed_.notify_all();
    };
    callbacks.on_closed = [inbox](absl::Status status) {
      std::unique_lock<std::mutex> lock(inbox->mu_);
      EXPECT_FALSE(inbox->closed_.has_value()) << "closed twice";
      inbox->closed_ = std::move(status);
      inbox->changed_.notify_all();
    };
    return callbacks;
  }

  // Waits for `count` messages and takes them out.
  std::vector<Message> Take(size_t count) {
    std::unique_lock<std::mutex> lock(mu_);
    auto enough = [&] { return messages_.size() >= count; };
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, enough))
        << messages_.size() << " of " << count
        << " messages came; closed: " << (closed_.has_value() ? closed_->ToString() : "no");
    return std::exchange(messages_, {});
  }
  Message TakeOne() {
    std::vector<Message> messages = Take(1);
    EXPECT_EQ(messages.size(), 1u);
    return messages.empty() ? Message() : std::move(messages[0]);
  }

  absl::Status AwaitClosed() {
    std::unique_lock<std::mutex> lock(mu_);
    auto closed = [&] { return closed_.has_value(); };
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, closed)) << "was not closed";
    return closed_.value_or(absl::UnknownError("not closed"));
  }
  size_t message_count() const {
    std::unique_lock<std::mutex> lock(mu_);
    return messages_.size();
  }
  bool closed() const {
    std::unique_lock<std::mutex> lock(mu_);
    return closed_.has_value();
  }

 private:
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Message> messages_;
  std::optional<absl::Status> closed_;
};

// Waits until a count that another thread changes, without telling, is as expected.
template <typename Condition>
bool Eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Set once by one thread, awaited by another.
class Signal {
 public:
  void Set() {
    std::lock_guard<std::mutex> lock(mu_);
    set_ = true;
    changed_.notify_all();
  }
  bool IsSet() const {
    std::lock_guard<std::mutex> lock(mu_);
    return set_;
  }
  bool Await() {
    std::unique_lock<std::mutex> lock(mu_);
    return changed_.wait_for(lock, kPatience, [this] { return set_; });
  }

 private:
  mutable std::mutex mu_;
  std::condition_variable changed_;
  bool set_ = false;
};

// The accepting side of a transport: the connections that came, each with its inbox.
class Server {
 public:
  struct Client {
    ConnectionRef connection;
    std::shared_ptr<Inbox> inbox = std::make_shared<Inbox>();
  };

  Server(Transport& transport) : state_(std::make_shared<State>()) {
    port_ = transport
                .Listen(0,
                        [state = state_](ConnectionRef connection) {
                          Client client{std::move(connection)};
                          std::unique_lock<std::mutex> lock(state->mu);
                          state->clients.push_back(client);
                          state->changed.notify_all();
                          return Inbox::CallbacksOf(client.inbox);
                        })
                .value();
  }

  int port() const { return port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // The next connection that was accepted.
  Client Accept() {
    std::unique_lock<std::mutex> lock(state_->mu);
    auto any = [this] { return state_->clients.size() > accepted_; };
    EXPECT_TRUE(state_->changed.wait_for(lock, kPatience, any)) << "nobody connected";
    return any() ? state_->clients[accepted_++] : Client();
  }
  size_t accepted() const {
    std::unique_lock<std::mutex> lock(state_->mu);
    return state_->clients.size();
  }

 private:
  struct State {
    std::mutex mu;
    std::condition_variable changed;
    std::vector<Client> clients;
  };
  std::shared_ptr<State> state_;
  size_t accepted_ = 0;
  int port_ = 0;
};

// Bytes that tell where they belong.
inline void FillPattern(const Buffer& buffer, uint64_t seed) {
  for (size_t i = 0; i + 8 <= buffer.size(); i += 8) {
    const uint64_t word = (seed << 32) ^ i;
    std::memcpy(buffer.data() + i, &word, 8);
  }
  for (size_t i = buffer.size() / 8 * 8; i < buffer.size(); ++i) buffer.data()[i] = static_cast<std::byte>(seed + i);
}

inline bool HasPattern(const Buffer& buffer, uint64_t seed) {
  for (size_t i = 0; i + 8 <= buffer.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, buffer.data() + i, 8);
    if (word != ((seed << 32) ^ i)) return false;
  }
  for (size_t i = buffer.size() / 8 * 8; i < buffer.size(); ++i) {
    if (buffer.data()[i] != static_cast<std::byte>(seed + i)) return false;
  }
  return true;
}

// Ordinary memory: a payload outside the arena.
inline Buffer HeapBuffer(size_t size) {
  std::shared_ptr<std::byte[]> bytes(new std::byte[size]);
  std::byte* data = bytes.get();
  return Buffer(std::shared_ptr<void>(bytes, data), data, size);
}

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_TRANSPORT_TESTING_H_
