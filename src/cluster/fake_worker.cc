#include "cluster/fake_worker.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cluster/command_names.h"
#include "gtest/gtest.h"

namespace openpathways::cluster {
namespace {

constexpr std::chrono::seconds kPatience(60);

transport::Buffer Copy(const std::string& bytes) {
  auto owner = std::make_shared<std::string>(bytes);
  auto* data = reinterpret_cast<std::byte*>(owner->data());
  return transport::Buffer(std::move(owner), data, bytes.size());
}

int LocalDevices(const worker::LoadExecutable& load, uint64_t worker_id) {
  int local = 0;
  for (uint32_t participant : load.placement()) {
    if (load.participants(static_cast<int>(participant)).worker_id() == worker_id) ++local;
  }
  return local;
}

}  // namespace

FakeWorker::FakeWorker(uint64_t id, int num_devices) : id_(id), num_devices_(num_devices) {
  transport_ = *transport::Transport::Create();
  auto port = transport_->Listen(0, [this](transport::ConnectionRef connection) { return Accept(connection); });
  EXPECT_TRUE(port.ok()) << port.status();
  address_ = absl::StrCat("127.0.0.1:", *port);
}

FakeWorker::~FakeWorker() { Kill(); }

void FakeWorker::Kill() {
  std::unique_ptr<transport::Transport> transport = std::move(transport_);
  transport.reset();
  std::lock_guard lock(mu_);
  connection_.reset();
}

transport::ConnectionCallbacks FakeWorker::Accept(transport::ConnectionRef connection) {
  std::lock_guard lock(mu_);
  connection_ = std::move(connection);
  greeted_ = false;
  transport::ConnectionCallbacks callbacks;
  callbacks.on_message = [this](transport::Message message) { OnMessage(std::move(message)); };
  callbacks.on_closed = [](const absl::Status&) {};
  return callbacks;
}

void FakeWorker::OnMessage(transport::Message message) {
  std::lock_guard lock(mu_);
  if (!greeted_) {
    worker::Hello hello;
    if (!hello.ParseFromString(message.header) || hello.role() != worker::Hello::CONTROLLER ||
        hello.worker_id() != id_) {
      Violation("a bad Hello");
    }
    greeted_ = true;
    worker::Event event;
    event.mutable_welcome()->set_worker_id(id_);
    for (int i = 0; i < num_devices_; ++i) {
      event.mutable_welcome()->add_plugin_device_ids(static_cast<int64_t>(id_) * 2048 + i);
    }
    return connection_->Send(event.SerializeAsString());
  }
  worker::Command command;
  if (!command.ParseFromString(message.header)) return Violation("a message that is no command");
  Account(command);
  if (answering_) Answer(command);
  commands_.push_back({std::move(command), std::move(message.payload)});
  changed_.notify_all();
}

void FakeWorker::Account(const worker::Command& command) {
  ForEachUsedName(command, [this](uint64_t name) {
    if (!buffers_.contains(name) && !executables_.contains(name)) Violation(absl::StrCat("unknown name ", name));
  });
  if (command.has_delete_buffers()) {
    for (uint64_t buffer : command.delete_buffers().buffers()) buffers_.erase(buffer);
  } else if (command.has_unload_executable()) {
    executables_.erase(command.unload_executable().executable());
  } else if (command.has_load_executable()) {
    executables_[command.load_executable().executable()] = LocalDevices(command.load_executable(), id_);
  } else {
    int64_t results = 0;
    if (command.has_execute()) {
      results = int64_t{executables_[command.execute().executable()]} * command.execute().num_results();
    }
    ForEachMadeName(command, results, [this](uint64_t name) {
      if (!buffers_.insert(name).second) Violation(absl::StrCat("buffer ", name, " made twice"));
    });
  }
}

void FakeWorker::Answer(const worker::Command& command) {
  if (command.has_await()) {
    SendReply(command.await().request(), absl::OkStatus(), 0, {});
  } else if (command.has_execute() && command.execute().completion_request() != 0) {
    SendReply(command.execute().completion_request(), absl::OkStatus(), 0, {});
  } else if (command.has_read_buffer()) {
    const worker::ReadBuffer& read = command.read_buffer();
    const std::string& bytes = bytes_[read.buffer()];
    const bool in_reply = static_cast<int64_t>(bytes.size()) <= read.max_inline();
    if (!in_reply) reads_[read.request()] = bytes;
    SendReply(read.request(), absl::OkStatus(), static_cast<int64_t>(bytes.size()),
              in_reply ? Copy(bytes) : transport::Buffer());
  } else if (command.has_read_next()) {
    const worker::ReadNext& next = command.read_next();
    if (!reads_.contains(next.request())) return Violation("ReadNext of no read");
    std::string& rest = reads_[next.request()];
    const std::string piece = rest.substr(0, next.size());
    rest.erase(0, piece.size());
    worker::Event event;
    event.mutable_read_data()->set_request(next.request());
    event.mutable_read_data()->set_last(rest.empty());
    if (rest.empty()) reads_.erase(next.request());
    connection_->Send(event.SerializeAsString(), Copy(piece));
  } else if (command.has_read_cancel()) {
    reads_.erase(command.read_cancel().request());
  }
}

void FakeWorker::SendReply(uint64_t request, const absl::Status& status, int64_t size, transport::Buffer payload) {
  worker::Event event;
  event.mutable_reply()->set_request(request);
  *event.mutable_reply()->mutable_status() = StatusToProto(status);
  event.mutable_reply()->set_size(size);
  if (connection_ != nullptr) connection_->Send(event.SerializeAsString(), std::move(payload));
}

void FakeWorker::Reply(uint64_t request, const absl::Status& status) {
  std::lock_guard lock(mu_);
  SendReply(request, status, 0, {});
}

void FakeWorker::SetAnswering(bool answering) {
  std::lock_guard lock(mu_);
  answering_ = answering;
}

void FakeWorker::SetBytes(uint64_t buffer, std::string bytes) {
  std::lock_guard lock(mu_);
  bytes_[buffer] = std::move(bytes);
}

std::vector<FakeWorker::Received> FakeWorker::Await(worker::Command::CommandCase kind, size_t count) {
  std::vector<Received> found;
  auto enough = [&]() {
    found.clear();
    std::copy_if(commands_.begin(), commands_.end(), std::back_inserter(found),
                 [&](const Received& received) { return received.command.command_case() == kind; });
    return found.size() >= count;
  };
  std::unique_lock lock(mu_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, enough))
      << found.size() << " commands of kind " << kind << " came, not " << count;
  found.resize(std::max(found.size(), count));
  return found;
}

std::vector<FakeWorker::Received> FakeWorker::commands() {
  std::lock_guard lock(mu_);
  return commands_;
}

std::vector<std::string> FakeWorker::violations() {
  std::lock_guard lock(mu_);
  return violations_;
}

void FakeWorker::AwaitBuffers(size_t count) {
  auto reached = [&]() { return buffers_.size() == count; };
  std::unique_lock lock(mu_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, reached)) << buffers_.size() << " buffers are held, not " << count;
}

size_t FakeWorker::executables() {
  std::lock_guard lock(mu_);
  return executables_.size();
}

}  // namespace openpathways::cluster
