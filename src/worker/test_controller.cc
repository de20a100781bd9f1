#include "worker/test_controller.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "base/status.h"
#include "worker/protocol.h"

namespace openpathways::worker {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

std::string ToString(const transport::Buffer& buffer) {
  return std::string(reinterpret_cast<const char*>(buffer.data()), buffer.size());
}

}  // namespace

TestController::TestController(transport::Transport* transport, const std::string& address, uint64_t controller,
                               uint64_t worker_id)
    : transport_(transport) {
  transport::ConnectionCallbacks callbacks;
  callbacks.on_message = [this](transport::Message message) { OnMessage(message); };
  callbacks.on_closed = [this](absl::Status status) {
    absl::MutexLock lock(&mu_);
    closed_ = true;
  };
  connection_ = transport->Connect(address, std::move(callbacks));
  Hello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_role(Hello::CONTROLLER);
  hello.set_id(controller);
  hello.set_worker_id(worker_id);
  connection_->Send(hello.SerializeAsString());
}

TestController::~TestController() {
  connection_->Close();
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&closed_));
}

void TestController::OnMessage(const transport::Message& message) {
  Event event;
  event.ParseFromString(message.header);
  absl::MutexLock lock(&mu_);
  if (event.has_welcome()) welcome_[0] = event.welcome();
  if (event.has_reply()) {
    replies_[event.reply().request()] =
        Answer{StatusFromProto(event.reply().status()), event.reply().size(), ToString(message.payload)};
  }
  if (event.has_read_data()) pieces_[event.read_data().request()] = {event.read_data(), ToString(message.payload)};
}

template <typename T>
absl::StatusOr<T> TestController::AwaitIn(absl::flat_hash_map<uint64_t, T>& map, uint64_t key) {
  absl::MutexLock lock(&mu_);
  auto there = [&] { return map.contains(key) || closed_; };
  if (!mu_.AwaitWithTimeout(absl::Condition(&there), kPatience)) {
    return absl::DeadlineExceededError("the worker did not answer");
  }
  if (!map.contains(key)) return absl::UnavailableError("the worker closed the connection");
  T value = std::move(map.at(key));
  map.erase(key);
  return value;
}

absl::StatusOr<Welcome> TestController::AwaitWelcome() { return AwaitIn(welcome_, 0); }

absl::Status TestController::AwaitClosed() {
  absl::MutexLock lock(&mu_);
  if (mu_.AwaitWithTimeout(absl::Condition(&closed_), kPatience)) return absl::OkStatus();
  return absl::DeadlineExceededError("the worker did not close the connection");
}

void TestController::Send(const Command& command, transport::Buffer payload) {
  connection_->Send(command.SerializeAsString(), std::move(payload));
}

TestController::Answer TestController::AwaitReply(uint64_t request) {
  absl::StatusOr<Answer> answer = AwaitIn(replies_, request);
  return answer.ok() ? *std::move(answer) : Answer{answer.status(), 0, ""};
}

void TestController::Put(const std::vector<Target>& targets, int element_type, const std::vector<int64_t>& dims,
                         const std::string& bytes, const std::vector<int64_t>& byte_strides, size_t piece) {
  const uint64_t transfer = NewRequest();
  Command command;
  BeginHostTransfer& begin = *command.mutable_begin_host_transfer();
  begin.set_transfer(transfer);
  begin.set_size(bytes.size());
  begin.set_element_type(element_type);
  begin.mutable_dims()->Assign(dims.begin(), dims.end());
  begin.mutable_byte_strides()->Assign(byte_strides.begin(), byte_strides.end());
  for (const Target& target : targets) *begin.add_targets() = target;
  Send(command);
  for (size_t offset = 0; offset < bytes.size(); offset += piece) {
    const size_t size = std::min(piece, bytes.size() - offset);
    Command data;
    data.mutable_host_transfer_data()->set_transfer(transfer);
    data.mutable_host_transfer_data()->set_offset(offset);
    transport::Buffer payload = *transport_->arena().Allocate(size);
    std::memcpy(payload.data(), bytes.data() + offset, size);
    Send(data, payload);
  }
}

absl::Status TestController::AwaitBuffers(const std::vector<uint64_t>& buffers) {
  Command command;
  command.mutable_await()->set_request(NewRequest());
  command.mutable_await()->mutable_buffers()->Assign(buffers.begin(), buffers.end());
  Send(command);
  return AwaitReply(command.await().request()).status;
}

absl::StatusOr<std::string> TestController::Read(uint64_t buffer, int64_t max_inline, int64_t piece) {
  const uint64_t request = NewRequest();
  Command command;
  command.mutable_read_buffer()->set_request(request);
  command.mutable_read_buffer()->set_buffer(buffer);
  command.mutable_read_buffer()->set_max_inline(max_inline);
  Send(command);
  Answer answer = AwaitReply(request);
  RETURN_IF_ERROR(answer.status);
  std::string bytes = std::move(answer.payload);
  while (static_cast<int64_t>(bytes.size()) < answer.size) {
    Command next;
    next.mutable_read_next()->set_request(request);
    next.mutable_read_next()->set_size(piece);
    Send(next);
    ASSIGN_OR_RETURN(auto data, AwaitIn(pieces_, request));
    if (data.first.offset() != static_cast<int64_t>(bytes.size()))
      return absl::InternalError("a piece at a wrong place");
    bytes += data.second;
    if (data.first.last() != (static_cast<int64_t>(bytes.size()) == answer.size)) {
      return absl::InternalError("the last piece is not marked");
    }
  }
  return bytes;
}

void TestController::Delete(const std::vector<uint64_t>& buffers) {
  Command command;
  command.mutable_delete_buffers()->mutable_buffers()->Assign(buffers.begin(), buffers.end());
  Send(command);
}

Target TestController::MakeTarget(uint64_t buffer, int device, const std::string& memory_kind) {
  Target target;
  target.set_buffer(buffer);
  target.set_device(device);
  target.set_memory_kind(memory_kind);
  return target;
}

}  // namespace openpathways::worker
